"""When requests arrive, given a rate over time.

A renewal process in operational time (one unit of it is one expected request) is mapped to seconds by the inverse of
the cumulated rate, which is exact for rates that are linear between points. Exponential gaps make a Poisson
process; Gamma gaps of a shape below 1 make requests come in clumps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.sim.traffic import rates
from wva.sim.traffic.rates import RateProfile

Floats = NDArray[np.float64]
Gaps = Callable[[np.random.Generator, int], Floats]
"""Draws that many gaps of mean 1."""

MAXIMUM_REQUESTS: Final = 50_000_000
"""Their columns take 3 GiB."""


def poisson(generator: np.random.Generator, profile: RateProfile, *, duration_seconds: float) -> Floats:
    """Return the arrival seconds of a Poisson process."""
    return renewal(
        generator,
        profile,
        duration_seconds=duration_seconds,
        gaps=lambda source, count: source.standard_exponential(count),
    )


def gamma(generator: np.random.Generator, profile: RateProfile, *, duration_seconds: float, shape: float) -> Floats:
    """Return the arrival seconds of a renewal process with Gamma gaps; their coefficient of variation is shape^-0.5."""
    return renewal(
        generator,
        profile,
        duration_seconds=duration_seconds,
        gaps=lambda source, count: source.standard_gamma(shape, count) / shape,
    )


def renewal(generator: np.random.Generator, profile: RateProfile, *, duration_seconds: float, gaps: Gaps) -> Floats:
    """Return arrival seconds in rising order, all before the duration.

    The gaps are drawn one after the other, so that a higher rate of the same seed has the same gaps, only more of them.

    Raises:
        ValueError: more than ``MAXIMUM_REQUESTS`` are expected.

    """
    at, heights = rates.within(profile, duration_seconds=duration_seconds)
    spans = np.diff(at)
    pieces = spans * (heights[1:] + heights[:-1]) / 2.0
    cumulated = np.concatenate(([0.0], np.cumsum(pieces)))
    if cumulated[-1] > MAXIMUM_REQUESTS:
        raise ValueError(f"{cumulated[-1]:.0f} requests are expected: at most {MAXIMUM_REQUESTS} fit into memory")
    expected = _operational(generator, until=float(cumulated[-1]), gaps=gaps)

    # Both arrays are sorted: a search for the few points among the many requests gives the piece of each request.
    firsts = np.searchsorted(expected, cumulated, side="right")
    inside = np.diff(firsts)
    slopes = np.divide(np.diff(heights), spans, out=np.zeros_like(spans), where=spans > 0.0)
    # The first root of rate * t + slope * t^2 / 2 = left, in the form that is stable for a slope near 0:
    # t = 2 left / (rate + sqrt(rate^2 + 2 slope left)). In place, because there may be millions.
    left = expected[firsts[0] : firsts[-1]]
    left -= np.repeat(cumulated[:-1], inside)
    left *= 2.0
    root = np.repeat(slopes, inside)
    root *= left
    root += np.repeat(heights[:-1] ** 2, inside)
    np.sqrt(np.maximum(root, 0.0, out=root), out=root)
    root += np.repeat(heights[:-1], inside)
    np.divide(left, root, out=left, where=root > 0.0)
    left += np.repeat(at[:-1], inside)
    np.clip(left, 0.0, np.nextafter(duration_seconds, 0.0), out=left)
    return np.asarray(np.maximum.accumulate(left, out=left))


def _operational(generator: np.random.Generator, *, until: float, gaps: Gaps) -> Floats:
    """Return the sums of gaps that are below ``until``."""
    if until <= 0.0:
        return np.empty(0)
    parts = []
    reached = 0.0
    while reached < until:
        ahead = until - reached
        sums = reached + np.cumsum(gaps(generator, int(ahead + 4.0 * np.sqrt(ahead)) + 16))
        parts.append(sums)
        reached = float(sums[-1])
    sums = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return np.asarray(sums[: np.searchsorted(sums, until)])
