"""The engine of v0.5: Snapshot, Memory, Policy and now in; the numbers of the Go controller v0.5.1 out.

``_decide`` names the steps of a cycle; each follows below, in that order. The formulas are in
docs/design/compatibility-v05.md. They repeat the original, mistakes included, and to the last bit: the order of
operations matters. Conditions, sources, bounds and the accelerator ``unknown`` stay ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wva.decide.amounts import bounded_policy
from wva.decide.failed import asleep, isolated
from wva.decide.outcome import Outcome
from wva.decide.progress import Moment, Progress, clocked, progress_of
from wva.decide.trust import VariantReadings, absence, coverage, verdict
from wva.decide.wording import LIMITER
from wva.model.decision import Decision, Reason, Source
from wva.model.inventory import Inventory
from wva.model.memory import Memory, VariantMemory
from wva.model.metrics import ReplicaMetrics, SampleState
from wva.model.policy import Policy, SaturationPolicy, ScaleToZeroPolicy
from wva.model.records import replace
from wva.model.snapshot import RequestCounts, Snapshot
from wva.model.variant import Bounds, ModelKey, Variant, VariantKey


def conclude(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Outcome:
    """Decide on every variant of the snapshot; ``now`` is in seconds since the epoch.

    The limiter counts the replicas that are decided on. So those of a model that cannot be decided on are taken from
    the inventory (``counts_pods``).
    """
    return isolated(_decide, snapshot, memory, policy, now, counts_pods=True)


def _decide(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Outcome:
    """Decide on all models, or raise what one of them makes it raise."""
    remembered, counts = memory.by_key(), {counts.model: counts for counts in snapshot.request_counts}
    pods: dict[VariantKey, list[ReplicaMetrics]] = {}
    for pod in sorted(snapshot.replicas, key=lambda pod: (pod.variant, pod.pod)):
        pods.setdefault(pod.variant, []).append(pod)
    failures: dict[str, str] = {}
    for failure in sorted(snapshot.failures, key=lambda failure: failure.message, reverse=True):
        failures |= dict.fromkeys(failure.namespaces, failure.message)
    models: dict[ModelKey, list[Variant]] = {}
    for variant in sorted(snapshot.variants, key=lambda variant: (variant.model, variant.key)):
        if variant.active:
            models.setdefault(variant.model, []).append(variant)
    progresses: list[Progress] = []
    decisions: list[Decision] = []
    for key, variants in models.items():
        thresholds, failure_of = bounded_policy(policy.saturation_for(key)), failures.get(key.namespace)
        moment = Moment(now, thresholds.transition_deadline_seconds)
        model = [
            readings_of(each, tuple(pods.get(each.key, ())), remembered.get(each.key), moment, failure_of)
            for each in variants
        ]
        # 1 analyze the model, 2 find a number for each variant
        found = decide_model(model, thresholds, failure_of)
        # 3 an idle model goes to zero, another one keeps a replica
        found = _enforced(found, policy.scale_to_zero_for(key), counts.get(key))
        # 4 no number that the scaler cannot reach
        decisions += [_bounded(decision, variant.bounds) for decision, variant in zip(found, variants, strict=True)]
        progresses += [each.progress for each in model]
    # 5 no more GPUs than there are, over all models
    if policy.limited:
        decisions = _limited(decisions, [progress.variant for progress in progresses], snapshot.inventory)
    # 6 the clocks, and the variants at zero
    entries = [clocked(decision, progress, now=now) for decision, progress in zip(decisions, progresses, strict=True)]
    entries += [asleep(variant) for variant in snapshot.variants if not variant.active]
    entries.sort(key=lambda entry: entry[0].key)
    return Outcome(
        tuple(decision for decision, _ in entries),
        Memory(tuple(entry for _, entry in entries), memory.capacity.updated((), now=now)),
    )


def readings_of(
    variant: Variant, pods: tuple[ReplicaMetrics, ...], entry: VariantMemory | None, moment: Moment, failure: str | None
) -> VariantReadings:
    """Return where a variant stands and whether it has metrics, as without the mode: the numbers do not need it."""
    fresh = coverage(pods)
    progress = progress_of(variant, replicas=pods, entry=entry, moment=moment)
    return VariantReadings(variant.key, progress, pods, fresh, verdict(pods, fresh, failure))


# 1 Analyze: how much room do the replicas have that are not saturated?


@dataclass(frozen=True, slots=True)
class Load:
    """What the reporting pods of a variant say; ``open`` are not saturated, and the means are over those."""

    variant: Variant
    pods: int
    open: int
    spare_kv: float
    spare_queue: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """A model. ``loads`` has the variants with reporting pods, sorted; ``shortage`` says why to grow, else empty."""

    loads: tuple[Load, ...]
    open: int
    spare_kv: float
    spare_queue: float
    shortage: str
    may_shrink: bool

    def summary(self, ready: int) -> str:
        """Return what was measured in words; the means are over the replicas that are not saturated."""
        pods = sum(load.pods for load in self.loads)
        means = f"mean spare KV {self.spare_kv:.4g}, mean spare queue {self.spare_queue:.4g}"
        return f"{pods} of {ready} replicas report, {pods - self.open} saturated, {means}"


def analyze(variants: Iterable[tuple[Variant, Sequence[ReplicaMetrics]]], policy: SaturationPolicy) -> Analysis:
    """Analyze one model from its variants in order, each with its pods."""
    loads = tuple(load for variant, pods in variants if (load := _load(variant, pods, policy)).pods)
    count = sum(load.open for load in loads)
    kv = queue = 0.0
    if count:
        kv = sum(load.spare_kv * load.open for load in loads) / count
        queue = sum(load.spare_queue * load.open for load in loads) / count
    shortage = _shortage(kv, queue, policy) if loads else ""
    return Analysis(loads, count, kv, queue, shortage, _may_shrink(count, kv, queue, policy))


def usage(pod: ReplicaMetrics) -> tuple[float, float] | None:
    """Return KV usage and queue length of a pod, 0 for one that is not fresh; None for a pod that does not report.

    The original read NaN as 0, so a pod with an invalid sample does report.
    """
    samples = pod.kv_usage, pod.queue_length
    if not any(sample.state in {SampleState.FRESH, SampleState.INVALID} for sample in samples):
        return None
    return samples[0].fresh_value or 0.0, samples[1].fresh_value or 0.0


def saturated(kv: float, queue: float, policy: SaturationPolicy) -> bool:
    """Tell whether a replica with this KV usage and queue length is saturated."""
    return kv >= policy.kv_cache_threshold or queue >= policy.queue_length_threshold


def _load(variant: Variant, pods: Sequence[ReplicaMetrics], policy: SaturationPolicy) -> Load:
    usages = [found for pod in pods if (found := usage(pod)) is not None]
    spare_kv = spare_queue = 0.0
    count = 0
    for kv, queue in usages:
        if not saturated(kv, queue, policy):
            count += 1
            spare_kv += policy.kv_cache_threshold - kv
            spare_queue += policy.queue_length_threshold - queue
    return Load(variant, len(usages), count, spare_kv / max(1, count), spare_queue / max(1, count))


def _shortage(kv: float, queue: float, policy: SaturationPolicy) -> str:
    kv_words = f"({kv:.3f} < {policy.kv_spare_trigger:.3f})"
    queue_words = f"({queue:.1f} < {policy.queue_spare_trigger:.1f})"
    if kv < policy.kv_spare_trigger and queue < policy.queue_spare_trigger:
        return f"both KV spare {kv_words} and queue spare {queue_words}"
    if kv < policy.kv_spare_trigger:
        return f"KV spare Saturation low {kv_words}"
    return f"queue spare Saturation low {queue_words}" if queue < policy.queue_spare_trigger else ""


def _may_shrink(count: int, kv: float, queue: float, policy: SaturationPolicy) -> bool:
    if count <= 1:
        return False
    factor = count / (count - 1)
    load_kv = (policy.kv_cache_threshold - kv) * factor
    load_queue = (policy.queue_length_threshold - queue) * factor
    return (
        policy.kv_cache_threshold - load_kv >= policy.kv_spare_trigger
        and policy.queue_length_threshold - load_queue >= policy.queue_spare_trigger
    )


# 2 Target numbers: one replica more or less, and none while anything is in transition


def targets(analysis: Analysis) -> dict[str, int]:
    """Return the targets of the variants with reporting pods, by name."""
    variants = [load.variant for load in analysis.loads]
    unreached = {each.key.name for each in variants if each.status_desired not in {None, 0, each.current_replicas}}
    if unreached or any(load.pods != load.variant.current_replicas for load in analysis.loads):
        return {
            each.key.name: each.status_desired or 0 if each.key.name in unreached else each.current_replicas
            for each in variants
        }
    numbers = {load.variant.key.name: load.pods for load in analysis.loads}
    if analysis.shortage:
        growing = [_rank(load) for load in analysis.loads if not load.variant.pending_replicas]
        if growing:
            numbers[min(growing)[1]] += 1
    elif analysis.may_shrink:
        shrinking = [_rank(load) for load in analysis.loads if load.pods > 1]
        if shrinking:
            numbers[max(shrinking)[1]] -= 1
    return numbers


def _rank(load: Load) -> tuple[float, str]:
    return load.variant.cost, load.variant.key.name


def decide_model(
    model: Sequence[VariantReadings], policy: SaturationPolicy, failure: str | None
) -> tuple[Decision, ...]:
    """Return the decisions of a model in the order of its variants. ``failure``: its samples could not be collected."""
    pods = [pod for each in model for pod in each.replicas]
    hold = absence(pods, failure=failure)
    analysis = analyze([(each.progress.variant, each.replicas if failure is None else ()) for each in model], policy)
    numbers = targets(analysis)
    spares = {load.variant.key.name: load.spare_kv for load in analysis.loads}
    summary = analysis.summary(len(pods)) if numbers or hold is None else hold.message
    reason = Reason.METRICS_MISSING if numbers or hold is None else hold.reason
    decisions = []
    for each in model:
        draft, name = unchanged(each, summary), each.key.name
        if name not in numbers:
            decisions.append(_without_decision(draft, each.progress.variant, reason))
            continue
        draft = replace(draft, spare_capacity=spares[name])
        words = f"saturation-only mode: {replace(draft, desired=numbers[name]).action.value}"
        words += f"; {analysis.shortage}" if analysis.shortage else ""
        decisions.append(draft.with_step("optimize", Reason.COMPATIBILITY, words, numbers[name]))
    return tuple(decisions)


def unchanged(each: VariantReadings, summary: str) -> Decision:
    """Return the decision that keeps the last number, with the conditions; ``summary`` is what the model says."""
    variant, published = each.progress.variant, each.progress.published
    return Decision(
        key=variant.key,
        model=variant.model,
        accelerator=variant.known_accelerator,
        cost=variant.cost,
        current=variant.current_replicas,
        desired=published,
        previous=each.progress.previous,
        reason=Reason.STEADY,
        message="",
        source=Source.MEASURED,
        metrics=each.verdict,
        coverage=each.coverage,
    ).noted("analyze", summary)


def _without_decision(draft: Decision, variant: Variant, reason: Reason) -> Decision:
    """Return the number of the status, 0 included.

    The original published nothing for a variant that it had never decided on; a series is owed all the same, and it
    says what exists.
    """
    number = max(0, variant.status_desired or 0)
    source, origin = Source.PREVIOUS_DESIRED, "the number in the status"
    if not number and not variant.status_accelerator:
        number, source, origin = variant.current_replicas, Source.CURRENT_REPLICAS, "what exists, never decided on"
    words = f"{draft.metrics.message}; publishing {number}, {origin}"
    decision = replace(draft, accelerator=variant.status_accelerator or draft.accelerator, source=source)
    return decision.with_step("optimize", reason, words, number)


# 3 Enforcer: idle is a model of which no request finished, also while requests run or wait


def enforced(
    numbers: Mapping[str, int], costs: Mapping[str, float], policy: ScaleToZeroPolicy, finished: float | None
) -> dict[str, int] | None:
    """Return the targets of a model as the enforcer changes them, None if it does not; ``finished`` None: unknown."""
    if policy.enabled:
        return dict.fromkeys(numbers, 0) if finished is not None and finished <= 0 else None
    if not numbers or sum(numbers.values()) > 0:
        return None
    return {**numbers, min(numbers, key=lambda name: (costs[name], name)): 1}


def _enforced(
    decisions: tuple[Decision, ...], policy: ScaleToZeroPolicy, counts: RequestCounts | None
) -> tuple[Decision, ...]:
    """Return the decisions of a model after the enforcer, which knew those with a target only.

    The original took a time without samples in Prometheus for a time without requests. This function does not.
    """
    numbers = {each.key.name: each.desired for each in decisions if each.reason is Reason.COMPATIBILITY}
    finished = counts.finished if counts is not None and counts.covered else None
    changed = enforced(numbers, {each.key.name: each.cost for each in decisions}, policy, finished) or {}
    reason, words = Reason.MODEL_MINIMUM, "the model may not go to zero"
    if policy.enabled:
        reason, words = Reason.IDLE, f"no request finished within {policy.retention_seconds:g} s"
    return tuple(
        decision.with_step("enforce", reason, words, changed[decision.key.name])
        if decision.key.name in changed
        else decision
        for decision in decisions
    )


# 4 Bounds, which are ours


def _bounded(decision: Decision, bounds: Bounds) -> Decision:
    """Return the decision with its number inside the bounds; one without evidence keeps its reason."""
    allowed = bounds.clamp(decision.desired)
    if allowed == decision.desired:
        return decision.noted("enforce", "within bounds")
    side, limit, origin, by = "above", "maximum", bounds.ceiling_origin, bounds.ceiling_origin
    if allowed > decision.desired:
        side, limit, origin, by = "below", "minimum", bounds.minimum_origin, ""
    words = f"{decision.desired} is {side} the {limit} {allowed} of {origin}; {decision.message}"
    reason = decision.reason if decision.held else Reason.BOUNDED
    return decision.limited("enforce", reason, words, allowed, by=by)


# 5 GPU limiter: only the replicas of this cycle's decisions count as used


def used(claims: Iterable[tuple[Decision, Variant]]) -> dict[str, int]:
    """Return the GPUs that the replicas of the claims take, by accelerator; an unknown size counts as 0."""
    total: dict[str, int] = {}
    for decision, variant in claims:
        if variant.accelerator:
            gpus = decision.current * max(0, variant.gpus_per_replica)
            total[variant.accelerator] = total.get(variant.accelerator, 0) + gpus
    return total


def grants(claims: Sequence[tuple[Decision, Variant]], free: dict[str, int]) -> list[Decision]:
    """Return the decisions as limited, in the order of the claims; ``free`` is left as it is after them.

    The remainder of a grant that makes no whole replica is lost.
    """
    granted: dict[int, Decision] = {}
    order = sorted(range(len(claims)), key=lambda place: (claims[place][0].spare_capacity, claims[place][0].cost))
    for place in order:
        decision, variant = claims[place]
        asked, gpus = decision.desired - decision.current, max(1, variant.gpus_per_replica)
        if asked <= 0:
            granted[place] = decision.noted("limit", _none(decision.desired, decision.current))
            continue
        given = min(asked * gpus, free.get(variant.accelerator, 0))
        if given:
            free[variant.accelerator] -= given
        count = given // gpus
        target = decision.current + count
        words = f"allocated {count * gpus} GPUs for +{count} replicas" if count else _none(target, target)
        if count == asked:
            granted[place] = decision.noted("limit", words)
        else:
            words = f"limited: {words}" if count else words
            granted[place] = decision.limited("limit", Reason.GPU_LIMITED, words, target, by=LIMITER)
    return [granted[place] for place in range(len(claims))]


def _none(target: int, current: int) -> str:
    return f"no scale-up (target={target}, current={current})"


def _limited(decisions: list[Decision], variants: list[Variant], inventory: Inventory | None) -> list[Decision]:
    """Return the decisions within the GPUs; those without a target are not seen. Unread GPUs limit nothing."""
    if inventory is None:
        return [decision.noted("limit", "GPU inventory unknown: not limited") for decision in decisions]
    claims = [claim for claim in zip(decisions, variants, strict=True) if not claim[0].held]
    taken = used(claims)
    pools = Inventory.of(list(inventory.pools)).pools
    free = {pool.accelerator: max(0, pool.capacity - taken.get(pool.accelerator, 0)) for pool in pools}
    limited = {decision.key: decision for decision in grants(claims, free)}
    return [limited.get(decision.key, decision) for decision in decisions]
