"""Models that make a cycle fail: they keep their last numbers, and all others are decided as if they asked for nothing.

``isolated`` runs an engine over all models that it can decide on. ``apart`` returns the inputs without the others.
Their pods still take GPUs, and so do their replicas that are on the way: what a held model was granted is not given
away. ``held`` returns the number that a variant keeps, ``asleep`` that of one at zero.

If the namespace of a failing model has ConfigMaps of its own, and the models of the namespace can be decided without
them, these decisions count, and the outcome names the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from wva.decide.amounts import bounded_snapshot
from wva.decide.outcome import FailedModel, Outcome
from wva.decide.separate import separate
from wva.model.decision import Decision, MetricsVerdict, Reason, Source, Step
from wva.model.failures import cause_of
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory
from wva.model.memory import Memory, VariantMemory, previous_of
from wva.model.metrics import Coverage
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, Variant, VariantKey

Entry = tuple[Decision, VariantMemory]

Engine = Callable[[Snapshot, Memory, Policy, float], Outcome]
"""Decides on all variants of a snapshot; an exception that one model causes goes through."""


def isolated(
    engine: Engine, snapshot: Snapshot, memory: Memory, policy: Policy, now: float, *, counts_pods: bool = False
) -> Outcome:
    """Return what the engine decides of all models that it can decide on; the others keep their numbers.

    ``counts_pods``: see ``apart``. Only an exception that needs no model is raised.
    """
    snapshot = bounded_snapshot(snapshot)
    unread = {entry.model: entry.message for entry in snapshot.unread}
    remembered = memory.by_key()

    def attempt(models: Collection[ModelKey], policy: Policy = policy) -> Outcome:
        return engine(apart(snapshot, models, remembered, counts_pods=counts_pods), memory, policy, now)

    known = dict.fromkeys([variant.model for variant in snapshot.variants])
    models = sorted([model for model in known if model not in unread] if unread else known)
    outcome, errors = separate(models, attempt, suspects=memory.failing)
    refused = _refused(errors, models, policy, attempt)
    if refused:
        without = _without_local(policy, refused.keys())
        outcome, errors = separate(models, lambda kept: attempt(kept, without), suspects=errors.keys())
    causes = unread | {model: f"deciding failed: {cause_of(error)}" for model, error in errors.items()}
    if not causes:
        return replace(outcome, refused=tuple(sorted(refused.items())))
    entries = [
        _held(variant, remembered.get(variant.key), causes[variant.model])
        for variant in snapshot.variants
        if variant.model in causes
    ]
    failures = (FailedModel(model, causes[model], error) for model, error in errors.items())
    return replace(
        outcome,
        decisions=tuple(
            sorted((*outcome.decisions, *(decision for decision, _ in entries)), key=lambda each: each.key)
        ),
        memory=_with_held(outcome.memory, memory, [entry for _, entry in entries if entry is not None], causes.keys()),
        failures=tuple(sorted(failures, key=lambda failure: failure.model)),
        refused=tuple(sorted(refused.items())),
    )


def _refused(
    errors: Mapping[ModelKey, Exception],
    models: Sequence[ModelKey],
    policy: Policy,
    attempt: Callable[[Collection[ModelKey], Policy], Outcome],
) -> dict[str, str]:
    """Return the namespaces that can be decided on without their own configuration alone, with what failed with it."""
    refused = {}
    for model, error in sorted(errors.items(), key=lambda each: each[0]):
        namespace = model.namespace
        if namespace in refused or all(local.namespace != namespace for local in policy.namespaces):
            continue
        neighbours = [other for other in models if other.namespace == namespace]
        try:
            attempt(neighbours, _without_local(policy, {namespace}))
        except Exception:  # noqa: BLE001, S112 - then it is not the configuration
            continue
        refused[namespace] = cause_of(error)
    return refused


def _without_local(policy: Policy, namespaces: Collection[str]) -> Policy:
    return replace(policy, namespaces=tuple(each for each in policy.namespaces if each.namespace not in namespaces))


def _held(variant: Variant, entry: VariantMemory | None, cause: str) -> tuple[Decision, VariantMemory | None]:
    """Keep the number of a variant, and what is remembered of it; one that is at zero stays there."""
    decision = held(variant, entry, cause)
    if not variant.active and decision.desired == 0:
        kept, forgotten = asleep(variant)
        return replace(kept, message=f"{kept.message}; {cause}"), forgotten
    return decision, entry


def _with_held(after: Memory, before: Memory, entries: Iterable[VariantMemory], models: Collection[ModelKey]) -> Memory:
    """Return the memory of a cycle with what was remembered of the models that it did not decide on."""
    histories = (*after.models, *(entry for entry in before.models if entry.key in models))
    return replace(
        after,
        variants=tuple(sorted((*after.variants, *entries), key=lambda entry: entry.key)),
        models=tuple(sorted(histories, key=lambda entry: entry.key)),
        failing=tuple(sorted(models)),
    )


def apart(
    snapshot: Snapshot,
    kept: Collection[ModelKey],
    remembered: Mapping[VariantKey, VariantMemory],
    *,
    counts_pods: bool,
) -> Snapshot:
    """Return the snapshot with these models alone.

    ``counts_pods``: the limiter counts replicas itself and not what pods take (the compatibility mode), so the
    replicas of the others have to go from the inventory, too.
    """
    models = set(kept)
    others = [variant for variant in snapshot.variants if variant.model not in models]
    if not others:
        return snapshot
    keys = {variant.key for variant in others}
    inventory = snapshot.inventory
    if inventory is not None:
        inventory = _without(inventory, others, remembered, counts_pods=counts_pods)
    return replace(
        snapshot,
        variants=tuple(variant for variant in snapshot.variants if variant.model in models),
        replicas=tuple(replica for replica in snapshot.replicas if replica.variant not in keys),
        request_counts=tuple(counts for counts in snapshot.request_counts if counts.model in models),
        queues=tuple(queue for queue in snapshot.queues if queue.model in models),
        inventory=inventory,
    )


def _without(
    inventory: Inventory,
    others: list[Variant],
    remembered: Mapping[VariantKey, VariantMemory],
    *,
    counts_pods: bool,
) -> Inventory:
    pools: dict[AcceleratorPool, int] = {}
    quotas: dict[GpuQuota, int] = {}
    for variant in others:
        pool = inventory.pool_of(variant.accelerator or variant.status_accelerator)
        if pool is None:
            continue
        gpus = max(1, variant.gpus_per_replica)
        coming = max(0, _number(variant, remembered.get(variant.key)) - variant.current_replicas)
        waiting = variant.current_replicas if counts_pods else max(variant.unplaced_pods, variant.unschedulable_pods)
        pools[pool] = pools.get(pool, 0) + (waiting + coming) * gpus
        for quota in inventory.quotas_for(variant.key.namespace, pool.resource):
            quotas[quota] = quotas.get(quota, 0) + coming * gpus
    return Inventory.of(
        [replace(pool, capacity=pool.capacity - pools.get(pool, 0)) for pool in inventory.pools],
        [replace(quota, used=quota.used + quotas.get(quota, 0)) for quota in inventory.quotas],
    )


def held(variant: Variant, entry: VariantMemory | None, cause: str) -> Decision:
    """Return the decision that keeps the last number of a variant; without one, the replicas that exist."""
    previous, number = previous_of(variant, entry), _number(variant, entry)
    source = Source.CURRENT_REPLICAS if previous is None else Source.PREVIOUS_DESIRED
    words = f"{cause}; keeping {number} ({source.value})"
    since = variant.settling_since if entry is None else entry.settling_since
    decision = _unmeasured(variant, number, Step("hold", words, number, number), cause, Reason.MODEL_FAILED)
    coverage = Coverage(0, variant.ready_replicas)
    return replace(decision, previous=previous, source=source, coverage=coverage, settling_since=since)


def _number(variant: Variant, entry: VariantMemory | None) -> int:
    """Return the number of a variant that is not decided on. Never 0 for a running workload."""
    previous = previous_of(variant, entry)
    if previous is None:
        previous = max(1, variant.current_replicas) if variant.active else 0
    return variant.bounds.clamp(previous) if previous else 0


def asleep(variant: Variant) -> Entry:
    """Keep a variant at zero. When it comes back it begins anew: its past says nothing."""
    step = Step("analyze", "scaled to zero", 0, 0)
    decision = _unmeasured(variant, 0, step, "scaled to zero: no replica to report", Reason.INACTIVE)
    return decision, VariantMemory(variant.key, 0, None, 0)


def _unmeasured(variant: Variant, number: int, step: Step, cause: str, reason: Reason) -> Decision:
    """Return a decision of one step without any metrics; ``cause`` says why there are none."""
    return Decision(
        variant.key,
        variant.model,
        variant.known_accelerator,
        variant.cost,
        variant.current_replicas if variant.active else 0,
        number,
        variant.status_desired,
        reason,
        step.reason,
        Source.CURRENT_REPLICAS,
        MetricsVerdict(available=False, reason="MetricsUnavailable", message=cause),
        Coverage(0, 0),
        (step,),
    )
