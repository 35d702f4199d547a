"""What a model usually gets at this time of day: what the last seven days say about the next hour.

Days are compared in parts of five minutes. A day is like today if its last twenty minutes were. Of the days that are
like today, each has a highest part within the next minutes, and the second-highest of these counts. If the same day of
the week before is among them, it has to show as much, too.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Final

from msgspec import Struct

from wva.model.variant import ModelKey

PART_SECONDS: Final = 300.0
_VALID_SECONDS: Final = 600.0  # of two parts that got no answer; after that it is another time of day
_DAYS: Final = 7
PARTS_OF_A_DAY: Final = round(86_400.0 / PART_SECONDS)
_LATELY: Final = 4
LATELY_SECONDS: Final = _LATELY * PART_SECONDS
_MISSING: Final = 1  # so many parts of a time may be missing, after a failed scrape
_AHEAD: Final = 13  # parts: replicas that take an hour to start are ordered so long before
KEPT: Final = _DAYS * PARTS_OF_A_DAY + _LATELY
"""So many parts are kept: a week, and the twenty minutes before it."""
_ALIKE: Final = 1.5
IDLE: Final = 0.05  # requests per second: what is below differs by chance
_FEWEST_DAYS: Final = 2


class UsualDemand(Struct, frozen=True, gc=False):
    """The demand that came after this time of day on earlier days whose last ``LATELY_SECONDS`` were like today's.

    ``at`` is when this time ended, in seconds since the epoch, and ``lately`` the requests per second in it. ``days``
    is how many earlier days were like today, at least two. ``peaks[i]`` is the highest mean of five minutes within the
    first ``i + 1`` parts of five minutes after ``at``, in requests per second; 0 where two days do not tell. The
    second-highest of these days counts, because a single day may be an exception. If the same day of the week before
    was like today, it has to show the demand, too.
    """

    model: ModelKey
    at: float
    lately: float
    days: int
    peaks: tuple[float, ...]

    def within(self, seconds: float, *, now: float) -> float:
        """Return the highest usual demand in some seconds after ``now``; 0 if what is known is too old."""
        part = int((now + seconds - self.at) // PART_SECONDS)
        if not (self.peaks and 0.0 <= now - self.at < _VALID_SECONDS) or part < 0:
            return 0.0
        return self.peaks[min(part, len(self.peaks) - 1)]


class DemandDays:
    """The demand of one model in each part of the last week; a part without samples is NaN."""

    __slots__ = ("_newest", "_rates")

    def __init__(self) -> None:
        """Know nothing."""
        self._rates = array("f", [nan]) * KEPT
        self._newest = 0

    def put(self, at: float, rate: float) -> None:
        """Keep the requests per second in the part that ended ``at``, in seconds since the epoch."""
        number = round(at / PART_SECONDS)
        for skipped in range(max(self._newest + 1, number - KEPT + 1), number):
            self._rates[skipped % KEPT] = nan
        if number > self._newest - KEPT:
            self._rates[number % KEPT] = rate
            self._newest = max(self._newest, number)

    def usual(self, model: ModelKey, at: float) -> UsualDemand | None:
        """Return what usually comes after ``at``, the end of a part; None unless two days are known to be alike."""
        number = round(at / PART_SECONDS)
        today = self._lately(number)
        if today is None:
            return None
        alike: dict[int, list[float]] = {}
        for day in range(1, _DAYS + 1):
            then = number - day * PARTS_OF_A_DAY
            lately = self._lately(then)
            if lately is not None and max(lately, today) + IDLE <= _ALIKE * (min(lately, today) + IDLE):
                alike[day] = self._peaks(then)
        if len(alike) < _FEWEST_DAYS:
            return None
        return UsualDemand(model, at, today, len(alike), tuple([_usual(alike, part) for part in range(_AHEAD)]))

    def _peaks(self, number: int) -> list[float]:
        """Return the highest of the first parts after a part, of more and more of them; NaN if too many are missing."""
        peaks, highest, missing = [], 0.0, 0
        for rate in [self._rate(number + part) for part in range(1, _AHEAD + 1)]:
            missing += isnan(rate)
            highest = highest if isnan(rate) else max(highest, rate)
            peaks.append(nan if missing > _MISSING else highest)
        return peaks

    def _rate(self, number: int) -> float:
        return self._rates[number % KEPT] if self._newest - KEPT < number <= self._newest else nan

    def _lately(self, number: int) -> float | None:
        """Return the mean of the ``LATELY_SECONDS`` that ended with a part; None if it is not known."""
        rates = [rate for part in range(_LATELY) if not isnan(rate := self._rate(number - part))]
        return sum(rates) / len(rates) if len(rates) >= _LATELY - _MISSING else None


def _usual(alike: Mapping[int, Sequence[float]], part: int) -> float:
    """Return what the days that are like today say about the time until a part."""
    known = sorted([peaks[part] for peaks in alike.values() if not isnan(peaks[part])])
    if len(known) < _FEWEST_DAYS:
        return 0.0
    week_ago = alike[_DAYS][part] if _DAYS in alike else nan
    return known[-_FEWEST_DAYS] if isnan(week_ago) else min(known[-_FEWEST_DAYS], week_ago)
