"""What a cycle teaches of capacity: k2 of each kind of engine, and a record per variant.

k2 is learned from engines that queue: the tokens they hold while computation, not memory, is what requests wait for. A
cycle adds one value per kind, the median over its queueing replicas, so that one odd pod does not speak for all. A
history is corrected upwards as soon as a replica holds more than its mean without queueing: it can do more than was
thought. (v0.5.1: a value per pod, never corrected, one history for all namespaces, GPU counts and tensor parallelism.)

Records outlive the replicas, so that a variant at zero can be judged. One that no longer describes the Deployment
(another accelerator, GPU count or incompatible arguments) is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wva.decide.analyze.tokens_arithmetic import (
    Workload,
    bucket_of,
    compute_bound,
    derived_capacity,
    effective,
    idle_capacity,
    median,
    memory_bound,
)
from wva.decide.analyze.tokens_readings import Reading, VariantReadings
from wva.model.capacity import (
    CapacityBasis,
    CapacityRecord,
    EngineKind,
    K2History,
    LearnedFrom,
)
from wva.model.policy import SaturationPolicy
from wva.model.variant import Variant, VariantKey

Histories = Mapping[EngineKind, K2History]
Records = Mapping[VariantKey, CapacityRecord]


@dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """What one replica of a variant carries, what that stands on, and how often k2 has been seen."""

    tokens: int
    basis: CapacityBasis
    observations: int = 0


@dataclass(frozen=True, slots=True)
class K2:
    """k2 of one engine: from this cycle if it has been observed in it, else from its history. 0: never seen."""

    tokens: int = 0
    observations: int = 0
    now: bool = False


def learn(
    histories: Histories, model: Sequence[VariantReadings], policy: SaturationPolicy, *, now: float
) -> dict[EngineKind, K2History]:
    """Return the histories with what this cycle's replicas teach."""
    seen: dict[EngineKind, list[Reading]] = {}
    for variant in model:
        for reading in variant.readings:
            kind = kind_of(variant.variant, reading)
            if kind is not None:
                seen.setdefault(kind, []).append(reading)
    learned = dict(histories)
    for kind, readings in seen.items():
        lesson = _lesson(learned.get(kind), readings, policy)
        if lesson:
            learned[kind] = learned.get(kind, K2History(kind, (), now)).append(lesson, now=now)
    return learned


def _lesson(history: K2History | None, readings: Sequence[Reading], policy: SaturationPolicy) -> int:
    """Return the value that a cycle adds to a history, 0 for none."""
    bound = [tokens for reading in readings if (tokens := compute_bound(reading.queue, reading.in_use, policy))]
    if bound:
        return median(bound)
    carried = max(reading.in_use for reading in readings)
    return carried if history is not None and carried > history.mean else 0


def kind_of(variant: Variant, reading: Reading) -> EngineKind | None:
    """Return the kind of an engine under its load, None while the length of the answers is not known."""
    if reading.workload is None:
        return None
    return EngineKind(*_engine(variant), bucket_of(reading.workload.output_tokens))


def _engine(variant: Variant) -> tuple[str, int, int]:
    parallel = 1 if variant.parameters is None else variant.parameters.tensor_parallel_size
    return variant.accelerator, variant.gpus_per_replica, parallel


@dataclass(frozen=True, slots=True)
class Estimator:
    """Judges the replicas of a model that report. Without ``derive`` only what has been observed bounds them."""

    histories: Histories
    policy: SaturationPolicy
    derive: bool

    def capacity(self, variant: VariantReadings) -> ReplicaCapacity:
        """Return the median over the replicas of a variant that has some."""
        judged = sorted(
            (self._replica(variant, reading) for reading in variant.readings),
            key=lambda replica: (replica.tokens, replica.basis),
        )
        middle = judged[(len(judged) - 1) // 2]
        return replace(middle, tokens=median([replica.tokens for replica in judged]))

    def _replica(self, variant: VariantReadings, reading: Reading) -> ReplicaCapacity:
        k2 = self._k2(variant.variant, reading)
        derived = derived_capacity(variant.variant.parameters, reading.workload or Workload()) if self.derive else 0
        tokens, basis = effective(
            memory_bound(reading.kv_tokens, self.policy),
            observed=k2.tokens if k2.now else 0,
            history=k2.tokens,
            derived=derived,
        )
        return ReplicaCapacity(tokens, basis, k2.observations)

    def _k2(self, variant: Variant, reading: Reading) -> K2:
        """Return k2; while the length of the answers is not known, the smallest that has been seen."""
        kind = kind_of(variant, reading)
        if kind is None:
            engine = _engine(variant)
            same = [
                history
                for kind, history in self.histories.items()
                if (kind.accelerator, kind.gpus_per_replica, kind.tensor_parallel_size) == engine
            ]
            least = min(same, key=lambda history: (history.mean, history.kind), default=None)
            return K2() if least is None else K2(least.mean, len(least.values))
        history = self.histories.get(kind)
        if history is None:
            return K2()
        bound = compute_bound(reading.queue, reading.in_use, self.policy) > 0
        return K2(history.mean, len(history.values), now=bound)


def updated_record(
    record: CapacityRecord | None, variant: Variant, *, found: tuple[ReplicaCapacity, int] | None, now: float
) -> CapacityRecord | None:
    """Return the record after a cycle. ``found`` is capacity and KV cache size of replicas that report, if any do.

    Without replicas a live record stays as it was and takes over the Deployment's parameters; one from a Deployment is
    read again.
    """
    parameters = variant.parameters
    if record is not None and not describes(record, variant):
        record = None
    if found is not None:
        known = record.parameters if parameters is None and record is not None else parameters
        capacity, kv_tokens = found
        return CapacityRecord(
            variant=variant.key,
            accelerator=variant.accelerator,
            gpus_per_replica=variant.gpus_per_replica,
            kv_tokens=kv_tokens,
            effective=capacity.tokens,
            learned_from=LearnedFrom.LIVE,
            updated=now,
            parameters=known,
        )
    if parameters is None:
        return record
    if record is not None and record.learned_from is LearnedFrom.LIVE:
        return replace(record, parameters=parameters)
    return CapacityRecord(
        variant=variant.key,
        accelerator=variant.accelerator,
        gpus_per_replica=variant.gpus_per_replica,
        kv_tokens=parameters.override_tokens,
        effective=parameters.batched_tokens,
        learned_from=LearnedFrom.DEPLOYMENT,
        updated=now,
        parameters=parameters,
    )


def describes(record: CapacityRecord, variant: Variant) -> bool:
    """Whether a record is about engines like those that the variant would start now."""
    if (record.accelerator, record.gpus_per_replica) != (variant.accelerator, variant.gpus_per_replica):
        return False
    if record.parameters is None or variant.parameters is None:
        return True
    return record.parameters.compatible(variant.parameters)


def idle(variant: Variant, records: Records, *, workload: Workload | None, policy: SaturationPolicy) -> ReplicaCapacity:
    """Return what a replica would carry of a variant of which none reports."""
    record = records.get(variant.key)
    tokens, basis = idle_capacity(
        record, workload=workload or Workload(), policy=policy, sibling=compatible_sibling(variant, records.values())
    )
    return ReplicaCapacity(tokens, basis)


def compatible_sibling(variant: Variant, records: Iterable[CapacityRecord]) -> CapacityRecord | None:
    """Return the record of another variant of the model with the same engines: a live one first, then by name."""
    parameters = variant.parameters
    if parameters is None:
        return None
    found = [
        record
        for record in records
        if record.variant != variant.key
        and record.effective > 0
        and record.parameters is not None
        and describes(record, variant)
    ]
    return min(found, key=lambda record: (record.learned_from is not LearnedFrom.LIVE, record.variant), default=None)
