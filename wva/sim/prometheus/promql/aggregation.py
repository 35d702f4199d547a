"""``sum by (a) (vector)`` and its relatives: they turn a vector into one element per group.

``topk`` and ``bottomk`` differ: they return some elements unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from wva.sim.prometheus.promql.errors import ExecutionError
from wva.sim.prometheus.promql.nodes import Aggregation
from wva.sim.prometheus.promql.values import (
    Labels,
    Signature,
    Vector,
    VectorElement,
    kahan_sum,
    largest,
    mean,
    signature,
    signature_without,
    smallest,
)
from wva.sim.prometheus.tsdb import NAME

_LIMIT = 2.0**63


def aggregate(aggregation: Aggregation, vector: Vector, *, parameter: float | None, time_ms: int) -> Vector:
    """Return the aggregated vector; ``parameter`` is the number of ``topk`` and ``bottomk``."""
    groups = _groups(aggregation, vector)
    if parameter is not None:
        return _extremes(aggregation.operator, groups, parameter)
    reduce = _REDUCTIONS[aggregation.operator]
    return [
        VectorElement(
            _group_labels(aggregation, members[0].labels), reduce([sample.value for sample in members]), time_ms
        )
        for members in groups.values()
    ]


def _groups(aggregation: Aggregation, vector: Vector) -> dict[Signature, Vector]:
    groups: dict[Signature, Vector] = {}
    if aggregation.without:
        excluded = frozenset((*aggregation.labels, NAME))
        for sample in vector:
            groups.setdefault(signature_without(sample.labels, excluded), []).append(sample)
    else:
        for sample in vector:
            groups.setdefault(signature(sample.labels, aggregation.labels), []).append(sample)
    return groups


def _group_labels(aggregation: Aggregation, labels: Labels) -> Labels:
    if aggregation.without:
        return {name: value for name, value in labels.items() if name not in aggregation.labels and name != NAME}
    return {name: labels[name] for name in aggregation.labels if labels.get(name)}


def _extremes(operator: str, groups: dict[Signature, Vector], parameter: float) -> Vector:
    """Return the first k of each group in order of value. NaN comes last in both orders."""
    if math.isnan(parameter):
        raise ExecutionError("Parameter value is NaN")
    if abs(parameter) >= _LIMIT:
        raise ExecutionError(f"Scalar value {parameter} overflows int64")
    count = max(int(parameter), 0)
    sign = -1.0 if operator == "topk" else 1.0
    return [
        sample
        for members in groups.values()
        for sample in sorted(members, key=lambda sample: (math.isnan(sample.value), sign * sample.value))[:count]
    ]


def _total(values: list[float]) -> float:
    total, compensation = kahan_sum(values)
    return total + compensation


_REDUCTIONS: dict[str, Callable[[list[float]], float]] = {
    "avg": mean,
    "count": lambda values: float(len(values)),
    "group": lambda _: 1.0,
    "max": largest,
    "min": smallest,
    "sum": _total,
}
AGGREGATIONS = frozenset({*_REDUCTIONS, "topk", "bottomk"})
