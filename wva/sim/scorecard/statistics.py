"""Means over seeds, with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Final

_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 97.5 % quantile of Student's t by degrees of freedom, from 1. More degrees than it has use the last: wider."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean over seeds, and half of its 95 % confidence interval; None with a single seed, which has none."""

    mean: float
    half_width: float | None
    seeds: int

    @property
    def certain(self) -> bool:
        """Whether the interval lies on one side of zero; a single seed is taken at its word."""
        return self.half_width is None or abs(self.mean) > self.half_width


def estimate(values: Sequence[float]) -> Estimate:
    """Return the estimate from a value per seed. Raises ValueError without any."""
    if not values:
        raise ValueError("no seed has a value")
    count = len(values)
    if count == 1:
        return Estimate(float(values[0]), None, 1)
    quantile = _STUDENT[min(count - 1, len(_STUDENT)) - 1]
    return Estimate(fmean(values), quantile * stdev(values) / sqrt(count), count)


def estimate_of_known(values: Sequence[float | None]) -> Estimate | None:
    """Return the estimate from the seeds that have a value; None when no seed has one."""
    known = [value for value in values if value is not None]
    return estimate(known) if known else None
