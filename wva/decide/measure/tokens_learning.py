"""What a replica carries in tokens, and what a cycle teaches of it: k2 per kind of engine, a record per variant.

A replica carries the smaller of k1, the tokens that may be in its KV cache, and k2, the tokens that it holds while
computation, not memory, is what requests wait for. k2 is learned from engines that queue. A cycle adds one value per
kind, the median over its queueing replicas, so that one odd pod does not speak for all. A history is corrected upwards
as soon as a replica holds more than its mean without queueing: it can do more than was thought. (v0.5.1: a value per
pod, never corrected, one history for all namespaces, GPU counts and tensor parallelism.)

Records outlive the replicas, so that a variant at zero can be judged. One that no longer describes the Deployment
(another accelerator, GPU count or incompatible arguments) is replaced.

The formulas are those of docs/token-analyzer.md#the-formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from wva.decide.measure.tokens_readings import UNKNOWN, Carried, Reading, VariantTokens, Workload
from wva.model.capacity import (
    CapacityBasis,
    CapacityRecord,
    EngineKind,
    K2History,
    LearnedCapacity,
    LearnedFrom,
    LengthBucket,
)
from wva.model.policy import SaturationPolicy
from wva.model.records import replace
from wva.model.variant import Variant
from wva.model.vllm_parameters import VllmParameters

SHORT_ANSWER: Final = 100.0
MEDIUM_ANSWER: Final = 500.0

Histories = Mapping[EngineKind, K2History]


def learn(
    known: LearnedCapacity,
    model: Sequence[VariantTokens],
    typical: Workload | None,
    policy: SaturationPolicy,
    *,
    derive: bool,
    now: float,
) -> tuple[list[VariantTokens], LearnedCapacity]:
    """Return the variants with what a replica of each carries, and what is known after a cycle.

    Without ``derive`` only what has been observed bounds the replicas that report. ``now`` is in seconds since the
    epoch.
    """
    histories = _taught({history.kind: history for history in known.histories}, model, policy, now)
    records = {record.variant: record for record in known.records}
    live = [_judged(each, histories, policy, derive=derive) for each in model]
    for each, found in zip(model, live, strict=True):
        variant, size = each.progress.variant, median([reading.kv_tokens for reading in each.readings])
        record = _updated(records.pop(variant.key, None), variant, found, size, now)
        if record is not None:
            records[variant.key] = record
    judged = []
    for each, found in zip(model, live, strict=True):
        variant, workload = each.progress.variant, typical or Workload()
        sibling = None if found else compatible_sibling(variant, records.values())
        carried = found or idle_capacity(records.get(variant.key), workload=workload, policy=policy, sibling=sibling)
        judged.append(replace(each, carried=carried))
    after = LearnedCapacity(
        known.model,
        known.since,
        tuple(records[key] for key in sorted(records)),
        tuple(histories[kind] for kind in sorted(histories)),
    )
    return judged, after


# What a replica carries


def memory_bound(kv_tokens: int, policy: SaturationPolicy) -> int:
    """Return k1: the tokens that may be in the KV cache before it counts as full."""
    return int(kv_tokens * policy.kv_cache_threshold)


def compute_bound(queue: float, tokens_in_use: float, policy: SaturationPolicy) -> int:
    """Return k2 as seen now: the tokens in use while requests queue, 0 when this says nothing about computation."""
    return int(tokens_in_use) if queue >= policy.queue_length_threshold else 0


def derived_capacity(parameters: VllmParameters | None, workload: Workload) -> int:
    """Return what the arguments of an engine let it carry of a workload; 0 when they do not tell.

    At a time B tokens are computed per step and S sequences run; on the average half of an answer is there.
    """
    output = workload.output_tokens
    if parameters is None or output <= 0:
        return 0
    running = parameters.batched_tokens * output / (workload.input_tokens + output)
    sequences = min(running, float(parameters.max_num_seqs))
    return max(0, int(sequences * (workload.input_tokens + output / 2)))


def effective(k1: int, *, observed: int = 0, history: int = 0, derived: int = 0) -> tuple[int, CapacityBasis]:
    """Return the smaller of k1 and k2, k2 being the first that is known of the three; and which one it is."""
    bases = (CapacityBasis.OBSERVED, CapacityBasis.HISTORY, CapacityBasis.DERIVED)
    for k2, basis in zip((observed, history, derived), bases, strict=True):
        if k2 > 0:
            return (k2, basis) if k2 < k1 else (k1, CapacityBasis.KV_CACHE)
    return k1, CapacityBasis.KV_CACHE


def median(values: Sequence[int]) -> int:
    """Return the median; of an even number the mean of the middle two, rounded down. 0 without values."""
    ordered, middle = sorted(values), len(values) // 2
    if not ordered:
        return 0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def _judged(variant: VariantTokens, histories: Histories, policy: SaturationPolicy, *, derive: bool) -> Carried | None:
    """Return the median over the replicas of a variant, None without any."""
    judged = []
    for reading in variant.readings:
        history = _history(variant.progress.variant, reading, histories)
        mean, seen = (0, 0) if history is None else (history.mean, len(history.values))
        bound = reading.workload is not None and compute_bound(reading.queue, reading.in_use, policy) > 0
        workload = reading.workload or Workload()
        tokens, basis = effective(
            memory_bound(reading.kv_tokens, policy),
            observed=mean if bound else 0,
            history=mean,
            derived=derived_capacity(variant.progress.variant.parameters, workload) if derive else 0,
        )
        judged.append(Carried(tokens, basis, seen))
    judged.sort(key=lambda one: (one.tokens, one.basis))
    tokens = median([one.tokens for one in judged])
    return judged[(len(judged) - 1) // 2]._replace(tokens=tokens) if judged else None


def _history(variant: Variant, reading: Reading, histories: Histories) -> K2History | None:
    """Return what is known of k2; while the length of the answers is not known, the smallest that has been seen."""
    if reading.workload is not None:
        return histories.get(kind_of(variant, reading.workload))
    engine = kind_of(variant, Workload())
    same = [each for kind, each in histories.items() if replace(kind, bucket=engine.bucket) == engine]
    return min(same, key=lambda history: (history.mean, history.kind), default=None)


def idle_capacity(
    record: CapacityRecord | None, *, workload: Workload, policy: SaturationPolicy, sibling: CapacityRecord | None
) -> Carried:
    """Return what a replica of a variant without usable replicas would carry, from its record.

    ``sibling`` is the record of another variant with compatible engines, None when there is none.
    """
    if record is None:
        return UNKNOWN
    if record.effective <= 0:
        return UNKNOWN if sibling is None else Carried(sibling.effective, CapacityBasis.BORROWED)
    derived = derived_capacity(record.parameters, workload)
    if record.learned_from is LearnedFrom.LIVE or derived <= 0:
        return Carried(record.effective, CapacityBasis.RECORD)
    bounds = [Carried(derived, CapacityBasis.DERIVED)]
    if record.kv_tokens > 0:
        bounds.append(Carried(memory_bound(record.kv_tokens, policy), CapacityBasis.KV_CACHE))
    if sibling is not None and sibling.learned_from is LearnedFrom.LIVE and sibling.effective > 0:
        bounds.append(Carried(sibling.effective, CapacityBasis.BORROWED))
    return min(bounds, key=lambda bound: bound.tokens)


# What a cycle teaches


def kind_of(variant: Variant, workload: Workload) -> EngineKind:
    """Return the kind of an engine under its load."""
    parallel = 1 if variant.parameters is None else variant.parameters.tensor_parallel_size
    return EngineKind(variant.accelerator, variant.gpus_per_replica, parallel, bucket_of(workload.output_tokens))


def bucket_of(output_tokens: float) -> LengthBucket:
    """Return which answers are equally long."""
    if output_tokens < SHORT_ANSWER:
        return LengthBucket.SHORT
    return LengthBucket.MEDIUM if output_tokens < MEDIUM_ANSWER else LengthBucket.LONG


def _taught(histories: Histories, model: Sequence[VariantTokens], policy: SaturationPolicy, now: float) -> Histories:
    """Return the histories with what this cycle's replicas teach."""
    seen: dict[EngineKind, list[Reading]] = {}
    for variant in model:
        for reading in variant.readings:
            if reading.workload is not None:
                seen.setdefault(kind_of(variant.progress.variant, reading.workload), []).append(reading)
    taught = dict(histories)
    for kind, readings in seen.items():
        history = histories.get(kind, K2History(kind, (), now))
        bound = [tokens for each in readings if (tokens := compute_bound(each.queue, each.in_use, policy))]
        carried = max(reading.in_use for reading in readings)
        if bound:
            taught[kind] = history.append(median(bound), now=now)
        elif history.values and carried > history.mean:
            taught[kind] = history.append(carried, now=now)
    return taught


def _updated(
    record: CapacityRecord | None, variant: Variant, found: Carried | None, kv_tokens: int, now: float
) -> CapacityRecord | None:
    """Return the record after a cycle. ``found`` and ``kv_tokens`` are of replicas that report, None if none does.

    Without replicas a live record stays as it was and takes over the Deployment's parameters; one from a Deployment is
    read again.
    """
    parameters, source = variant.parameters, LearnedFrom.LIVE
    if record is not None and not describes(record, variant):
        record = None
    if found is not None:
        tokens = found.tokens
        parameters = record.parameters if parameters is None and record is not None else parameters
    elif parameters is None:
        return record
    elif record is not None and record.learned_from is LearnedFrom.LIVE:
        return replace(record, parameters=parameters)
    else:
        tokens, kv_tokens, source = parameters.batched_tokens, parameters.override_tokens, LearnedFrom.DEPLOYMENT
    kind = (variant.accelerator, variant.gpus_per_replica)
    return CapacityRecord(variant.key, *kind, kv_tokens, tokens, source, now, parameters)


def describes(record: CapacityRecord, variant: Variant) -> bool:
    """Whether a record is about engines like those that the variant would start now."""
    if (record.accelerator, record.gpus_per_replica) != (variant.accelerator, variant.gpus_per_replica):
        return False
    if record.parameters is None or variant.parameters is None:
        return True
    return record.parameters.compatible(variant.parameters)


def compatible_sibling(variant: Variant, records: Iterable[CapacityRecord]) -> CapacityRecord | None:
    """Return the record of another variant of the model with the same engines: a live one first, then by name."""
    if variant.parameters is None:
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
