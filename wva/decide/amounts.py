"""Arithmetic with numbers from outside: every sum, quotient and rounding of them is finite, and none raises an error.

The collector lets no number in that cannot be true. Here the same holds for every input of ``decide``, so that a
recording or a memory cannot bring one in either: a sample beyond ``LARGEST`` is no measurement and counts as invalid, a
number of replicas or a threshold beyond its range is the nearest one of the range.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Final, TypeVar

from wva.decide.queueing.targets import Target
from wva.model.metrics import EngineSignals, ReplicaMetrics, Sample, SampleState
from wva.model.policy import QueueingPolicy, SaturationPolicy
from wva.model.snapshot import Snapshot
from wva.model.variant import Bounds, Variant
from wva.numbers import REPLICAS, Real, Whole

LARGEST: Final = 1e15
"""Of any amount that is measured or configured: products and sums of a few of them stay finite."""

AMPLE: Final = 1e30
"""Of any amount that is computed: more is wanted than any number of replicas carries."""

COUNTLESS: Final = 2**53
"""More replicas than anything can count, and the last number up to which floats have every whole number."""

AMOUNT: Final = Real(0, LARGEST)
_GPUS: Final = Whole(0, 1_000_000)

P = TypeVar("P", SaturationPolicy, QueueingPolicy, Target)


def rounded_up(replicas: float) -> int:
    """Return a quotient as a whole number of replicas, at most ``COUNTLESS``, and 0 for NaN."""
    if replicas < COUNTLESS:
        return math.ceil(replicas) if replicas > -COUNTLESS else -COUNTLESS
    return COUNTLESS if replicas >= COUNTLESS else 0


def rounded_down(replicas: float) -> int:
    """Return a quotient as a whole number of replicas that fit, at most ``COUNTLESS``."""
    return -rounded_up(-replicas)


def bounded_policy(policy: P) -> P:
    """Return a policy, or the targets that follow from it, with every number between 0 and ``LARGEST``."""
    numbers = {field.name: getattr(policy, field.name) for field in fields(policy) if field.type == "float"}
    lies = {name: min(max(0.0, number), LARGEST) for name, number in numbers.items() if AMOUNT.find(number) is None}
    return replace(policy, **lies) if lies else policy


def bounded_snapshot(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot of which every number can be calculated with; the same one, if that is so already."""
    variants = tuple(map(_variant, snapshot.variants))
    replicas = tuple(map(_replica, snapshot.replicas))
    queues = tuple(
        replace(queue, size=_sample(queue.size), size_bytes=_sample(queue.size_bytes)) for queue in snapshot.queues
    )
    return replace(snapshot, variants=variants, replicas=replicas, queues=queues)


def _replica(replica: ReplicaMetrics) -> ReplicaMetrics:
    kv, queue, engine = _sample(replica.kv_usage), _sample(replica.queue_length), replica.engine
    signals = None if engine is None else _engine(engine)
    if kv is replica.kv_usage and queue is replica.queue_length and signals is engine:
        return replica
    return replace(replica, kv_usage=kv, queue_length=queue, engine=signals)


_SIGNALS: Final = tuple(field.name for field in fields(EngineSignals))


def _engine(engine: EngineSignals) -> EngineSignals:
    lies = {
        name: sample for name in _SIGNALS if (sample := _sample(getattr(engine, name))) is not getattr(engine, name)
    }
    return replace(engine, **lies) if lies else engine


def _sample(sample: Sample) -> Sample:
    if sample.value is None or 0 <= sample.value <= LARGEST:
        return sample
    return Sample(SampleState.INVALID, timestamp=sample.timestamp, detail=f"{sample.value:g} is out of range")


def _variant(variant: Variant) -> Variant:
    bounds = variant.bounds
    bounded = replace(
        variant,
        cost=min(max(0.0, variant.cost), LARGEST),
        spec_replicas=REPLICAS.clamp(variant.spec_replicas),
        current_replicas=REPLICAS.clamp(variant.current_replicas),
        ready_replicas=REPLICAS.clamp(variant.ready_replicas),
        status_desired=REPLICAS.find(variant.status_desired),
        unschedulable_pods=REPLICAS.clamp(variant.unschedulable_pods),
        unplaced_pods=REPLICAS.clamp(variant.unplaced_pods),
        gpus_per_replica=_GPUS.clamp(variant.gpus_per_replica),
        bounds=Bounds(
            None if bounds.minimum is None else REPLICAS.clamp(bounds.minimum),
            None if bounds.maximum is None else REPLICAS.clamp(bounds.maximum),
            bounds.minimum_origin,
            bounds.maximum_origin,
            min(max(0.0, bounds.tolerance), 1.0),
        ),
    )
    return variant if bounded == variant else bounded
