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
    lasted: float  # for how many seconds the rate has differed from now by no more than chance

    def at(self, seconds: float) -> float:
        """Return the demand expected after some seconds; never less than now."""
        return self.rate + min(max(0.0, self.rise) * seconds, _STEEPEST * self.rate)


def pace(slots: Sequence[Slot], dispersion: float, *, falls: bool = False) -> Pace:
    """Return the pace after these slots, at least one.

    ``dispersion``: variance of a count over its mean. ``falls``: whether demand may fall on a line.
    """
    amount, seconds, count = alike(slots, dispersion)
    rise, lasted = _trend(slots, slots[len(slots) - (count + 1) // 2 :], dispersion, falls=falls)
    # A mean is the demand in the middle of its time, so half of the rise is added. The rise may be younger.
    rate = max(0.0, amount / seconds + rise * min(seconds, lasted) / 2.0)
    jump = 0.0
    if count == 1 and len(slots) > 1 and not slots[-2].partial:  # the slot after a partial one shows all of a jump
        jump = max(0.0, rate - slots[-2].amount / slots[-2].seconds)
    return Pace(rate, sqrt(dispersion * max(rate, 0.5 / seconds) / seconds), rise, jump, seconds)


def _trend(slots: Sequence[Slot], newest: Sequence[Slot], dispersion: float, *, falls: bool) -> tuple[float, float]:
    """Return the steepest rise or fall, per second, and for how many seconds it has lasted; zeros if there is none.

    Its line must rise or fall by more than chance, and describe its window better than a jump between two means does.
    A fall has ended if the newest slots are above it by more than chance.
    """
    trend, lasted, end = 0.0, 0.0, slots[-1].at
    newest_seconds, newest_amount = sum(map(_seconds, newest)), sum(map(_amount, newest))
    lower_bound = (
        newest_amount / newest_seconds - _DIFFERENT * sqrt(dispersion * max(newest_amount, 0.5)) / newest_seconds
    )
    recent = [slot for slot in slots if slot.at - slot.seconds > end - _TREND_SECONDS[-1] - 1.0]
    starts = [slot.at - slot.seconds for slot in recent]
    all_times = [slot.at - slot.seconds / 2.0 - end for slot in recent]
    all_rates = [slot.amount / slot.seconds for slot in recent]
    for window, fewest in zip(_TREND_SECONDS, _FEWEST, strict=True):
        first = bisect_right(starts, end - window - 1.0)
        length, count = sum(map(_seconds, recent[first:])), len(recent) - first
        if length < 0.8 * window:
            break
        if count < fewest:
            continue  # the cycles are long, so a longer window has enough slots
        times, rates = all_times[first:], all_rates[first:]
        mean_time, mean_rate = sum(times) / count, sum(rates) / count
        spread = sum([(time - mean_time) ** 2 for time in times])
        slope = sum([(time - mean_time) * (rate - mean_rate) for time, rate in zip(times, rates, strict=True)]) / spread
        deviation = sqrt(12.0 * dispersion * max(mean_rate, 1.0 / length) / length) / length
        ended = slope < 0.0 and (not falls or mean_rate - slope * (newest_seconds / 2.0 + mean_time) < lower_bound)
        if ended or abs(slope) <= max(abs(trend), _CERTAIN * deviation):
            continue
        line_residual = sum([(rate - mean_rate) ** 2 for rate in rates]) - slope * slope * spread
        total, squares, sum_before, jump_residual = sum(rates), sum([rate * rate for rate in rates]), 0.0, inf
        for index in range(1, count):
            sum_before += rates[index - 1]
            residual = squares - sum_before * sum_before / index - (total - sum_before) ** 2 / (count - index)
            jump_residual = min(jump_residual, residual)
        if line_residual < jump_residual:
            trend, lasted = slope, length
    return trend, lasted


def alike(slots: Sequence[Slot], dispersion: float) -> tuple[float, float, int]:
    """Return the amount, the seconds and the number of the last slots that differ by no more than chance.

    A partial slot before the last one ends them: it shows less than the demand after its jump.
    """
    last = slots[-1]
    amount, seconds, count = last.amount, last.seconds, 1
    while count < len(slots):
        block = slots[max(0, len(slots) - 2 * count) : len(slots) - count]
        block_amount, block_seconds = sum(map(_amount, block)), sum(map(_seconds, block))
        pooled = max(amount + block_amount, 1.0) / (seconds + block_seconds)
        deviation = sqrt(dispersion * pooled * (1.0 / seconds + 1.0 / block_seconds))
        changed = abs(amount / seconds - block_amount / block_seconds) > _DIFFERENT * deviation
        if changed or any(map(_partial, block)):
            break
        amount, seconds, count = amount + block_amount, seconds + block_seconds, count + len(block)
    return amount, seconds, count


def dispersed(before: float, old: Slot, new: Slot) -> float:
    """Return the dispersion after one more slot: how far a slot differs from the one before, against pure chance."""
    pooled = (old.amount + new.amount) / (old.seconds + new.seconds)
    if pooled * min(old.seconds, new.seconds) < 1.0:
        return before
    gap = new.amount / new.seconds - old.amount / old.seconds
    surprise = gap * gap / (pooled * (1.0 / old.seconds + 1.0 / new.seconds))
    return max(1.0, before + _MEMORY * (min(_SURPRISE * before, surprise) - before))
