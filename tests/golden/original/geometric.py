"""The waiting part of the chain in closed form: a truncated geometric sum, without cancellation at any load.

Beyond the batch the weights are w, w*r, ..., w*r^Q with r = load / highest service rate. The code uses y = |ln r| and
reverses the order for r > 1, so that every power is at most 1.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_SERIES: Final = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)
"""Coefficients of 1/expm1(t) - 1/t + 1/2 in t, t^3, t^5, ... (Bernoulli numbers over factorials)."""

_TINY: Final = 1e-290
"""Replaces 0 in quotients, whose limit at 0 is known."""

_SMALL: Final = 0.5
"""Below this exponent the series is used; its error there is below 1e-16 of the sum."""


def power_sum(y: Vector, terms: Vector) -> Vector:
    """Return the sum of exp(-k*y) for k = 0 .. terms - 1, for y >= 0; ``terms`` itself where y is 0."""
    safe = np.maximum(y, _TINY)
    sums: Vector = np.expm1(-terms * safe) / np.expm1(-safe)
    return sums


def mean_index(y: Vector, terms: Vector) -> Vector:
    """Return the mean k under the weights exp(-k*y), k = 0 .. terms - 1, for y >= 0."""
    exponent = terms * y
    near = exponent <= _SMALL
    safe = np.where(near, 1.0, y)
    with np.errstate(over="ignore"):  # beyond e^709 the quotient is 0, which is correct
        means: Vector = 1 / np.expm1(safe) - terms / np.expm1(terms * safe)
    if near.any():
        means[near] = (terms[near] - 1) / 2 - terms[near] * _series(exponent[near]) + _series(y[near])
    return means


def _series(t: Vector) -> Vector:
    square = t * t
    total = np.zeros_like(t)
    for coefficient in reversed(_SERIES):
        total = total * square + coefficient
    return total * t
