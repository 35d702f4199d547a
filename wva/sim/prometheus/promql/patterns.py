"""Regular expressions of PromQL: Go's syntax, as far as it means the same in Python.

As in Prometheus they are anchored (use ``fullmatch``), ``.`` matches newlines and classes are ASCII. In matchers the
parser has already refused what Go lacks (look-around, back references); this module refuses what Python lacks.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

from wva.sim.prometheus.promql.errors import BadQueryError

_PLAIN_ALTERNATIVES = re.compile(r"[\w\-/: ]*(\|[\w\-/: ]*)*", re.ASCII)
_REFERENCE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})", re.ASCII)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern; BadQueryError if it is malformed or means something else in Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(pattern, re.DOTALL | re.ASCII)
    except (re.error, Warning) as e:
        raise BadQueryError(f"regular expression {pattern!r} is not supported here: {e}") from e


def regex_test(pattern: str) -> Callable[[str], bool]:
    """Return the test for a pattern. A list of plain words, as in WVA's queries, becomes a set."""
    if _PLAIN_ALTERNATIVES.fullmatch(pattern):
        return frozenset(pattern.split("|")).__contains__
    compiled = compile_pattern(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def expand(template: str, label_match: re.Match[str]) -> str:
    """Return the template with ``$1``, ``${name}`` and ``$$`` filled in; an unknown group is empty."""

    def reference(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        if name is None:
            return "$"
        if name.isdigit():
            return (label_match.group(int(name)) or "") if int(name) <= label_match.re.groups else ""
        return label_match.groupdict().get(name) or ""

    return _REFERENCE.sub(reference, template)
