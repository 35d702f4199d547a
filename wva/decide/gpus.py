"""The free GPUs, for the stages that need them before the limiter. No numpy.

The model-based optimizer shares the GPUs among all models (``fleet``). Its second opinion never goes past what one
variant could have of them (``most``). Both count as the limiter does: a GPU is free if no pod has it and no pod waits
for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from wva.decide.limit import Stock
from wva.decide.queueing.fleet import Fleet, Gpus
from wva.decide.queueing.system import Options
from wva.decide.settling import Progress
from wva.model.inventory import AcceleratorPool, Inventory, UnknownInventory
from wva.model.policy import Policy
from wva.model.snapshot import Snapshot
from wva.model.variant import Variant


@dataclass(frozen=True, slots=True)
class GpuView:
    """``stock`` is None while the number of GPUs is unknown; ``binding`` whether growth obeys a budget then."""

    fleet: Fleet
    stock: Stock | None = None
    binding: bool = False

    @staticmethod
    def of(snapshot: Snapshot, policy: Policy) -> GpuView:
        """Return what a cycle sees of the GPUs."""
        open_ended = snapshot.inventory is None and policy.unknown_inventory is UnknownInventory.UNLIMITED
        stock = None
        if snapshot.inventory is not None and policy.counts_gpus:
            inventory = Inventory.of(list(snapshot.inventory.pools), list(snapshot.inventory.quotas))
            stock = Stock.of(inventory, snapshot.variants)
        limited = policy.model_limited and not open_ended
        options = Options(not limited, policy.solver.best_effort, policy.solver.delayed)
        gpus = _gpus(stock, snapshot) if limited else Gpus()
        return GpuView(Fleet(options, gpus), stock, binding=policy.limited and not open_ended)

    def most(self, progress: Progress) -> int | None:
        """Return the largest number that the budget leaves to a variant, None where no budget is in force."""
        if not self.binding:
            return None
        if self.stock is None:
            return progress.previous or 0
        variant = progress.variant
        floor = max(progress.current, variant.bounds.minimum or 0)
        pool = self.stock.pool_of(variant)
        if pool is None:
            return floor
        free = min((self.stock.pools[pool], *(gpus for gpus, _ in _quotas(self.stock, variant, pool))))
        return floor + free // max(1, variant.gpus_per_replica)


def _gpus(stock: Stock | None, snapshot: Snapshot) -> Gpus:
    if stock is None:
        return Gpus(unknown=snapshot.inventory_detail or "not read")
    pools = {variant.key: (variant, pool) for variant in snapshot.variants if (pool := stock.pool_of(variant))}
    tightest = {key: min(_quotas(stock, *place), default=None) for key, place in pools.items()}
    return Gpus(
        stock.free_by_accelerator(),
        {key: pool.accelerator for key, (_, pool) in pools.items()},
        {
            key: (quota[0] // max(1, pools[key][0].gpus_per_replica), quota[1])
            for key, quota in tightest.items()
            if quota is not None
        },
    )


def _quotas(stock: Stock, variant: Variant, pool: AcceleratorPool) -> list[tuple[int, str]]:
    """Return the GPUs that each quota leaves to a variant, and its name."""
    quotas = stock.inventory.quotas_for(variant.key.namespace, pool.resource)
    return [(stock.quotas[quota], f"ResourceQuota {quota.namespace}/{quota.name}") for quota in quotas]
