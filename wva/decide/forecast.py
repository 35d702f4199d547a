"""The demand of a model over the last minutes -> its level now, with its error, and by how much it rises.

The level is the mean of as long a time before now as does not differ from the newest cycles by more than chance. So a
jump is believed in the cycle that shows it, and steady demand is averaged over many minutes. A rise counts only while a
line describes it better than a jump does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from operator import attrgetter
from typing import Final

from wva.model.demand import Slot

KEPT_SECONDS: Final = 1200.0
_DIFFERENT: Final = 2.6
"""Standard deviations between two means that are taken for a change."""
_TREND_SECONDS: Final = (180.0, 360.0, 720.0)
_FEWEST: Final = 6
_CERTAIN: Final = 2.5
"""A rise is believed that is so many times its standard error."""
_STEEPEST: Final = 1.0
"""A rise adds at most this share of the level."""
_SURPRISE: Final = 8.0
_MEMORY: Final = 0.05
_amount: Final = attrgetter("amount")
_seconds: Final = attrgetter("seconds")


@dataclass(frozen=True, slots=True)
class Pace:
    """Demand per second: now, with its standard error, and by how much it rises per second.

    ``jump`` is by how much the newest cycle was above the one before, where that is more than chance, else 0; ``mean``
    the mean of the time that counts.
    """

    rate: float
    error: float
    rise: float
    jump: float
    mean: float

    def at(self, seconds: float) -> float:
        """Return the demand to expect after some seconds; never less than now."""
        return self.rate + min(self.rise * seconds, _STEEPEST * self.rate)


def pace(slots: Sequence[Slot], dispersion: float) -> Pace:
    """Return the pace after these slots, at least one. ``dispersion``: variance of a count over its mean."""
    amount, seconds, taken = _alike(slots, dispersion)
    rise, since = _rise(slots, dispersion)
    # The mean is that of the middle of its time. The level may have lasted for longer than the rise.
    rate = amount / seconds + rise * min(seconds, since) / 2.0
    jump = 0.0
    if taken == 1 and len(slots) > 1:
        jump = max(0.0, rate - slots[-2].amount / slots[-2].seconds)
    return Pace(rate, sqrt(dispersion * max(rate, 0.5 / seconds) / seconds), rise, jump, amount / seconds)


def mean(slots: Sequence[Slot], dispersion: float) -> float:
    """Return the ``mean`` of the pace after these slots, at least one."""
    amount, seconds, _ = _alike(slots, dispersion)
    return amount / seconds


def _alike(slots: Sequence[Slot], dispersion: float) -> tuple[float, float, int]:
    """Return the amount, the seconds and the number of the last slots that differ by no more than chance."""
    last = slots[-1]
    amount, seconds, taken = last.amount, last.seconds, 1
    while taken < len(slots):
        block = slots[max(0, len(slots) - 2 * taken) : len(slots) - taken]
        more, longer = sum(map(_amount, block)), sum(map(_seconds, block))
        pooled = max(amount + more, 1.0) / (seconds + longer)
        deviation = sqrt(dispersion * pooled * (1.0 / seconds + 1.0 / longer))
        if abs(amount / seconds - more / longer) > _DIFFERENT * deviation:
            break
        amount, seconds, taken = amount + more, seconds + longer, taken + len(block)
    return amount, seconds, taken


def _rise(slots: Sequence[Slot], dispersion: float) -> tuple[float, float]:
    """Return the steepest rise that lasts, per second, and for how many seconds it has lasted; 0 without one.

    A line must describe its window better than a jump does, and rise by more than chance.
    """
    found, lasted, end = 0.0, 0.0, slots[-1].at
    inside = [slot for slot in slots if slot.at - slot.seconds > end - _TREND_SECONDS[-1] - 1.0]
    lengths = [slot.seconds for slot in inside]
    times = [slot.at - slot.seconds / 2.0 - end for slot in inside]
    rates = [slot.amount / slot.seconds for slot in inside]
    begun = [slot.at - slot.seconds for slot in inside]
    for window in _TREND_SECONDS:
        first = bisect_right(begun, end - window - 1.0)
        seconds, count = sum(lengths[first:]), len(inside) - first
        if count < _FEWEST or seconds < 0.8 * window:
            break
        shown = rates[first:]
        slope, spread = _line(times[first:], shown)
        deviation = sqrt(12.0 * dispersion * max(sum(shown) / count, 1.0 / seconds) / seconds) / seconds
        if slope > max(found, _CERTAIN * deviation) and _left(shown) - slope * slope * spread < _jump(shown):
            found, lasted = slope, seconds
    return found, lasted


def _line(times: Sequence[float], rates: Sequence[float]) -> tuple[float, float]:
    """Return the slope of the best line, and the squares of the times around their mean."""
    count = len(times)
    middle, usual = sum(times) / count, sum(rates) / count
    spread = sum([(at - middle) ** 2 for at in times])
    return sum([(at - middle) * (rate - usual) for at, rate in zip(times, rates, strict=True)]) / spread, spread


def _left(rates: Sequence[float]) -> float:
    """Return the squares of rates around their mean."""
    usual = sum(rates) / len(rates)
    return sum([(rate - usual) ** 2 for rate in rates])


def _jump(rates: Sequence[float]) -> float:
    """Return the squares that the best jump between two means leaves."""
    total, squares, count = sum(rates), sum([rate * rate for rate in rates]), len(rates)
    best, before = inf, 0.0
    for place in range(1, count):
        before += rates[place - 1]
        best = min(best, squares - before * before / place - (total - before) ** 2 / (count - place))
    return best


def dispersed(before: float, old: Slot, new: Slot) -> float:
    """Return the dispersion after a slot: how much it differs from the one before, against pure chance."""
    pooled = (old.amount + new.amount) / (old.seconds + new.seconds)
    if pooled * min(old.seconds, new.seconds) < 1.0:
        return before
    gap = new.amount / new.seconds - old.amount / old.seconds
    surprise = gap * gap / (pooled * (1.0 / old.seconds + 1.0 / new.seconds))
    return max(1.0, before + _MEMORY * (min(_SURPRISE * before, surprise) - before))
