"""``histogram_quantile`` over the buckets of classic histograms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby

from wva.sim.prometheus.promql.values import (
    Signature,
    Vector,
    VectorElement,
    require_unique,
    signature_without,
    without_name,
)

_BOUND = "le"
_GROUPED_WITHOUT = frozenset((_BOUND,))
_TOLERANCE = 1e-12
_FEWEST = 2

Bucket = tuple[float, float]


def histogram_quantile(quantile: float, vector: Vector, *, time_ms: int) -> Vector:
    """Return one quantile per histogram; elements without a numeric ``le`` are not buckets and are left out."""
    histograms: dict[Signature, list[Bucket]] = {}
    members: dict[Signature, VectorElement] = {}
    for sample in vector:
        bound = _bound(sample)
        if bound is not None:
            key = signature_without(sample.labels, _GROUPED_WITHOUT)
            histograms.setdefault(key, []).append((bound, sample.value))
            members.setdefault(key, sample)
    result = [
        VectorElement(
            {name: value for name, value in without_name(members[key].labels).items() if name != _BOUND},
            bucket_quantile(quantile, buckets),
            time_ms,
        )
        for key, buckets in histograms.items()
    ]
    return require_unique(result)


def _bound(sample: VectorElement) -> float | None:
    try:
        return float(sample.labels.get(_BOUND, ""))
    except ValueError:
        return None


def bucket_quantile(quantile: float, buckets: Iterable[Bucket]) -> float:
    """Return the quantile of ``(upper bound, cumulative count)`` pairs, linear within the bucket it falls into."""
    if math.isnan(quantile):
        return math.nan
    if not 0 <= quantile <= 1:
        return math.copysign(math.inf, quantile)
    ordered = _monotonic(_merged(buckets))
    if ordered[-1][0] != math.inf or len(ordered) < _FEWEST or ordered[-1][1] == 0:
        return math.nan
    rank = quantile * ordered[-1][1]
    index = next((i for i, (_, count) in enumerate(ordered[:-1]) if count >= rank), len(ordered) - 1)
    if index == len(ordered) - 1:
        return ordered[-2][0]
    bound, count = ordered[index]
    if index == 0 and bound <= 0:
        return bound
    start, below = ordered[index - 1] if index > 0 else (0.0, 0.0)
    return start + (bound - start) * _ratio(rank - below, count - below)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole != 0 else math.nan


def _merged(buckets: Iterable[Bucket]) -> list[Bucket]:
    """Return the buckets in order, with the counts of equal bounds added up."""
    ordered = sorted(buckets, key=lambda bucket: bucket[0])
    return [
        (bound, sum(count for _, count in equal_bounds))
        for bound, equal_bounds in groupby(ordered, key=lambda bucket: bucket[0])
    ]


def _monotonic(buckets: list[Bucket]) -> list[Bucket]:
    """Return the buckets with counts that never fall; differences within rounding errors count as none."""
    result: list[Bucket] = []
    previous = buckets[0][1]
    for bound, count in buckets:
        if count > previous and not math.isclose(count, previous, rel_tol=_TOLERANCE, abs_tol=0.0):
            previous = count
        result.append((bound, previous))
    return result
