"""Bounds for numbers from outside: within them every sum, quotient and rounding is finite, and none raises an error.

The collector refuses numbers that cannot be true, but a recording may hold some. So in every input of ``decide`` a
sample beyond ``LARGEST`` counts as invalid, and any other number out of its range becomes the nearest one in it.
"""

from __future__ import annotations

import math
from dataclasses import fields
from operator import attrgetter
from typing import Final, TypeVar

from wva.model.metrics import EngineSignals, ReplicaMetrics, Sample, SampleState
from wva.model.policy import QueueingPolicy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import Variant
from wva.numbers import REPLICAS, Whole

LARGEST: Final = 1e15
"""The largest amount that can be measured or configured: products and sums of a few of them stay finite."""

AMPLE: Final = 1e30
"""The largest amount that WVA computes: no number of replicas carries so much."""

COUNTLESS: Final = 2**53
"""More replicas than can exist. Floats represent every whole number up to this one."""

_GPUS: Final = Whole(0, 1_000_000)
_COUNTS: Final = (
    "spec_replicas",
    "current_replicas",
    "ready_replicas",
    "unschedulable_pods",
    "unplaced_pods",
    "failing_pods",
)
_NUMBERS: Final = {
    policy: [field.name for field in fields(policy) if field.type == "float"]
    for policy in (SaturationPolicy, QueueingPolicy)
}
_PREFERRED: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
_counts: Final = attrgetter(*_COUNTS)
_signals: Final = attrgetter(*EngineSignals.__struct_fields__)

P = TypeVar("P", SaturationPolicy, QueueingPolicy)


def rounded_up(replicas: float) -> int:
    """Return a quotient as a whole number of replicas, at most ``COUNTLESS``, and 0 for NaN."""
    if -COUNTLESS <= replicas <= COUNTLESS:
        return math.ceil(replicas)
    return 0 if math.isnan(replicas) else int(math.copysign(COUNTLESS, replicas))


def preferred(amount: float) -> float:
    """Return the next preferred number, so that words about what is learned stay the same in most cycles."""
    decade = 10.0 ** math.floor(math.log10(amount)) if amount > 0.0 else 0.0
    # People see the number, so it has no digits of chance at its end.
    steps = [float(f"{step * decade:.12g}") for step in (*_PREFERRED, 10.0)]
    return next((step for step in steps if step >= amount), steps[-1])


def replicas(count: int) -> str:
    """Return ``1 replica``, ``2 replicas``."""
    return f"{count} replica" if count == 1 else f"{count} replicas"


def bounded_policy(policy: P) -> P:
    """Return a policy with every number between 0 and ``LARGEST``."""
    numbers = [(name, getattr(policy, name)) for name in _NUMBERS[type(policy)]]
    clamped = {name: min(max(0.0, number), LARGEST) for name, number in numbers if not 0.0 <= number <= LARGEST}
    return replace(policy, **clamped) if clamped else policy


def bounded_snapshot(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with every number within its range."""
    queues = [
        replace(queue, size=_sample(queue.size), size_bytes=_sample(queue.size_bytes)) for queue in snapshot.queues
    ]
    variants, pods = tuple(map(_variant, snapshot.variants)), tuple(map(_replica, snapshot.replicas))
    return replace(snapshot, variants=variants, replicas=pods, queues=tuple(queues))


def _replica(pod: ReplicaMetrics) -> ReplicaMetrics:
    """Return a replica without impossible samples; the same object if nothing had to change."""
    signals = () if pod.engine is None else _signals(pod.engine)
    for sample in (pod.kv_usage, pod.queue_length, *signals):
        if sample.value is not None and not 0.0 <= sample.value <= LARGEST:
            engine = None if pod.engine is None else EngineSignals(*map(_sample, signals))
            return replace(pod, kv_usage=_sample(pod.kv_usage), queue_length=_sample(pod.queue_length), engine=engine)
    return pod


def _sample(sample: Sample) -> Sample:
    if sample.value is None or 0 <= sample.value <= LARGEST:
        return sample
    return Sample(SampleState.INVALID, timestamp=sample.timestamp, detail=f"{sample.value:g} is out of range")


def _variant(variant: Variant) -> Variant:
    """Return a variant with every number within its range; the same object if nothing had to change."""
    bounds = variant.bounds
    counts = [*_counts(variant), variant.status_desired or 0, bounds.minimum or 0, bounds.maximum or 0]
    if (
        min(counts) >= REPLICAS.minimum
        and max(counts) <= REPLICAS.maximum
        and _GPUS.minimum <= variant.gpus_per_replica <= _GPUS.maximum
        and 0.0 <= variant.cost <= LARGEST
        and 0.0 <= bounds.tolerance <= 1.0
    ):
        return variant
    return replace(
        variant,
        **{name: REPLICAS.clamp(getattr(variant, name)) for name in _COUNTS},
        status_desired=REPLICAS.find(variant.status_desired),
        cost=min(max(0.0, variant.cost), LARGEST),
        gpus_per_replica=_GPUS.clamp(variant.gpus_per_replica),
        bounds=replace(
            bounds,
            minimum=None if bounds.minimum is None else REPLICAS.clamp(bounds.minimum),
            maximum=None if bounds.maximum is None else REPLICAS.clamp(bounds.maximum),
            tolerance=min(max(0.0, bounds.tolerance), 1.0),
        ),
    )
