"""Operators between two vectors, or a vector and a number.

Elements of two vectors meet by their match group: the labels named by ``on``, or all but those named by ``ignoring``
and the metric name. The ``one`` side may have one element per group only. Arithmetic drops the metric name; a
comparison without ``bool`` filters the left side and keeps the name.
"""

from __future__ import annotations

from collections.abc import Callable

from wva.sim.prometheus.promql.arithmetic import ARITHMETIC, COMPARISONS
from wva.sim.prometheus.promql.errors import ExecutionError
from wva.sim.prometheus.promql.nodes import Binary, Cardinality, Matching
from wva.sim.prometheus.promql.values import (
    Labels,
    Signature,
    Vector,
    VectorElement,
    require_unique,
    same_metric,
    signature,
    signature_without,
    without_name,
)
from wva.sim.prometheus.tsdb import NAME


def numbers(node: Binary, left: float, right: float) -> float:
    """Return the result between two scalars; a comparison gives 0 or 1."""
    compute = ARITHMETIC.get(node.operator)
    return compute(left, right) if compute is not None else float(COMPARISONS[node.operator](left, right))


def vector_and_number(node: Binary, vector: Vector, number: float, *, number_is_left: bool) -> Vector:
    """Return each element combined with the number, or those elements for which a comparison holds."""
    drop_name = node.operator in ARITHMETIC or node.return_bool
    result: Vector = []
    for sample in vector:
        pair = (number, sample.value) if number_is_left else (sample.value, number)
        value = _combine(node, pair, value=sample.value)
        if value is not None:
            result.append(
                VectorElement(without_name(sample.labels) if drop_name else sample.labels, value, sample.time_ms)
            )
    return require_unique(result) if drop_name and not same_metric(vector) else result


def _combine(node: Binary, pair: tuple[float, float], *, value: float) -> float | None:
    """Return the number of one pair, None if a comparison filters it out."""
    compute = ARITHMETIC.get(node.operator)
    if compute is not None:
        return compute(*pair)
    holds = COMPARISONS[node.operator](*pair)
    if node.return_bool:
        return float(holds)
    return value if holds else None


def _grouping(matching: Matching) -> Callable[[Labels], Signature]:
    if matching.on:
        return lambda labels: signature(labels, matching.labels)
    ignored = frozenset((*matching.labels, NAME))
    return lambda labels: signature_without(labels, ignored)


def set_operation(node: Binary, left: Vector, right: Vector) -> Vector:
    """Return the elements of both sides that ``and``, ``or`` or ``unless`` keeps."""
    group = _grouping(node.matching)
    if node.operator == "or":
        present = {group(sample.labels) for sample in left}
        return left + [sample for sample in right if group(sample.labels) not in present]
    present = {group(sample.labels) for sample in right}
    keep_present = node.operator == "and"
    return [sample for sample in left if (group(sample.labels) in present) is keep_present]


def two_vectors(node: Binary, left: Vector, right: Vector) -> Vector:
    """Return the combined pairs; ExecutionError where a group does not tell which elements form a pair.

    Therefore no label set can occur twice in the result.
    """
    if not left or not right:
        return []
    swapped = node.matching.cardinality is Cardinality.ONE_TO_MANY
    many, one = (right, left) if swapped else (left, right)
    group = _grouping(node.matching)
    partners = _partners(one, group, side="left" if swapped else "right")
    matched: set[tuple[Signature, Signature]] = set()
    result: Vector = []
    for sample in many:
        key = group(sample.labels)
        partner = partners.get(key)
        if partner is None:
            continue
        pair = (partner.value, sample.value) if swapped else (sample.value, partner.value)
        value = _combine(node, pair, value=pair[0])
        if value is None:
            continue
        labels = _pair_labels(node, sample.labels, partner.labels)
        _require_first(node.matching, key, labels, matched)
        result.append(VectorElement(labels, value, sample.time_ms))
    return result


def _partners(one: Vector, group: Callable[[Labels], Signature], *, side: str) -> dict[Signature, VectorElement]:
    partners: dict[Signature, VectorElement] = {}
    for sample in one:
        key = group(sample.labels)
        if key in partners:
            raise ExecutionError(
                f"found duplicate series for the match group on the {side} hand-side of the operation: "
                f"[{_show(sample.labels)}, {_show(partners[key].labels)}];many-to-many matching not allowed: "
                "matching labels must be unique on one side"
            )
        partners[key] = sample
    return partners


def _require_first(
    matching: Matching, key: Signature, labels: Labels, matched: set[tuple[Signature, Signature]]
) -> None:
    explicit = matching.cardinality is not Cardinality.ONE_TO_ONE
    entry = (key, frozenset(labels.items()) if explicit else ())
    if entry in matched:
        raise ExecutionError(
            "multiple matches for labels: grouping labels must ensure unique matches"
            if explicit
            else "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
        )
    matched.add(entry)


def _pair_labels(node: Binary, many: Labels, one: Labels) -> Labels:
    matching = node.matching
    labels = dict(many)
    if node.operator in ARITHMETIC or node.return_bool:
        labels.pop(NAME, None)
    if matching.cardinality is Cardinality.ONE_TO_ONE:
        labels = {name: value for name, value in labels.items() if (name in matching.labels) is matching.on}
    for name in matching.include:
        labels.pop(name, None)
        if value := one.get(name):
            labels[name] = value
    return labels


def _show(labels: Labels) -> str:
    pairs = ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items()) if name != NAME)
    return f"{labels.get(NAME, '')}{{{pairs}}}"
