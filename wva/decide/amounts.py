"""Arithmetic with numbers from outside: every sum, quotient and rounding of them is finite, and none raises an error.

The collector lets no number in that cannot be true. Here the same holds for every input of ``decide``, so that a
recording or a memory cannot bring one in either: a sample beyond ``LARGEST`` is no measurement and counts as invalid, a
number of replicas or a threshold beyond its range is the nearest one of the range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
"""Of any amount that is measured or configured: products and sums of a few of them stay finite."""

AMPLE: Final = 1e30
"""Of any amount that is computed: more is wanted than any number of replicas carries."""

COUNTLESS: Final = 2**53
"""More replicas than anything can count, and the last number up to which floats have every whole number."""

_SIGNALS: Final = EngineSignals.__struct_fields__
_GPUS: Final = Whole(0, 1_000_000)

_NUMBERS: Final = {
    policy: [field.name for field in fields(policy) if field.type == "float"]
    for policy in (SaturationPolicy, QueueingPolicy)
}
_signals: Final = attrgetter(*_SIGNALS)

P = TypeVar("P", SaturationPolicy, QueueingPolicy)


def rounded_up(replicas: float) -> int:
    """Return a quotient as a whole number of replicas, at most ``COUNTLESS``, and 0 for NaN."""
    if -COUNTLESS <= replicas <= COUNTLESS:
        return math.ceil(replicas)
    return 0 if math.isnan(replicas) else int(math.copysign(COUNTLESS, replicas))


def bounded_policy(policy: P) -> P:
    """Return a policy with every number between 0 and ``LARGEST``."""
    lies = {}
    for name in _NUMBERS[type(policy)]:
        number = getattr(policy, name)
        if not 0.0 <= number <= LARGEST:
            lies[name] = min(max(0.0, number), LARGEST)
    return replace(policy, **lies) if lies else policy


def bounded_snapshot(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot of which every number can be calculated with; the same one, if that is so already."""
    variants, replicas = snapshot.variants, snapshot.replicas
    if not all(map(_usual, variants)):
        variants = tuple(map(_variant, variants))
    if not _all_usual(replicas):
        replicas = tuple(map(_replica, replicas))
    queues = [
        replace(queue, size=_sample(queue.size), size_bytes=_sample(queue.size_bytes)) for queue in snapshot.queues
    ]
    return replace(snapshot, variants=variants, replicas=replicas, queues=tuple(queues))


def _all_usual(replicas: Sequence[ReplicaMetrics]) -> bool:
    """Tell whether every sample can be calculated with."""
    for pod in replicas:
        signals = () if pod.engine is None else _signals(pod.engine)
        for sample in (pod.kv_usage, pod.queue_length, *signals):
            value = sample.value
            if value is not None and not 0.0 <= value <= LARGEST:
                return False
    return True


def _usual(variant: Variant) -> bool:
    """Tell whether every number of a variant is within its range."""
    bounds = variant.bounds
    counts = [variant.spec_replicas, variant.current_replicas, variant.ready_replicas, variant.status_desired or 0]
    counts += [variant.unschedulable_pods, variant.unplaced_pods, bounds.minimum or 0, bounds.maximum or 0]
    return (
        min(counts) >= REPLICAS.minimum
        and max(counts) <= REPLICAS.maximum
        and _GPUS.minimum <= variant.gpus_per_replica <= _GPUS.maximum
        and 0.0 <= variant.cost <= LARGEST
        and 0.0 <= bounds.tolerance <= 1.0
    )


def _replica(replica: ReplicaMetrics) -> ReplicaMetrics:
    kv, queue, engine = _sample(replica.kv_usage), _sample(replica.queue_length), replica.engine
    if engine is not None:
        engine = replace(engine, **{name: _sample(getattr(engine, name)) for name in _SIGNALS})
    return replace(replica, kv_usage=kv, queue_length=queue, engine=engine)


def _sample(sample: Sample) -> Sample:
    if sample.value is None or 0 <= sample.value <= LARGEST:
        return sample
    return Sample(SampleState.INVALID, timestamp=sample.timestamp, detail=f"{sample.value:g} is out of range")


def _variant(variant: Variant) -> Variant:
    bounds = variant.bounds
    return replace(
        variant,
        cost=min(max(0.0, variant.cost), LARGEST),
        spec_replicas=REPLICAS.clamp(variant.spec_replicas),
        current_replicas=REPLICAS.clamp(variant.current_replicas),
        ready_replicas=REPLICAS.clamp(variant.ready_replicas),
        status_desired=REPLICAS.find(variant.status_desired),
        unschedulable_pods=REPLICAS.clamp(variant.unschedulable_pods),
        unplaced_pods=REPLICAS.clamp(variant.unplaced_pods),
        gpus_per_replica=_GPUS.clamp(variant.gpus_per_replica),
        bounds=replace(
            bounds,
            minimum=None if bounds.minimum is None else REPLICAS.clamp(bounds.minimum),
            maximum=None if bounds.maximum is None else REPLICAS.clamp(bounds.maximum),
            tolerance=min(max(0.0, bounds.tolerance), 1.0),
        ),
    )
