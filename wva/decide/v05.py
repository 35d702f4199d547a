"""``compatibility: v0.5``: Snapshot, Memory, Policy and now in; the numbers of the Go controller v0.5.1 out.

``_decide`` goes through the steps of a cycle; what they compute follows below, in that order. The formulas are in
docs/design/compatibility-v05.md. They repeat the original to the last bit, mistakes included, so the order of
operations matters. Everything else comes from the present engine: conditions, sources and bounds, the clock of
unfinished changes, the isolation of failing models, and a few words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wva.decide.failed import Outcome, asleep, isolated
from wva.decide.progress import Progress, clocked, lateness
from wva.decide.trust import VariantReadings, absence, believe
from wva.model.decision import LIMITER, Decision, Reason, Source
from wva.model.inventory import Inventory
from wva.model.memory import Memory
from wva.model.metrics import ReplicaMetrics, SampleState
from wva.model.policy import Policy, SaturationPolicy, ScaleToZeroPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import Variant


def conclude(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Outcome:
    """Decide on every variant of the snapshot; ``now`` is in seconds since the epoch.

    The limiter counts the replicas that are decided on. So the replicas of a model that cannot be decided on are
    subtracted from the inventory (``counts_pods``).
    """
    return isolated(_decide, snapshot, memory, policy, now, counts_pods=True)


def _decide(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Outcome:
    """Decide on all models; an error on any of them is raised."""
    progresses: list[Progress] = []
    decisions: list[Decision] = []
    for model_readings in believe(snapshot, memory, policy, now)[0]:
        model = [readings for readings in model_readings.variants if readings.progress.variant.active]
        progresses += [readings.progress for readings in model]
        # 1 analyze the model, 2 find a number for each variant
        drafts = decide_model(model, model_readings.policy, model_readings.failure)
        # 3 an idle model goes to zero, any other keeps a replica; variants without a target are left out. The original
        # counted a time without samples in Prometheus as a time without requests; here it counts as unknown.
        rule = policy.scale_to_zero_for(model_readings.key)
        finished = (
            model_readings.counts.finished
            if model_readings.counts is not None and model_readings.counts.covered
            else None
        )
        numbers = {draft.key.name: draft.desired for draft in drafts if draft.reason is Reason.COMPATIBILITY}
        changed = enforced(numbers, {draft.key.name: draft.cost for draft in drafts}, rule, finished) or {}
        reason, words = Reason.MODEL_MINIMUM, "the model may not go to zero"
        if rule.enabled:
            reason, words = Reason.IDLE, f"no request finished within {rule.retention_seconds:g} s"
        for draft, readings in zip(drafts, model, strict=True):
            name, bounds = draft.key.name, readings.progress.variant.bounds
            decision = draft.with_step("enforce", reason, words, changed[name]) if name in changed else draft
            # 4 bounds, which the original did not have. A decision without evidence keeps its reason.
            desired, allowed = decision.desired, bounds.clamp(decision.desired)
            if allowed == desired:
                decisions.append(decision.noted("enforce", "within bounds"))
                continue
            side, limit, origin, by = "above", "maximum", bounds.ceiling_origin, bounds.ceiling_origin
            if allowed > desired:
                side, limit, origin, by = "below", "minimum", bounds.minimum_origin, ""
            message = f"{desired} is {side} the {limit} {allowed} of {origin}; {decision.message}"
            bounded_reason = decision.reason if decision.held else Reason.BOUNDED
            decisions.append(decision.limited("enforce", bounded_reason, message, allowed, by=by))
    # 5 no more GPUs than there are, over all models. Decisions without a target are left out, and an inventory that
    # could not be read limits nothing.
    if policy.limited and snapshot.inventory is None:
        decisions = [decision.noted("limit", "GPU inventory unknown: not limited") for decision in decisions]
    elif policy.limited and snapshot.inventory is not None:
        claims = [
            (decision, progress.variant)
            for decision, progress in zip(decisions, progresses, strict=True)
            if not decision.held
        ]
        taken, pools = used(claims), Inventory.of(list(snapshot.inventory.pools)).pools
        free = {pool.accelerator: max(0, pool.capacity - taken[pool.accelerator]) for pool in pools}
        limited = {decision.key: decision for decision in grants(claims, free)}
        decisions = [limited.get(decision.key, decision) for decision in decisions]
    # 6 the clocks, and the variants at zero
    entries = [clocked(decision, progress, now=now) for decision, progress in zip(decisions, progresses, strict=True)]
    pairs = zip(decisions, progresses, strict=True)
    late = {decision.key: trouble for decision, progress in pairs if (trouble := lateness(decision, progress))}
    entries += [asleep(variant) for variant in snapshot.variants if not variant.active]
    entries.sort(key=lambda entry: entry[0].key)
    return Outcome(
        tuple(decision for decision, _ in entries),
        Memory(tuple(entry for _, entry in entries), memory.capacity.updated((), now=now)),
        late=late,
    )


# 1 Analyze: how much room do the replicas have that are not saturated?


@dataclass(frozen=True, slots=True)
class VariantLoad:
    """What the reporting pods of a variant say."""

    variant: Variant
    pods: int
    open: int  # pods that are not saturated; the means are over those
    spare_kv: float
    spare_queue: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the reporting pods of a model say."""

    loads: tuple[VariantLoad, ...]  # the variants with reporting pods, in order
    open: int
    spare_kv: float
    spare_queue: float
    shortage: str  # why to grow, else empty
    may_shrink: bool


def analyze(model: Sequence[VariantReadings], policy: SaturationPolicy) -> Analysis:
    """Analyze one model from its variants in order."""
    full, long = policy.kv_cache_threshold, policy.queue_length_threshold
    loads = []
    for variant in model:
        usages = [pod_usage for pod in variant.replicas if (pod_usage := usage(pod)) is not None]
        spare_kv = spare_queue = 0.0
        count = 0
        for kv, queue in usages:
            if kv < full and queue < long:
                count += 1
                spare_kv += full - kv
                spare_queue += long - queue
        if usages:
            means = spare_kv / max(1, count), spare_queue / max(1, count)
            loads.append(VariantLoad(variant.progress.variant, len(usages), count, *means))
    count = sum(load.open for load in loads)
    kv = queue = 0.0
    if count:
        kv = sum(load.spare_kv * load.open for load in loads) / count
        queue = sum(load.spare_queue * load.open for load in loads) / count
    kv_low = f"({kv:.3f} < {policy.kv_spare_trigger:.3f})" if kv < policy.kv_spare_trigger else ""
    queue_low = f"({queue:.1f} < {policy.queue_spare_trigger:.1f})" if queue < policy.queue_spare_trigger else ""
    shortage = ""
    if loads and kv_low and queue_low:
        shortage = f"both KV spare {kv_low} and queue spare {queue_low}"
    elif loads and (kv_low or queue_low):
        shortage = f"{'KV' if kv_low else 'queue'} spare Saturation low {kv_low or queue_low}"
    may_shrink = False
    if count > 1:
        factor = count / (count - 1)
        kv_left, queue_left = full - (full - kv) * factor, long - (long - queue) * factor
        may_shrink = kv_left >= policy.kv_spare_trigger and queue_left >= policy.queue_spare_trigger
    return Analysis(tuple(loads), count, kv, queue, shortage, may_shrink)


def usage(pod: ReplicaMetrics) -> tuple[float, float] | None:
    """Return KV usage and queue length of a pod, 0 for one that is not fresh; None for a pod that does not report.

    The original read NaN as 0, so a pod with an invalid sample does report.
    """
    samples = pod.kv_usage, pod.queue_length
    if not any(sample.state in {SampleState.FRESH, SampleState.INVALID} for sample in samples):
        return None
    return samples[0].fresh_value or 0.0, samples[1].fresh_value or 0.0


# 2 Target numbers: one replica more or less, and no change while any variant has an unfinished change


def targets(analysis: Analysis) -> dict[str, int]:
    """Return the targets of the variants with reporting pods, by name."""
    variants = [load.variant for load in analysis.loads]
    unreached = {
        variant.key.name for variant in variants if variant.status_desired not in {None, 0, variant.current_replicas}
    }
    if unreached or any(load.pods != load.variant.current_replicas for load in analysis.loads):
        return {
            variant.key.name: variant.status_desired or 0 if variant.key.name in unreached else variant.current_replicas
            for variant in variants
        }
    numbers = {load.variant.key.name: load.pods for load in analysis.loads}
    if analysis.shortage:
        growing = [(variant.cost, variant.key.name) for variant in variants if not variant.pending_replicas]
        if growing:
            numbers[min(growing)[1]] += 1
    elif analysis.may_shrink:
        shrinking = [(variant.cost, variant.key.name) for variant in variants if numbers[variant.key.name] > 1]
        if shrinking:
            numbers[max(shrinking)[1]] -= 1
    return numbers


def decide_model(
    model: Sequence[VariantReadings], policy: SaturationPolicy, failure: str | None
) -> tuple[Decision, ...]:
    """Return the decisions of a model in the order of its variants. ``failure``: its samples could not be collected.

    A variant without a target gets the number in its status, 0 included. The original published nothing for a variant
    that it had never decided on. Here such a variant publishes the replicas that exist.
    """
    pods = [pod for readings in model for pod in readings.replicas]
    hold = absence(pods, failure=failure)
    analysis = analyze(model if failure is None else (), policy)
    numbers = targets(analysis)
    spares = {load.variant.key.name: load.spare_kv for load in analysis.loads}
    reporting = sum(load.pods for load in analysis.loads)
    summary = f"{reporting} of {len(pods)} replicas report, {reporting - analysis.open} saturated"
    summary += f", mean spare KV {analysis.spare_kv:.4g}, mean spare queue {analysis.spare_queue:.4g}"
    reason = Reason.METRICS_MISSING
    if hold is not None and not numbers:
        summary, reason = hold.message, hold.reason
    decisions = []
    for readings in model:
        draft, name, variant = unchanged(readings, summary), readings.key.name, readings.progress.variant
        if name in numbers:
            draft = replace(draft, spare_capacity=spares[name])
            words = f"saturation-only mode: {replace(draft, desired=numbers[name]).action.value}"
            words += f"; {analysis.shortage}" if analysis.shortage else ""
            decisions.append(draft.with_step("optimize", Reason.COMPATIBILITY, words, numbers[name]))
            continue
        number = max(0, variant.status_desired or 0)
        source, origin = Source.PREVIOUS_DESIRED, "the number in the status"
        if not number and not variant.status_accelerator:
            number, source, origin = variant.current_replicas, Source.CURRENT_REPLICAS, "what exists, never decided on"
        words = f"{draft.metrics.message}; publishing {number}, {origin}"
        draft = replace(draft, accelerator=variant.status_accelerator or draft.accelerator, source=source)
        decisions.append(draft.with_step("optimize", reason, words, number))
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


# 3 Enforcer: a model is idle if no request finished, even while requests run or wait


def enforced(
    numbers: Mapping[str, int], costs: Mapping[str, float], policy: ScaleToZeroPolicy, finished: float | None
) -> dict[str, int] | None:
    """Return the targets of a model as the enforcer changes them, None if it does not; ``finished`` None: unknown."""
    if policy.enabled:
        return dict.fromkeys(numbers, 0) if finished is not None and finished <= 0 else None
    if not numbers or sum(numbers.values()) > 0:
        return None
    return {**numbers, min(numbers, key=lambda name: (costs[name], name)): 1}


# 5 GPU limiter: only the replicas of this cycle's decisions count as used


def used(claims: Iterable[tuple[Decision, Variant]]) -> Counter[str]:
    """Return the GPUs that the replicas of the claims take, by accelerator; an unknown size counts as 0."""
    total: Counter[str] = Counter()
    for decision, variant in claims:
        if variant.accelerator:
            total[variant.accelerator] += decision.current * max(0, variant.gpus_per_replica)
    return total


def grants(claims: Sequence[tuple[Decision, Variant]], free: dict[str, int]) -> list[Decision]:
    """Return the decisions after the limit, in the order of the claims; their GPUs are subtracted from ``free``.

    GPUs of a grant that do not make a whole replica are lost.
    """
    granted = [decision for decision, _ in claims]
    order = sorted(range(len(claims)), key=lambda index: (claims[index][0].spare_capacity, claims[index][0].cost))
    for index in order:
        decision, variant = claims[index]
        asked, gpus = max(0, decision.desired - decision.current), max(1, variant.gpus_per_replica)
        granted_gpus = min(asked * gpus, free.get(variant.accelerator, 0))
        if granted_gpus:
            free[variant.accelerator] -= granted_gpus
        count = granted_gpus // gpus
        target = decision.current + count if asked else decision.desired
        words = f"no scale-up (target={target}, current={decision.current})"
        words = f"allocated {count * gpus} GPUs for +{count} replicas" if count else words
        if count == asked:
            granted[index] = decision.noted("limit", words)
        else:
            words = f"limited: {words}" if count else words
            granted[index] = decision.limited("limit", Reason.GPU_LIMITED, words, target, by=LIMITER)
    return granted
