"""The token analyzer: what the replicas of a model hold and queue, against what they carry. All amounts in tokens.

docs/token-analyzer.md has the formulas and their reasons. In this order: what the replicas hold (``read``), what they
carry and what a cycle teaches of that (``learn``), and what the model needs (``measure``).

A replica can be judged when its KV usage, its queue length and the size of its KV cache are fresh. The length of its
requests may be missing, because no request may have finished lately. Then the mean of the model is used. Without such a
mean the length of the waiting requests is unknown, which is not the same as 0. A replica that cannot be judged counts
as busy as the others, never as idle. Growth needs some evidence. A shrink needs all evidence: every replica must be
judged, and no replica may be under way.

A replica carries the smaller of k1, the tokens that may be in its KV cache, and k2, the tokens that it holds while
requests wait for computation and not for memory. Records outlive the replicas, so that a variant at zero can be judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from wva.decide.amounts import AMPLE
from wva.decide.amounts import replicas as replicas_in_words
from wva.decide.measure.need import Capacity, Need
from wva.decide.progress import Progress
from wva.decide.trust import ModelReadings, VariantReadings, absence
from wva.model.decision import Reason
from wva.model.memory import (
    CapacityBasis,
    CapacityRecord,
    EngineKind,
    K2History,
    LearnedCapacity,
    LearnedFrom,
    LengthBucket,
    Memory,
)
from wva.model.metrics import EngineSignals, ReplicaMetrics, Sample, SampleState
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import SchedulerQueue
from wva.model.trouble import Absence
from wva.model.variant import Variant
from wva.model.vllm_parameters import VllmParameters

UNIT: Final = "tokens"
RELEARNING_SECONDS: Final = 300.0
"""For so long after it first sees a model, WVA overestimates engines that computation limits. So nothing shrinks,
estimates from arguments are left out, and growth takes one replica at a time."""
FIRM_OBSERVATIONS: Final = 3  # with an estimate, or a k2 that was seen less often, one replica comes or goes at a time
SHORT_ANSWER: Final = 100.0
MEDIUM_ANSWER: Final = 500.0
BYTES_PER_TOKEN: Final = 4
_NO_ENGINE: Final = EngineSignals()
_DRAINING: Final = 0.9  # a queue below this share of the last minute's peak is getting shorter


# What the replicas hold


@dataclass(frozen=True, slots=True)
class MeanRequest:
    """A mean request."""

    input_tokens: float = 0.0
    output_tokens: float = 0.0
    hit_rate: float = 0.0  # the share of the prompt that is found in the prefix cache
    known: bool = True  # otherwise all numbers are 0, so that waiting requests are not charged

    def charge(self, requests: float, *, size_bytes: float = 0.0) -> float:
        """Return the tokens that waiting requests will take: prompts not found in the prefix cache, and answers.

        ``size_bytes`` is the size of all of them together; the larger of the two guesses at their prompts counts.
        """
        prompts = max(size_bytes / BYTES_PER_TOKEN, requests * self.input_tokens)
        return prompts * (1 - self.hit_rate) + requests * self.output_tokens


_UNKNOWN_REQUEST: Final = MeanRequest(known=False)


@dataclass(frozen=True, slots=True)
class ReplicaTokens:
    """One replica that can be judged."""

    kv_tokens: int
    in_use: int  # tokens, the peak of the last minute
    queue: float  # requests of its fullest engine, the peak of the last minute
    held: float  # tokens, now
    waiting: float  # requests of all engines, now
    request: MeanRequest

    @property
    def demand(self) -> float:
        """Tokens held, and those that the waiting requests will take as far as their length is known."""
        return self.held + self.request.charge(self.waiting)

    @property
    def peak_demand(self) -> float:
        """The highest demand of the last minute."""
        return max(self.demand, self.in_use + self.request.charge(max(self.queue, self.waiting)))


class Carried(NamedTuple):
    """What one replica of a variant carries, and how that is known."""

    tokens: int
    basis: CapacityBasis
    observations: int = 0  # how often k2 has been seen


UNKNOWN: Final = Carried(0, CapacityBasis.UNKNOWN)


@dataclass(frozen=True, slots=True)
class VariantTokens:
    """One variant."""

    progress: Progress
    readings: tuple[ReplicaTokens, ...]  # its replicas that can be judged
    carried: Carried = UNKNOWN  # what one replica carries

    @property
    def unread(self) -> int:
        """Replicas that serve but cannot be judged."""
        return self.progress.serving - len(self.readings)


def read(reports: Sequence[VariantReadings]) -> tuple[list[VariantTokens], MeanRequest]:
    """Return the variants of a model, and its mean request over the replicas that report theirs."""
    known = [request for report in reports for pod in report.replicas if (request := _request(pod)).known]
    prompts, answers = [request.input_tokens for request in known], [request.output_tokens for request in known]
    typical = MeanRequest(
        mean(prompts), mean(answers), mean([request.hit_rate for request in known]), known=bool(known)
    )
    return [
        VariantTokens(
            report.progress, tuple([reading for pod in report.replicas if (reading := _reading(pod, typical))])
        )
        for report in reports
    ], typical


def totals(model: Sequence[VariantTokens], amount: Callable[[ReplicaTokens], float]) -> list[float]:
    """Return an amount per variant. A replica that cannot be judged counts as busy as the others."""
    amounts = [[amount(reading) for reading in variant.readings] for variant in model]
    everything = mean([value for own in amounts for value in own])
    return [
        math.fsum(own) + variant.unread * (mean(own) if own else everything)
        for variant, own in zip(model, amounts, strict=True)
    ]


def gap(replicas: Sequence[ReplicaMetrics]) -> str:
    """Return in words which sample is missing at the first replica that cannot be judged; there must be one."""
    replica = next(replica for replica in replicas if _reading(replica, _UNKNOWN_REQUEST) is None)
    size = (replica.engine or _NO_ENGINE).kv_capacity_tokens
    samples = (("KV usage", replica.kv_usage), ("queue length", replica.queue_length), ("KV cache size", size))
    lacking = (f"{name} {_words(sample)}" for name, sample in samples if sample.state is not SampleState.FRESH)
    return f"{replica.pod}: {next(lacking, 'KV cache size 0')}"


def mean(values: Sequence[float]) -> float:
    """Return the plain mean, 0 without values; the order does not matter."""
    return math.fsum(values) / len(values) if values else 0.0


def _reading(replica: ReplicaMetrics, typical: MeanRequest) -> ReplicaTokens | None:
    engine, in_use, queue = replica.engine, replica.tokens_in_use.fresh_value, replica.queue_length.fresh_value
    if engine is None or in_use is None or queue is None:
        return None
    kv_tokens = int(engine.kv_capacity_tokens.value or 0.0)
    if kv_tokens <= 0:
        return None
    usage, waiting, request = engine.kv_usage.fresh_value, engine.waiting.fresh_value, _request(replica)
    return ReplicaTokens(
        kv_tokens,
        in_use=min(int(in_use), kv_tokens),
        queue=queue,
        held=min(in_use, kv_tokens) if usage is None else usage * kv_tokens,
        waiting=queue if waiting is None else waiting,
        request=request if request.known else typical,
    )


def _request(replica: ReplicaMetrics) -> MeanRequest:
    engine = replica.engine or _NO_ENGINE
    prompt, answer = engine.input_tokens.fresh_value, engine.output_tokens.fresh_value
    if prompt is None or answer is None:
        return _UNKNOWN_REQUEST
    return MeanRequest(prompt, answer, engine.prefix_hit_rate.fresh_value or 0.0)


def _words(sample: Sample) -> str:
    return f"{sample.state.value} ({sample.detail})" if sample.detail else sample.state.value


# What a replica carries, and what a cycle teaches


def learn(
    known: LearnedCapacity,
    model: Sequence[VariantTokens],
    typical: MeanRequest,
    policy: SaturationPolicy,
    *,
    derive: bool,
    now: float,
) -> tuple[list[VariantTokens], LearnedCapacity]:
    """Return the variants with what a replica of each carries, and what is known after a cycle.

    Without ``derive``, the arguments of engines do not bound the replicas that report. ``now`` is in seconds since the
    epoch.
    """
    # Histories of k2. A cycle adds one value per kind, the median over its queueing replicas, so that one odd pod does
    # not speak for all. A history is corrected upwards as soon as a replica holds more than its mean without queueing.
    histories = {history.kind: history for history in known.histories}
    readings_by_kind: dict[EngineKind, list[ReplicaTokens]] = {}
    for variant_tokens in model:
        for reading in variant_tokens.readings:
            if reading.request.known:
                readings_by_kind.setdefault(kind_of(variant_tokens.progress.variant, reading.request), []).append(
                    reading
                )
    for kind, readings in readings_by_kind.items():
        history = histories.get(kind, K2History(kind, (), now))
        bound = [tokens for reading in readings if (tokens := compute_bound(reading.queue, reading.in_use, policy))]
        most_in_use = max(reading.in_use for reading in readings)
        if bound:
            histories[kind] = history.append(median(bound), now=now)
        elif history.values and most_in_use > history.mean:
            histories[kind] = history.append(most_in_use, now=now)
    # What a replica of each variant carries is the median over those that report. A record that no longer describes the
    # Deployment is replaced. Without replicas, a live record stays and takes over the Deployment's parameters, and a
    # record from a Deployment is read again.
    records = {record.variant: record for record in known.records}
    live: list[Carried | None] = []
    for variant_tokens in model:
        variant, parameters = variant_tokens.progress.variant, variant_tokens.progress.variant.parameters
        judged = []
        for reading in variant_tokens.readings:
            request = reading.request
            engine = kind_of(variant, request)
            learned = histories.get(engine)
            if not request.known:
                # While the length of the answers is not known, the smallest k2 that has been seen counts.
                same = [history for kind, history in histories.items() if replace(kind, bucket=engine.bucket) == engine]
                learned = min(same, key=lambda history: (history.mean, history.kind), default=None)
            k2, count = (0, 0) if learned is None else (learned.mean, len(learned.values))
            queues = request.known and compute_bound(reading.queue, reading.in_use, policy) > 0
            tokens, basis = effective(
                memory_bound(reading.kv_tokens, policy),
                observed=k2 if queues else 0,
                history=k2,
                derived=derived_capacity(parameters, request) if derive else 0,
            )
            judged.append(Carried(tokens, basis, count))
        judged.sort(key=lambda carried: (carried.tokens, carried.basis))
        tokens = median([carried.tokens for carried in judged])
        live_carried = judged[(len(judged) - 1) // 2]._replace(tokens=tokens) if judged else None
        live.append(live_carried)
        engines = (variant.key, variant.accelerator, variant.gpus_per_replica)
        record = records.pop(variant.key, None)
        record = record if record is not None and describes(record, variant) else None
        if live_carried is not None:
            size = median([reading.kv_tokens for reading in variant_tokens.readings])
            parameters = record.parameters if parameters is None and record is not None else parameters
            record = CapacityRecord(*engines, size, live_carried.tokens, LearnedFrom.LIVE, now, parameters)
        elif parameters is not None and record is not None and record.learned_from is LearnedFrom.LIVE:
            record = replace(record, parameters=parameters)
        elif parameters is not None:
            sizes = (parameters.override_tokens, parameters.batched_tokens)
            record = CapacityRecord(*engines, *sizes, LearnedFrom.DEPLOYMENT, now, parameters)
        if record is not None:
            records[variant.key] = record
    # What a replica carries if none of its variant reports
    variants = []
    for variant_tokens, live_carried in zip(model, live, strict=True):
        variant = variant_tokens.progress.variant
        sibling = None if live_carried else compatible_sibling(variant, records.values())
        carried = live_carried or idle_capacity(
            records.get(variant.key), request=typical, policy=policy, sibling=sibling
        )
        variants.append(replace(variant_tokens, carried=carried))
    by_variant, by_kind = [records[key] for key in sorted(records)], [histories[kind] for kind in sorted(histories)]
    return variants, LearnedCapacity(known.model, known.since, tuple(by_variant), tuple(by_kind))


def memory_bound(kv_tokens: int, policy: SaturationPolicy) -> int:
    """Return k1: the tokens that may be in the KV cache before it counts as full."""
    return int(kv_tokens * policy.kv_cache_threshold)


def compute_bound(queue: float, tokens_in_use: float, policy: SaturationPolicy) -> int:
    """Return k2 as seen now: the tokens in use while requests queue, 0 if no queue shows a limit of computation."""
    return int(tokens_in_use) if queue >= policy.queue_length_threshold else 0


def derived_capacity(parameters: VllmParameters | None, request: MeanRequest) -> int:
    """Return what the arguments of an engine let it carry of such requests; 0 when they do not tell.

    An engine computes a limited number of tokens per step, and a limited number of sequences at a time. On average it
    holds half of an answer.
    """
    output = request.output_tokens
    if parameters is None or output <= 0:
        return 0
    running = parameters.batched_tokens * output / (request.input_tokens + output)
    sequences = min(running, float(parameters.max_num_seqs))
    return max(0, int(sequences * (request.input_tokens + output / 2)))


def effective(k1: int, *, observed: int = 0, history: int = 0, derived: int = 0) -> tuple[int, CapacityBasis]:
    """Return the smaller of k1 and k2, and how it is known. k2 is the first of the other three that is known."""
    bases = (CapacityBasis.OBSERVED, CapacityBasis.HISTORY, CapacityBasis.DERIVED)
    for k2, basis in zip((observed, history, derived), bases, strict=True):
        if k2 > 0:
            return (k2, basis) if k2 < k1 else (k1, CapacityBasis.KV_CACHE)
    return k1, CapacityBasis.KV_CACHE


def median(values: Sequence[int]) -> int:
    """Return the median; of an even number the mean of the middle two, rounded down. 0 without values."""
    ordered, count = sorted(values), len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) // 2 if ordered else 0


def idle_capacity(
    record: CapacityRecord | None, *, request: MeanRequest, policy: SaturationPolicy, sibling: CapacityRecord | None
) -> Carried:
    """Return what a replica of a variant without usable replicas would carry, from its record.

    ``sibling`` is the record of another variant with compatible engines, None when there is none.
    """
    if record is None:
        return UNKNOWN
    if record.effective <= 0:
        return UNKNOWN if sibling is None else Carried(sibling.effective, CapacityBasis.BORROWED)
    derived = derived_capacity(record.parameters, request)
    if record.learned_from is LearnedFrom.LIVE or derived <= 0:
        return Carried(record.effective, CapacityBasis.RECORD)
    bounds = [Carried(derived, CapacityBasis.DERIVED)]
    if record.kv_tokens > 0:
        bounds.append(Carried(memory_bound(record.kv_tokens, policy), CapacityBasis.KV_CACHE))
    if sibling is not None and sibling.learned_from is LearnedFrom.LIVE and sibling.effective > 0:
        bounds.append(Carried(sibling.effective, CapacityBasis.BORROWED))
    return min(bounds, key=lambda bound: bound.tokens)


def kind_of(variant: Variant, request: MeanRequest) -> EngineKind:
    """Return the kind of an engine under its load."""
    parallel = 1 if variant.parameters is None else variant.parameters.tensor_parallel_size
    return EngineKind(variant.accelerator, variant.gpus_per_replica, parallel, bucket_of(request.output_tokens))


def bucket_of(output_tokens: float) -> LengthBucket:
    """Return the bucket of answers of about this length."""
    if output_tokens < SHORT_ANSWER:
        return LengthBucket.SHORT
    return LengthBucket.MEDIUM if output_tokens < MEDIUM_ANSWER else LengthBucket.LONG


def describes(record: CapacityRecord, variant: Variant) -> bool:
    """Whether a record is about engines like those that the variant would start now."""
    engines, wanted = record.parameters, variant.parameters
    alike = engines is None or wanted is None or engines.compatible(wanted)
    return alike and (record.accelerator, record.gpus_per_replica) == (variant.accelerator, variant.gpus_per_replica)


def compatible_sibling(variant: Variant, records: Iterable[CapacityRecord]) -> CapacityRecord | None:
    """Return the record of another variant of the model with the same engines: a live one first, then by name."""
    others = [
        record for record in records if record.variant != variant.key and record.effective > 0 and record.parameters
    ]
    matching = [record for record in others if variant.parameters and describes(record, variant)]
    return min(matching, key=lambda record: (record.learned_from is not LearnedFrom.LIVE, record.variant), default=None)


# What the model needs


@dataclass(frozen=True)  # with a dictionary, in which what follows from the fields is kept
class _Judged:
    """A model in tokens: its variants at work and at zero, and what waits in its scheduler's queue."""

    model: ModelReadings
    pods: Sequence[ReplicaMetrics]
    variants: Sequence[VariantTokens]
    relearning: bool  # its capacities are being learned again
    waiting: float  # tokens in the scheduler's queue; one that is not reported counts as empty
    doubt: str  # why these are not known, empty if they are

    @cached_property
    def readings(self) -> list[ReplicaTokens]:
        """Its replicas that can be judged."""
        return [reading for variant in self.variants for reading in variant.readings]

    @cached_property
    def ready(self) -> int:
        """How many replicas serve."""
        return sum([variant.progress.serving for variant in self.variants])

    @cached_property
    def supply(self) -> float:
        """Tokens that the replicas carry that serve."""
        return math.fsum([variant.progress.serving * variant.carried.tokens for variant in self.variants])

    @cached_property
    def anticipated(self) -> float:
        """Tokens that the replicas will carry when all of them serve that are under way."""
        return math.fsum(
            [
                (variant.progress.serving + variant.progress.in_flight) * variant.carried.tokens
                for variant in self.variants
            ]
        )

    @cached_property
    def unfirm(self) -> list[VariantTokens]:
        """Variants at work whose capacity was seen seldom."""
        return [
            variant
            for variant in self.variants
            if variant.progress.serving and variant.carried.observations < FIRM_OBSERVATIONS
        ]

    @cached_property
    def unsure(self) -> bool:
        """Whether a capacity is an estimate."""
        return self.relearning or any(variant.carried.basis is not CapacityBasis.KV_CACHE for variant in self.unfirm)


def measure(
    models: Sequence[ModelReadings], memory: Memory, _policy: Policy, now: float, _observations: object
) -> tuple[list[Need], Memory]:
    """Return the needs of models in tokens, in their order, and the memory with what was learned of capacities."""
    needs, lessons = [], []
    for model in models:
        known = (memory.capacity.of(model.key) or LearnedCapacity(model.key, now)).without_old(now)
        relearning = now - known.since < RELEARNING_SECONDS
        reports = sorted((*model.variants, *model.asleep), key=lambda report: report.key)
        pods = [pod for report in reports for pod in report.replicas]
        variants, typical = read(reports)
        variants, lesson = learn(known, variants, typical, model.policy, derive=not relearning, now=now)
        lessons.append(lesson)
        needs.append(_need(_Judged(model, pods, variants, relearning, *_waiting(model.queue, typical))))
    return needs, replace(memory, capacity=memory.capacity.updated(lessons, now=now))


def _waiting(queue: SchedulerQueue | None, typical: MeanRequest) -> tuple[float, str]:
    """Return the tokens that wait in a scheduler's queue, and why they are not known, empty if they are."""
    if queue is None or queue.size.state is queue.size_bytes.state is SampleState.MISSING:
        return 0.0, ""
    size, size_bytes = queue.size.fresh_value, queue.size_bytes.fresh_value
    doubt = ""
    if size is None:
        doubt = f"the scheduler's queue is {_words(queue.size)}"
    elif size and not typical.known:
        doubt = "the length of the requests in the scheduler's queue is not known"
    return typical.charge(size or 0.0, size_bytes=size_bytes or 0.0), doubt


def _need(judged: _Judged) -> Need:
    """Return what a model needs."""
    model, ready, supply, anticipated = judged.model, judged.ready, judged.supply, judged.anticipated
    demands = totals(judged.variants, lambda reading: reading.demand)
    demand = math.fsum([*demands, judged.waiting])
    hold = _hold(judged)
    objection = _objection(judged, hold)
    short = 0.0 if hold is not None or _blind(judged) else _short(judged, demands)
    peak = math.fsum([*totals(judged.variants, lambda reading: reading.peak_demand), judged.waiting])
    free = 0.0 if objection else left_over(demand=peak, supply=supply, policy=model.policy)
    # A shrink under way goes on while it leaves what a new one would have to leave. If an objection would stop a
    # new one, it must leave what the demand needs.
    least = demand / (model.policy.scale_up_threshold or 1.0) if objection else supply - free
    required = anticipated + short if short > 0 else min(least, anticipated)
    carried = {variant.progress.variant.key: variant.carried for variant in judged.variants}
    summary = f"{len(judged.readings)} of {replicas_in_words(ready)} judged, demand {demand:.0f} tokens"
    summary += f" of {supply:.0f} (utilization {demand / supply:.3g})" if supply else ", no supply"
    return Need(
        model.key,
        UNIT,
        demand,
        required,
        max(required, supply - free) if free > 0 else math.inf,
        {key: Capacity(float(entry.tokens), entry.basis) for key, entry in carried.items()},
        most_added=1 if judged.unsure else None,
        most_removed=1 if judged.unfirm else max(1, ready // 2),
        hold=hold,
        objection=objection,
        wish=f"{short:.4g} {UNIT} missing ({summary})" if short > 0 else "",
        summary=summary if hold is None else hold.message,
    )


def _hold(judged: _Judged) -> Absence | None:
    """Return why the model stays as it is. Waiting requests ask for replicas even if there are none."""
    hold = absence(judged.pods, failure=judged.model.failure)
    if hold is None and not judged.readings:
        words = f"none of {replicas_in_words(len(judged.pods))} can be judged in tokens; {gap(judged.pods)}"
        return Absence(Reason.METRICS_INCOMPLETE, words)
    if hold is not None and hold.reason is Reason.NO_READY_REPLICAS and judged.waiting > 0:
        return None
    return hold


def _objection(judged: _Judged, hold: Absence | None) -> str:
    """Return what speaks against fewer replicas beside the numbers, empty if nothing does."""
    if hold is not None:
        return hold.message
    if judged.relearning:
        return f"capacity is being learned again; nothing shrinks for {RELEARNING_SECONDS:g} s"
    if unread := sum([variant.unread for variant in judged.variants]):
        return f"{unread} of {replicas_in_words(judged.ready)} unread; {gap(judged.pods)}"
    if any(not variant.progress.countable or variant.progress.in_flight for variant in judged.variants):
        return "replicas are on their way"
    if any(not reading.request.known and max(reading.queue, reading.waiting) > 0 for reading in judged.readings):
        return "the length of the waiting requests is not known"
    return judged.doubt


def _blind(judged: _Judged) -> bool:
    """Tell whether nothing may grow: replicas are under way, and their capacity is unknown or none serves.

    While capacity is learned again, nothing grows either as long as all replicas of a variant are unread.
    """
    ready = judged.ready
    if any(variant.progress.in_flight and not (ready and variant.carried.tokens > 0) for variant in judged.variants):
        return True
    unseen = [variant.progress for variant in judged.variants if not variant.readings]
    return judged.relearning and any(progress.serving or progress.in_flight for progress in unseen)


def _short(judged: _Judged, demands: Sequence[float]) -> float:
    """Return the tokens by which a model is to grow; ``demands`` are those of its variants.

    Growth follows the tokens that are held, and at most as many tokens that wait. A longer queue has piled up while
    replicas were too few or still loading: replicas for all of it would come when it is gone. A queue in the replicas
    that is getting shorter does not count. If no tokens are held, all waiting tokens count.
    """
    readings = judged.readings
    held = math.fsum(totals(judged.variants, lambda reading: reading.held))
    shorter = sum([reading.waiting for reading in readings]) < sum([reading.queue for reading in readings]) * _DRAINING
    waits = max(0.0, 0.0 if shorter else math.fsum(demands) - held) + judged.waiting
    wanted = held + (min(waits, held) if held > 0 else waits)
    short = missing(demand=wanted, anticipated=judged.anticipated, policy=judged.model.policy)
    if not judged.unsure:
        return short
    carried = [variant.carried.tokens for variant in judged.variants if variant.carried.tokens > 0]
    return min(short, min(carried, default=math.inf))


def missing(*, demand: float, anticipated: float, policy: SaturationPolicy) -> float:
    """Return the tokens missing to stay below the scale-up threshold, replicas under way included; 0 without one."""
    threshold = policy.scale_up_threshold
    return max(0.0, min(demand / threshold, AMPLE) - anticipated) if threshold > 0 else 0.0


def left_over(*, demand: float, supply: float, policy: SaturationPolicy) -> float:
    """Return the tokens that could go before utilization reaches the scale-down boundary; 0 without one."""
    boundary = policy.scale_down_boundary
    return max(0.0, supply - min(demand / boundary, AMPLE)) if boundary > 0 else 0.0
