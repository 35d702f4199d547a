"""Text that enters PromQL: escaped, quoted, validated.

Three defences, one behind the other. Namespaces are validated against what Kubernetes allows, so nothing odd gets here
at all. Literal text inside a regular expression is quoted for RE2. And every value stands inside a string literal whose
quotes, backslashes and line ends are escaped, so that no text can end the literal it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from wva.api.core import is_namespace

_RE2_SPECIAL: Final = re.compile(r"([\\.+*?()|\[\]{}^$])")
_SHOWN_CHARACTERS: Final = 80
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def escape_label_value(text: str) -> str:
    r"""Return text with ``\`` and ``"`` escaped, in this order and nothing else: the original's rule.

    Use ``quote`` for a string literal: this function leaves line ends as they are.
    """
    return text.replace("\\", "\\\\").replace('"', '\\"')


def quote(text: str) -> str:
    r"""Return text as a double-quoted PromQL string literal that means exactly this text.

    PromQL allows no raw line end inside double quotes, and other control characters make a query unreadable in
    logs: all of them are written as ``\n`` or ``\xNN``. Raises ValueError for half a character (a lone surrogate),
    which no label can hold and no request can carry.
    """
    if _SURROGATE.search(text):
        raise ValueError(f"{text[:_SHOWN_CHARACTERS]!a} is no text: it has half a character")
    escaped = escape_label_value(text).replace("\n", "\\n")
    return '"' + _CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", escaped) + '"'


def regex_literal(text: str) -> str:
    """Return an RE2 expression that matches exactly this text."""
    return _RE2_SPECIAL.sub(r"\\\1", text)


def validate_namespace(text: str) -> str:
    """Return the text if it is a Kubernetes namespace (RFC 1123 label), else raise ValueError."""
    if not is_namespace(text):
        expected = "lower-case letters, digits and '-', at most 63 characters"
        raise ValueError(f"{text[:_SHOWN_CHARACTERS]!r} is not a namespace: {expected}")
    return text


def namespace_matcher(namespaces: Iterable[str]) -> str:
    """Return ``{namespace=~"a|b"}``. Raises ValueError without a namespace (all would match), or for an invalid one."""
    pattern = "|".join(regex_literal(validate_namespace(namespace)) for namespace in namespaces)
    if not pattern:
        raise ValueError("a query without namespaces would read every namespace")
    return f"{{namespace=~{quote(pattern)}}}"
