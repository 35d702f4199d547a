"""The values of expressions, and the arithmetic of label sets that several kinds of expressions share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from wva.sim.prometheus.promql.errors import ExecutionError
from wva.sim.prometheus.tsdb import NAME

Labels = Mapping[str, str]
Signature = tuple[str, ...] | frozenset[tuple[str, str]]


class VectorElement(NamedTuple):
    """One element of an instant vector. ``time_ms`` is the stored time, which only ``timestamp()`` reads."""

    labels: Labels
    value: float
    time_ms: int


Vector = list[VectorElement]


@dataclass(frozen=True, slots=True)
class RangeElement:
    """One element of a range vector: the samples in ``(start, end]``, staleness markers left out."""

    labels: Labels
    times: list[int]
    values: list[float]
    start_ms: int
    end_ms: int


Matrix = list[RangeElement]
Value = float | str | Vector | Matrix


def without_name(labels: Labels) -> Labels:
    """Return the labels without the metric name, because the number is no longer that metric."""
    if NAME not in labels:
        return labels
    return {name: value for name, value in labels.items() if name != NAME}


def signature(labels: Labels, names: Iterable[str]) -> Signature:
    """Return the group key of a label set by ``names``; an absent label equals an empty one."""
    return tuple([labels.get(name, "") for name in names])


def signature_without(labels: Labels, names: frozenset[str]) -> Signature:
    """Return the group key of a label set by all labels but ``names``."""
    return frozenset([item for item in labels.items() if item[0] not in names])


def same_metric(vector: Iterable[VectorElement | RangeElement]) -> bool:
    """Tell whether all elements carry one metric name, so that dropping it cannot make two of them equal."""
    return len({element.labels.get(NAME, "") for element in vector}) <= 1


def require_unique(vector: Vector) -> Vector:
    """Return the vector if no label set occurs twice, else ExecutionError."""
    if len({frozenset(sample.labels.items()) for sample in vector}) < len(vector):
        raise ExecutionError("vector cannot contain metrics with the same labelset")
    return vector


def kahan_sum(values: Iterable[float]) -> tuple[float, float]:
    """Return the sum and its compensation (Neumaier), which the caller adds: the sum as Prometheus computes it."""
    total, compensation = 0.0, 0.0
    for value in values:
        new_total = total + value
        if new_total in (float("inf"), float("-inf")):
            compensation = 0.0
        elif abs(total) >= abs(value):
            compensation += (total - new_total) + value
        else:
            compensation += (value - new_total) + total
        total = new_total
    return total, compensation


def mean(values: list[float]) -> float:
    """Return the mean. Where the plain sum would overflow, it is computed step by step."""
    total, compensation = kahan_sum(values)
    if total not in (float("inf"), float("-inf")) or any(value in (float("inf"), float("-inf")) for value in values):
        return total / len(values) + compensation / len(values)
    result = 0.0
    for count, value in enumerate(values, start=1):
        result += value / count - result / count
    return result


def largest(values: Iterable[float]) -> float:
    """Return the maximum of the numbers among the values; NaN only if there is no number."""
    return max((value for value in values if value == value), default=float("nan"))  # noqa: PLR0124 - NaN test


def smallest(values: Iterable[float]) -> float:
    """Return the minimum of the numbers among the values; NaN only if there is no number."""
    return min((value for value in values if value == value), default=float("nan"))  # noqa: PLR0124 - NaN test
