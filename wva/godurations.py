"""Texts that Go programs accept: durations and booleans.

Flags, environment and ConfigMaps were written for a Go program, so the same texts must keep meaning the same. A
duration is a sequence of decimal numbers with units (``1h30m``, ``1.5h``, ``100ms``), computed in int64 nanoseconds as
Go's ``time.ParseDuration`` does it, overflow included. Everything else raises ValueError with a text for people.
"""

from __future__ import annotations

import re
from typing import Final

from wva.numbers import Whole, shown

_UNIT_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
"""The third and fourth are the micro sign and the Greek letter mu; Go accepts both."""

_PART: Final = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>[^0-9.]*)")
_MAX_NANOSECONDS: Final = 2**63 - 1
_WHOLE: Final = Whole(0, _MAX_NANOSECONDS + 1)
_MAX_CHARACTERS: Final = 256
_NANOSECONDS_PER_SECOND: Final = 1_000_000_000

EXPECTED_DURATION: Final = "a duration such as 90s, 10m or 1h30m"

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True", "yes", "Yes", "YES"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False", "no", "No", "NO"})

_PROMQL_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60))


def parse_duration(text: str) -> float:
    """Return the seconds that a Go duration means; negative ones are allowed.

    Raises ValueError on anything that Go refuses: no unit (except ``0``), days, spaces, more than 292 years.
    """
    negative = text.startswith("-")
    body = text[1:] if text[:1] in {"-", "+"} else text
    if body == "0":
        return 0.0
    if not body or len(body) > _MAX_CHARACTERS:
        raise _invalid(text)
    nanoseconds = 0
    position = 0
    while position < len(body):
        part = _PART.match(body, position)
        if part is None:
            raise _invalid(text)
        nanoseconds += _part_nanoseconds(part, text)
        position = part.end()
    # Go computes in int64, where the lowest negative number has no positive counterpart.
    if nanoseconds > _MAX_NANOSECONDS + negative:
        raise _too_long(text)
    return (-nanoseconds if negative else nanoseconds) / _NANOSECONDS_PER_SECOND


def parse_positive_duration(text: str) -> float:
    """Return the seconds of a Go duration that must be above zero, such as a retention period.

    Raises ValueError on anything else.
    """
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError(f"{shown(text)} is not above zero")
    return seconds


def parse_bool(text: str) -> bool:
    """Return the boolean that a flag (Go's strconv) or the original's ConfigMaps (``yes``) mean by a text.

    Raises ValueError on anything else; the original read an unknown text as false, which hides typing errors.
    """
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{shown(text)} is not a boolean: true or false")


def format_promql_duration(seconds: float) -> str:
    """Return a duration as PromQL text: the largest of d, h, m that divides it, else whole seconds, at least ``1s``.

    v0.5.1 writes the same text, so recorded queries can be compared.
    """
    nanoseconds = round(seconds * _NANOSECONDS_PER_SECOND)
    if nanoseconds < _NANOSECONDS_PER_SECOND:
        return "1s"
    whole_seconds, rest = divmod(nanoseconds, _NANOSECONDS_PER_SECOND)
    if rest == 0:
        for unit, unit_seconds in _PROMQL_UNITS:
            if whole_seconds % unit_seconds == 0:
                return f"{whole_seconds // unit_seconds}{unit}"
    return f"{whole_seconds}s"


def _part_nanoseconds(part: re.Match[str], text: str) -> int:
    whole, fraction, unit = part["whole"], part["fraction"] or "", part["unit"]
    if not whole and not fraction:
        raise _invalid(text)
    if not unit:
        raise ValueError(f"{shown(text)} has no unit: expected {EXPECTED_DURATION}")
    if unit not in _UNIT_NANOSECONDS:
        raise ValueError(f"{shown(text)} has an unknown unit {shown(unit)}: expected {EXPECTED_DURATION}")
    scale = _UNIT_NANOSECONDS[unit]
    # Go truncates the fraction of each part on its own, after digits that no longer fit an int64 were dropped.
    digits = fraction[:18]
    number, part_of_one = _WHOLE.find(whole or "0"), _WHOLE.find(digits or "0")
    if number is None or part_of_one is None:
        raise _too_long(text)
    return number * scale + int(part_of_one * scale // 10 ** len(digits))


def _invalid(text: str) -> ValueError:
    return ValueError(f"{shown(text)} is not {EXPECTED_DURATION}")


def _too_long(text: str) -> ValueError:
    return ValueError(f"{shown(text)} is too long: a duration ends at 292 years")
