"""Numbers from outside: a text or a value of JSON becomes a whole or a real number of a range, or is refused.

A ``Whole`` or a ``Real`` is a range: ``find`` returns the number or None, ``read`` the number or one error that names
key, value, expectation and what is in force. Neither raises anything else.

A text is decimal, of ASCII digits, and at most ``MAX_CHARACTERS`` long: its length is looked at before anything else,
since Python needs quadratic time for long numbers and refuses longer ones with an error of its own. NaN and the
infinities are no numbers here. Neither is a text that only Python reads as a number, such as ``1_000``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Final

MAX_REPLICAS: Final = 2**31 - 1
"""Kubernetes stores replicas as int32: no object, no scaler and no series can have more."""

MAX_CHARACTERS: Final = 64
"""Of the text of a number: leaves room for every float64 as programs write it."""

_SHOWN_CHARACTERS: Final = 40
_SHOWN_BITS: Final = 256
_EXACT: Final = 2.0**53
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_REAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class NumberError(ValueError):
    """A number that cannot be used; the message names key, value, expectation and what is in force."""

    def __init__(self, key: str, value: object, *, expected: str, in_force: object) -> None:
        """``value`` may be anything: it is shortened and made printable."""
        super().__init__(f"{key}: got {shown(value)}, expected {expected}; in force: {in_force}")


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole numbers from ``minimum`` to ``maximum``."""

    minimum: int
    maximum: int

    @property
    def expected(self) -> str:
        """The accepted numbers, in words for people."""
        return f"a whole number from {self.minimum:,} to {self.maximum:,}"

    def find(self, value: object) -> int | None:
        """Return the number that a text or a value of JSON means, None when it is not in the range."""
        number = None
        if isinstance(value, str):
            number = int(value) if len(value) <= MAX_CHARACTERS and _WHOLE.fullmatch(value) else None
        elif isinstance(value, float):
            number = int(value) if value.is_integer() else None
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        return number if number is not None and self.minimum <= number <= self.maximum else None

    def read(self, value: object, *, key: str, in_force: object) -> int:
        """Return the number. Raises NumberError when it is not in the range."""
        number = self.find(value)
        if number is None:
            raise NumberError(key, value, expected=self.expected, in_force=in_force)
        return number

    def clamp(self, number: int) -> int:
        """Return the nearest number of the range."""
        return max(self.minimum, min(number, self.maximum))


@dataclass(frozen=True, slots=True)
class Real:
    """The finite numbers from ``minimum`` to ``maximum``; ``above``: the minimum itself is not one of them."""

    minimum: float = -sys.float_info.max
    maximum: float = sys.float_info.max
    above: bool = False

    @property
    def expected(self) -> str:
        """The accepted numbers, in words for people."""
        if self == Real():
            return "a number"
        if self.above:
            return f"a number above {_words(self.minimum)} and up to {_words(self.maximum)}"
        return f"a number from {_words(self.minimum)} to {_words(self.maximum)}"

    def find(self, value: object) -> float | None:
        """Return the number that a text or a value of JSON means, None when it is not in the range; never ``-0.0``."""
        if isinstance(value, str):
            if len(value) > MAX_CHARACTERS or _REAL.fullmatch(value) is None:
                return None
            number = float(value)
        elif isinstance(value, float):
            number = value
        elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < sys.float_info.max_exp:
            number = float(value)
        else:
            return None
        # NaN is in no range, and an infinity neither, since the bounds are finite.
        if not self.minimum <= number <= self.maximum or (self.above and number == self.minimum):
            return None
        return number + 0.0

    def read(self, value: object, *, key: str, in_force: object) -> float:
        """Return the number. Raises NumberError when it is not in the range."""
        number = self.find(value)
        if number is None:
            raise NumberError(key, value, expected=self.expected, in_force=in_force)
        return number


REPLICAS: Final = Whole(0, MAX_REPLICAS)
"""The valid numbers of replicas."""

FINITE: Final = Real()


def shown(value: object) -> str:
    """Return a foreign value on one line, printable and short: a text in quotes, a number as it is."""
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "...")
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"a number of {value.bit_length()} bits"
    if value is None or isinstance(value, (bool, int, float)):
        return "nothing" if value is None else str(value)
    return f"a {type(value).__name__}"


def _words(bound: float) -> str:
    return f"{bound:,.0f}" if float(bound).is_integer() and abs(bound) < _EXACT else f"{bound:g}"
