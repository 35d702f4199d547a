"""The level and the rise of a series of demand: what ``foresee`` expects of the time after the last slot.

The level is the mean over the longest time before the end that differs from the newest slots by no more than chance.
Chance is that of a count: its variance is its mean times the ``dispersion`` that the series itself has shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from operator import attrgetter
from typing import Final

from wva.model.memory import Slot

_DIFFERENT: Final = 2.6  # two means that are so many standard deviations apart show a change
_TREND_SECONDS: Final = (180.0, 360.0, 720.0)
_FEWEST: Final = (6, 8, 10)  # slots of these windows: a load that begins in the middle of a long slot looks like a line
_CERTAIN: Final = 2.5  # a rise counts if it is so many times its standard error
_STEEPEST: Final = 1.0  # a rise adds at most this share of the level
_SURPRISE: Final = 8.0
_MEMORY: Final = 0.05
_amount: Final = attrgetter("amount")
_seconds: Final = attrgetter("seconds")
_partial: Final = attrgetter("partial")


@dataclass(frozen=True, slots=True)
class Pace:
    """Demand per second."""

    rate: float  # now
    error: float  # one standard error of the rate
    rise: float  # per second; negative while demand falls
    jump: float  # how far the newest cycle was above the one before, where that is more than chance, else 0
    lasted: float  # for how many seconds it has been as now, as far as chance lets see

    def at(self, seconds: float) -> float:
        """Return the demand expected after some seconds; never less than now."""
        return self.rate + min(max(0.0, self.rise) * seconds, _STEEPEST * self.rate)


def pace(slots: Sequence[Slot], dispersion: float, *, falls: bool = False) -> Pace:
    """Return the pace after these slots, at least one.

    ``dispersion``: variance of a count over its mean. ``falls``: whether demand may fall on a line.
    """
    amount, seconds, taken = alike(slots, dispersion)
    rise, lasted = _trend(slots, slots[len(slots) - (taken + 1) // 2 :], dispersion, falls=falls)
    # A mean is the demand in the middle of its time, so half of the rise is added. The rise may be younger.
    rate = max(0.0, amount / seconds + rise * min(seconds, lasted) / 2.0)
    jump = 0.0
    if taken == 1 and len(slots) > 1 and not slots[-2].partial:  # the slot after a partial one shows all of a jump
        jump = max(0.0, rate - slots[-2].amount / slots[-2].seconds)
    return Pace(rate, sqrt(dispersion * max(rate, 0.5 / seconds) / seconds), rise, jump, seconds)


def _trend(slots: Sequence[Slot], newest: Sequence[Slot], dispersion: float, *, falls: bool) -> tuple[float, float]:
    """Return the steepest rise or fall, per second, and for how many seconds it has lasted; zeros if there is none.

    Its line must rise or fall by more than chance, and describe its window better than a jump between two means does.
    A fall has ended if the newest slots are above it by more than chance.
    """
    trend, lasted, end = 0.0, 0.0, slots[-1].at
    lately, came = sum(map(_seconds, newest)), sum(map(_amount, newest))
    highest = came / lately - _DIFFERENT * sqrt(dispersion * max(came, 0.5)) / lately
    inside = [slot for slot in slots if slot.at - slot.seconds > end - _TREND_SECONDS[-1] - 1.0]
    begun = [slot.at - slot.seconds for slot in inside]
    all_times = [slot.at - slot.seconds / 2.0 - end for slot in inside]
    all_rates = [slot.amount / slot.seconds for slot in inside]
    for window, fewest in zip(_TREND_SECONDS, _FEWEST, strict=True):
        first = bisect_right(begun, end - window - 1.0)
        length, count = sum(map(_seconds, inside[first:])), len(inside) - first
        if length < 0.8 * window:
            break
        if count < fewest:
            continue  # the cycles are long, so a longer window has enough slots
        times, rates = all_times[first:], all_rates[first:]
        middle, usual = sum(times) / count, sum(rates) / count
        spread = sum([(at - middle) ** 2 for at in times])
        slope = sum([(at - middle) * (rate - usual) for at, rate in zip(times, rates, strict=True)]) / spread
        deviation = sqrt(12.0 * dispersion * max(usual, 1.0 / length) / length) / length
        ended = slope < 0.0 and (not falls or usual - slope * (lately / 2.0 + middle) < highest)
        if ended or abs(slope) <= max(abs(trend), _CERTAIN * deviation):
            continue
        left_by_line = sum([(rate - usual) ** 2 for rate in rates]) - slope * slope * spread
        total, squares, before, left_by_jump = sum(rates), sum([rate * rate for rate in rates]), 0.0, inf
        for place in range(1, count):
            before += rates[place - 1]
            left = squares - before * before / place - (total - before) ** 2 / (count - place)
            left_by_jump = min(left_by_jump, left)
        if left_by_line < left_by_jump:
            trend, lasted = slope, length
    return trend, lasted


def alike(slots: Sequence[Slot], dispersion: float) -> tuple[float, float, int]:
    """Return the amount, the seconds and the number of the last slots that differ by no more than chance.

    A partial slot before the last is none of them: it shows less than the demand after its jump.
    """
    last = slots[-1]
    amount, seconds, taken = last.amount, last.seconds, 1
    while taken < len(slots):
        block = slots[max(0, len(slots) - 2 * taken) : len(slots) - taken]
        more, longer = sum(map(_amount, block)), sum(map(_seconds, block))
        pooled = max(amount + more, 1.0) / (seconds + longer)
        deviation = sqrt(dispersion * pooled * (1.0 / seconds + 1.0 / longer))
        changed = abs(amount / seconds - more / longer) > _DIFFERENT * deviation
        if changed or any(map(_partial, block)):
            break
        amount, seconds, taken = amount + more, seconds + longer, taken + len(block)
    return amount, seconds, taken


def dispersed(before: float, old: Slot, new: Slot) -> float:
    """Return the dispersion after one more slot: how far it differs from the one before, compared with pure chance."""
    pooled = (old.amount + new.amount) / (old.seconds + new.seconds)
    if pooled * min(old.seconds, new.seconds) < 1.0:
        return before
    gap = new.amount / new.seconds - old.amount / old.seconds
    surprise = gap * gap / (pooled * (1.0 / old.seconds + 1.0 / new.seconds))
    return max(1.0, before + _MEMORY * (min(_SURPRISE * before, surprise) - before))
