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
    "\u00b5s": 1_000,  # the micro sign
    "\u03bcs": 1_000,  # the Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
_MAX_NANOSECONDS: Final = 2**63 - 1
_WHOLE: Final = Whole(0, _MAX_NANOSECONDS + 1)
_MAX_CHARACTERS: Final = 256
_NANOSECONDS_PER_SECOND: Final = 1_000_000_000

EXPECTED_DURATION: Final = "a duration such as 90s, 10m or 1h30m"

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True", "yes", "Yes", "YES"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False", "no", "No", "NO"})


def parse_duration(text: str) -> float:
    """Return the seconds that a Go duration means; negative ones are allowed.

    Raises ValueError on anything that Go refuses: no unit (except ``0``), days, spaces, more than 292 years.
    """
    negative = text.startswith("-")
    body = text[1:] if text[:1] in {"-", "+"} else text
    if body == "0":
        return 0.0
    invalid = ValueError(f"{shown(text)} is not {EXPECTED_DURATION}")
    too_long = ValueError(f"{shown(text)} is too long: a duration ends at 292 years")
    if not body or len(body) > _MAX_CHARACTERS:
        raise invalid
    nanoseconds = 0
    for whole, fraction, unit in _PART.findall(body)[:-1]:  # the last is empty, at the end of the text
        if not whole and not fraction:
            raise invalid
        if not unit:
            raise ValueError(f"{shown(text)} has no unit: expected {EXPECTED_DURATION}")
        if unit not in _UNIT_NANOSECONDS:
            raise ValueError(f"{shown(text)} has an unknown unit {shown(unit)}: expected {EXPECTED_DURATION}")
        # Go truncates the fraction of each part on its own, after digits that no longer fit an int64 were dropped.
        digits, scale = fraction[:18], _UNIT_NANOSECONDS[unit]
        number, part_of_one = _WHOLE.find(whole or "0"), _WHOLE.find(digits or "0")
        if number is None or part_of_one is None:
            raise too_long
        nanoseconds += number * scale + int(part_of_one * scale // 10 ** len(digits))
    # Go computes in int64, where the lowest negative number has no positive counterpart.
    if nanoseconds > _MAX_NANOSECONDS + negative:
        raise too_long
    return (-nanoseconds if negative else nanoseconds) / _NANOSECONDS_PER_SECOND


def parse_positive_duration(text: str) -> float:
    """Return the seconds of a Go duration above zero, such as a retention period. Raises ValueError on all else."""
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError(f"{shown(text)} is not above zero")
    return seconds


def parse_bool(text: str) -> bool:
    """Return the boolean that a flag (Go's strconv) or the original's ConfigMaps (``yes``) mean by a text.

    Raises ValueError on anything else; the original read an unknown text as false, which hides typing errors.
    """
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError(f"{shown(text)} is not a boolean: true or false")


def format_promql_duration(seconds: float) -> str:
    """Return a duration as PromQL text: the largest of d, h, m that divides it, else whole seconds, at least ``1s``.

    v0.5.1 writes the same text, so recorded queries can be compared.
    """
    whole_seconds, rest = divmod(round(seconds * _NANOSECONDS_PER_SECOND), _NANOSECONDS_PER_SECOND)
    if whole_seconds < 1:
        return "1s"
    for unit, unit_seconds in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if rest == 0 and whole_seconds % unit_seconds == 0:
            return f"{whole_seconds // unit_seconds}{unit}"
    return f"{whole_seconds}s"
