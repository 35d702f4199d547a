"""A Prometheus histogram with constant cost per observation and weights.

Weights matter: a jump over 300 equal steps of 80 sequences observes one inter-token gap 24,000 times at once.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate


class Histogram:
    """Counts per bucket and the sum of what was observed."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Start empty. ``bounds`` are the upper bounds in rising order, without ``+Inf``."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, *, weight: int = 1) -> None:
        """Count ``value`` ``weight`` times. A value equal to a bound belongs to it (``le``)."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.total += value * weight

    def copy(self) -> Histogram:
        """Return an independent histogram with the same content."""
        twin = Histogram(self.bounds)
        twin.counts = self.counts.copy()
        twin.total = self.total
        return twin

    def cumulative(self) -> list[int]:
        """Return the counts as exposition wants them: each includes the ones before; the last is the count."""
        return list(accumulate(self.counts))


def one_two_five(limit: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50 ... up to ``limit``: vLLM's buckets for token counts."""
    bounds: list[float] = []
    power = 1
    while power <= limit:
        bounds.extend(float(mantissa * power) for mantissa in (1, 2, 5) if mantissa * power <= limit)
        power *= 10
    return tuple(bounds)
