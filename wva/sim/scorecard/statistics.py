"""Means over seeds, with confidence intervals, and which of many differences are more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan, cos, pi, sin, sqrt
from statistics import fmean, stdev
from typing import Final

_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 97.5 % quantile of Student's t by degrees of freedom, from 1. More degrees than it has use the last: wider."""


CHANCE: Final = 0.05
"""The share of chance findings among differences that count as certain; of a single one, its probability."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean over seeds, and half of its 95 % confidence interval; None with a single seed, which has none.

    ``p_value``: how probable a mean so far from zero is if the true one is zero.
    """

    mean: float
    half_width: float | None
    seeds: int
    p_value: float | None = None


def estimate(values: Sequence[float]) -> Estimate:
    """Return the estimate from a value per seed. Raises ValueError without any."""
    if not values:
        raise ValueError("no seed has a value")
    count = len(values)
    if count == 1:
        return Estimate(float(values[0]), None, 1)
    quantile = _STUDENT[min(count - 1, len(_STUDENT)) - 1]
    mean, error = fmean(values), stdev(values) / sqrt(count)
    chance = two_sided(abs(mean) / error, count - 1) if error else float(mean == 0.0)
    return Estimate(mean, quantile * error, count, chance)


def estimate_of_known(values: Sequence[float | None]) -> Estimate | None:
    """Return the estimate from the seeds that have a value; None when no seed has one."""
    known = [value for value in values if value is not None]
    return estimate(known) if known else None


def two_sided(t: float, degrees: int) -> float:
    """Return how probable a value of Student's t outside of -t to t is, for t of at least 0.

    By the finite sums for whole degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = atan(t / sqrt(degrees))
    odd = degrees % 2
    term = cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for step in range(2 + odd, degrees - 1, 2):
        term *= cos(angle) ** 2 * (step - 1) / step
        total += term
    inside = (2.0 / pi) * (angle + sin(angle) * total) if odd else sin(angle) * total
    return min(1.0, max(0.0, 1.0 - inside))


def highest_certain(p_values: Sequence[float], *, chance: float = CHANCE) -> float:
    """Return the highest p-value of a difference that counts as certain, among all that were tested.

    By the procedure of Benjamini and Hochberg: of the differences that count, a share of ``chance`` at most is expected
    to be no difference. With several tests the result is below ``chance``; it is 0 where no difference stands out.
    """
    count = len(p_values)
    if not count:
        return chance
    ordered = enumerate(sorted(p_values), start=1)
    return max((value for rank, value in ordered if value <= chance * rank / count), default=0.0)
