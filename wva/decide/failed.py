"""Models that make a cycle fail: they keep their last numbers, and all others are decided as if they asked for nothing.

``apart`` returns the inputs without such models. Their pods still take the GPUs that they have, and those on their way
the GPUs that they will have: what a held model was granted is not given away. ``held`` returns the number that a
variant keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from wva.decide.settling import previous_of
from wva.model.decision import Decision, MetricsVerdict, Reason, Source, Step
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory
from wva.model.memory import VariantMemory
from wva.model.metrics import Coverage
from wva.model.snapshot import Snapshot
from wva.model.variant import UNKNOWN_ACCELERATOR, ModelKey, Variant, VariantKey


@dataclass(frozen=True, slots=True)
class FailedModel:
    """A model that could not be decided on, why in words, and the exception for the log."""

    model: ModelKey
    cause: str
    error: Exception = field(compare=False)


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
    previous = previous_of(variant, entry)
    number = _number(variant, entry)
    source = Source.CURRENT_REPLICAS if previous is None else Source.PREVIOUS_DESIRED
    message = f"{cause}; keeping {number} ({source.value})"
    return Decision(
        key=variant.key,
        model=variant.model,
        accelerator=variant.accelerator or variant.status_accelerator or UNKNOWN_ACCELERATOR,
        cost=variant.cost,
        current=variant.current_replicas if variant.active else 0,
        desired=number,
        previous=previous,
        reason=Reason.MODEL_FAILED,
        message=message,
        source=source,
        metrics=MetricsVerdict(available=False, reason="MetricsUnavailable", message=cause),
        coverage=Coverage(0, variant.ready_replicas),
        steps=(Step("hold", message, number, number),),
        settling_since=entry.settling_since if entry is not None else variant.settling_since,
    )


def _number(variant: Variant, entry: VariantMemory | None) -> int:
    """Return the number of a variant that is not decided on. Never 0 for a running workload."""
    previous = previous_of(variant, entry)
    if previous is None:
        previous = max(1, variant.current_replicas) if variant.active else 0
    return variant.bounds.clamp(previous) if previous else 0
