"""Headers and URL parameters that WVA adds to every query, since some stores and proxies in front of stores need them.

Mimir and Cortex find the tenant in a header (``X-Scope-OrgID``), a proxy such as kube-rbac-proxy or prom-label-proxy in
a parameter of the URL (``namespace``). Both are texts with one addition in each line. A value may be secret, so no
message contains one. A message contains a name only if it is valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

Additions: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values, in the order of the text."""

MAX_ADDITIONS: Final = 16
_MAX_CHARACTERS: Final = 8192
_MAX_NAME: Final = 128
_MAX_VALUE: Final = 2048

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 7230."""
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*(?:\[\])?")
_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")

_TAKEN_HEADERS: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
        *("proxy-authenticate", "proxy-authorization", "authorization"),
        *("host", "expect", "accept", "accept-encoding", "content-encoding", "content-length", "content-type"),
    }
)
"""Headers of a connection, of a proxy, and of the message, which HTTP itself sets. The token has its own settings."""
_TAKEN_PARAMETERS: Final = frozenset({"query", "time", "start", "end", "step"})

EXPECTED_HEADERS: Final = (
    f"one `Name: value` in each line, at most {MAX_ADDITIONS}, of printable ASCII, without Authorization, Host and the "
    "headers of a connection or of the message"
)
EXPECTED_PARAMETERS: Final = (
    f"one `name=value` in each line, at most {MAX_ADDITIONS}, of printable ASCII, without "
    f"{', '.join(sorted(_TAKEN_PARAMETERS))}"
)


def read_headers(text: str) -> Additions:
    """Return the headers of a text; no two have the same name. Raises ValueError, which shows no value."""
    headers = tuple(_read(text, ":", _HEADER, lambda name: name.lower() in _TAKEN_HEADERS))
    names = [name.lower() for name, _ in headers]
    repeated = next((name for name in names if names.count(name) > 1), "")
    if repeated:
        raise ValueError(f"has the header {repeated} twice")
    return headers


def read_parameters(text: str) -> Additions:
    """Return the parameters of a text; a name may be there several times. Raises ValueError, which shows no value."""
    return tuple(_read(text, "=", _PARAMETER, _TAKEN_PARAMETERS.__contains__))


def _read(text: str, separator: str, names: re.Pattern[str], taken: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"has {len(text):,} characters, at most {_MAX_CHARACTERS:,} are read")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise ValueError("is empty")
    if len(lines) > MAX_ADDITIONS:
        raise ValueError(f"has {len(lines)} lines")
    for number, line in lines:
        name, between, value = (part.strip(" \t\r") for part in line.partition(separator))
        if not between or len(name) > _MAX_NAME or not names.fullmatch(name):
            raise ValueError(f"has no name and value with `{separator}` between them in line {number}")
        if taken(name):
            raise ValueError(f"has {name} in line {number}, which it must not set")
        if len(value) > _MAX_VALUE or not _VALUE.fullmatch(value):
            raise ValueError(f"has no usable value of {name} in line {number}")
        yield name, value
