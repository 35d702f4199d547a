"""The free GPUs: the one place that says how many there are, and from which of them a variant takes.

A GPU is free if no scheduled pod has it and no pod that waits for a node will take it. A namespace may also have
quotas. All of these are *limits*: a name and the GPUs that are left under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from wva.decide.wording import LIMITER
from wva.model.inventory import NVIDIA_GPU, AcceleratorPool, GpuQuota, Inventory, UnknownInventory
from wva.model.variant import UNKNOWN_ACCELERATOR, Variant

UNKNOWN_STOCK: Final = f"{LIMITER} inventory"
"""Name of the limit while the number of GPUs is not known: nothing is free under it."""


@dataclass(frozen=True, slots=True)
class Stock:
    """GPUs that are free by the name of their limit; a name that is absent has none.

    ``counted``: whether GPUs limit anything at all. ``inventory`` None: the number of GPUs is not known.
    """

    free: Mapping[str, int] = field(default_factory=dict)
    inventory: Inventory | None = None
    counted: bool = True

    @property
    def frozen(self) -> bool:
        """Whether nothing grows beyond what is asked for already, because the number of GPUs is not known."""
        return self.counted and self.inventory is None

    @staticmethod
    def of(
        inventory: Inventory | None,
        variants: Iterable[Variant],
        *,
        unknown: UnknownInventory = UnknownInventory.NO_GROWTH,
    ) -> Stock:
        """Return what is free once the pods that wait for a node have theirs."""
        if inventory is None:
            return UNLIMITED if unknown is UnknownInventory.UNLIMITED else Stock()
        inventory = Inventory.of(list(inventory.pools), list(inventory.quotas))
        # Of pools of one accelerator the first is what ``pool_of`` finds.
        limits: list[AcceleratorPool | GpuQuota] = [*reversed(inventory.pools), *inventory.quotas]
        free: dict[str, int] = {}
        for limit in limits:
            name = _name(limit)
            # Of pools of one accelerator the last here counts, of quotas of one name the smallest.
            known = free.get(name, limit.free) if isinstance(limit, GpuQuota) else limit.free
            free[name] = min(limit.free, known)
        for variant in variants:
            pool = inventory.pool_of(variant.accelerator or variant.status_accelerator)
            if pool is not None:
                waiting = max(variant.unplaced_pods, variant.unschedulable_pods) * max(1, variant.gpus_per_replica)
                free[_name(pool)] = max(0, free[_name(pool)] - waiting)
        return Stock(free, inventory)

    def limits_of(self, variant: Variant) -> tuple[str, ...]:
        """Return the limits that every replica of a variant draws from."""
        if self.inventory is None:
            return (UNKNOWN_STOCK,) if self.counted else ()
        accelerator = variant.accelerator or variant.status_accelerator
        pool = self.inventory.pool_of(accelerator)
        if pool is None:
            return (f"{LIMITER} {accelerator or UNKNOWN_ACCELERATOR}",)
        return (_name(pool), *map(_name, self.inventory.quotas_for(variant.key.namespace, pool.resource)))


UNLIMITED: Final = Stock(counted=False)
"""The stock where GPUs are not counted."""


def _name(limit: AcceleratorPool | GpuQuota) -> str:
    if isinstance(limit, AcceleratorPool):
        return f"{LIMITER} {limit.accelerator}"
    return f"ResourceQuota {limit.namespace}/{limit.name}" + f" {limit.resource}" * (limit.resource != NVIDIA_GPU)
