"""Last stage: no number beyond the GPUs that exist.

All models are limited together. Variants that grow are served in the order of priority, least spare, lowest cost and
name. Each gets as many whole replicas as fit into the free GPUs of its accelerator and the quotas of its namespace. A
GPU is free if no scheduled pod has it and no pod that waits for a node will take it, so a shrink that is decided now
frees nothing before its pods are gone. A number is never cut below the replicas that exist or the minimum of the
scaler.

While the number of GPUs is unknown, no variant grows beyond what was granted before, unless the policy says that growth
is unlimited then. The decision says which of the two applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from wva.decide.wording import LIMITER, replicas
from wva.model.decision import Decision, Reason
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory, UnknownInventory
from wva.model.service import LOWEST_PRIORITY
from wva.model.variant import Variant, VariantKey

STAGE: Final = "limit"


@dataclass(frozen=True, slots=True)
class Claim:
    """A decision with the variant it is about. ``priority`` is that of its service class, 1 the highest."""

    decision: Decision
    variant: Variant
    priority: int = LOWEST_PRIORITY

    @property
    def floor(self) -> int:
        """What is there or comes without us: never cut below."""
        return min(self.decision.desired, max(self.decision.current, self.variant.bounds.minimum or 0))

    @property
    def asked(self) -> int:
        """Replicas beyond the floor."""
        return self.decision.desired - self.floor

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that one replica takes, at least 1."""
        return max(1, self.variant.gpus_per_replica)


@dataclass(frozen=True, slots=True)
class GpuBudget:
    """What the limiter obeys. ``inventory`` None: not known, and ``detail`` says why."""

    inventory: Inventory | None
    detail: str = ""
    unknown: UnknownInventory = UnknownInventory.NO_GROWTH


def limit(claims: Sequence[Claim], budget: GpuBudget) -> tuple[Decision, ...]:
    """Return the decisions in the order of the claims, each with a step that says what the budget did to it."""
    if budget.inventory is None:
        return tuple(_without_inventory(claim, budget) for claim in claims)
    stock = Stock.of(budget.inventory, (claim.variant for claim in claims))
    decided: dict[VariantKey, Decision] = {}
    for claim in sorted(claims, key=_order):
        decided[claim.decision.key] = _granted(claim, stock)
    return tuple(decided[claim.decision.key] for claim in claims)


@dataclass(slots=True)
class Stock:
    """The GPUs that are left in this pass, by pool and by quota."""

    inventory: Inventory
    pools: dict[AcceleratorPool, int]
    quotas: dict[GpuQuota, int] = field(default_factory=dict)

    @staticmethod
    def of(inventory: Inventory, variants: Iterable[Variant]) -> Stock:
        """Begin with what is free once the pods that wait for a node have theirs."""
        stock = Stock(inventory, {pool: pool.free for pool in inventory.pools})
        stock.quotas = {quota: quota.free for quota in inventory.quotas}
        for variant in variants:
            pool = stock.pool_of(variant)
            if pool is not None:
                waiting = max(variant.unplaced_pods, variant.unschedulable_pods)
                taken = waiting * max(1, variant.gpus_per_replica)
                stock.pools[pool] = max(0, stock.pools[pool] - taken)
        return stock

    def pool_of(self, variant: Variant) -> AcceleratorPool | None:
        """Return where the replicas of a variant come from, None when no node has such GPUs."""
        return self.inventory.pool_of(variant.accelerator or variant.status_accelerator)

    def free_by_accelerator(self) -> dict[str, int]:
        """Return the free GPUs by accelerator."""
        return {pool.accelerator: count for pool, count in self.pools.items()}

    def tightest(self, claim: Claim, pool: AcceleratorPool) -> tuple[int, str]:
        """Return the GPUs that are left for a claim, and whose limit that is."""
        limits = [(self.pools[pool], f"{LIMITER} {pool.accelerator}")]
        limits += [
            (self.quotas[quota], f"ResourceQuota {quota.namespace}/{quota.name}") for quota in self._quotas(claim, pool)
        ]
        return min(limits)

    def take(self, claim: Claim, pool: AcceleratorPool, gpus: int) -> None:
        """Deduct what has been granted, and no more than that."""
        self.pools[pool] -= gpus
        for quota in self._quotas(claim, pool):
            self.quotas[quota] -= gpus

    def _quotas(self, claim: Claim, pool: AcceleratorPool) -> tuple[GpuQuota, ...]:
        return self.inventory.quotas_for(claim.decision.key.namespace, pool.resource)


def _order(claim: Claim) -> tuple[int, float, float, VariantKey]:
    decision = claim.decision
    return claim.priority, decision.spare_capacity, decision.cost, decision.key


def _granted(claim: Claim, stock: Stock) -> Decision:
    if claim.asked <= 0:
        return claim.decision.noted(STAGE, "asks for no more GPUs")
    pool = stock.pool_of(claim.variant)
    if pool is None:
        words = f"there are no GPUs {claim.decision.accelerator} in the inventory"
        return _cut(claim, claim.floor, words, f"{LIMITER} {claim.decision.accelerator}")
    gpus = claim.gpus_per_replica
    free, binding = stock.tightest(claim, pool)
    count = min(claim.asked, free // gpus)
    stock.take(claim, pool, count * gpus)
    if count == claim.asked:
        return claim.decision.noted(STAGE, f"takes {count * gpus} of {free} free GPUs {pool.accelerator}")
    words = f"{binding} has {free} GPUs left, {gpus} per replica"
    return _cut(claim, claim.floor + count, words, binding)


def _without_inventory(claim: Claim, budget: GpuBudget) -> Decision:
    detail = budget.detail or "not read"
    if claim.asked <= 0:
        return claim.decision.noted(STAGE, "asks for no more GPUs")
    if budget.unknown is UnknownInventory.UNLIMITED:
        return claim.decision.noted(STAGE, f"GPU inventory unknown ({detail}): growth is not limited then")
    allowed = min(claim.decision.desired, max(claim.floor, claim.decision.previous or 0))
    if allowed == claim.decision.desired:
        return claim.decision.noted(STAGE, f"GPU inventory unknown ({detail}): granted before")
    return _cut(claim, allowed, f"GPU inventory unknown ({detail}): nothing grows", f"{LIMITER} inventory")


def _cut(claim: Claim, allowed: int, words: str, binding: str) -> Decision:
    """Lower the number. A decision held for lack of evidence keeps its reason: that is the greater news."""
    decision = claim.decision
    message = (
        f"limited to {allowed}: {replicas(decision.desired - allowed)} fewer than wanted, {words}; {decision.message}"
    )
    reason = decision.reason if decision.held else Reason.GPU_LIMITED
    return decision.limited(STAGE, reason, message, allowed, by=binding)
