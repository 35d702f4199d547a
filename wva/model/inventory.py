"""GPUs of the cluster as values: how many there are, how many are taken, and what a namespace may take.

``wva.collect.inventory`` fills an Inventory from nodes, pods and ResourceQuotas. Nodes say ``NVIDIA-A100-PCIE-80GB``
where the label of a variant says ``A100``. Cards of one product with different memory share a pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NVIDIA_GPU: Final = "nvidia.com/gpu"


def normalize_accelerator(product: str) -> str:
    """Return the short name of a GPU product: ``NVIDIA-H100-80GB-HBM3`` is ``H100``.

    A name without a dash is one already. Apply it once: ``Intel-Gaudi-2-96GB`` is ``Gaudi-2``, and that would be ``2``.
    """
    maker, *parts = product.split("-")
    if maker.upper() == "INTEL":
        parts = ["-".join(parts[:2])] if parts else []
    return parts[0] if parts else product


@dataclass(frozen=True, slots=True, order=True)
class AcceleratorPool:
    """The GPUs of one product: ``capacity`` on usable nodes, ``used`` by the scheduled pods of all namespaces.

    ``accelerator`` is the normalised product, ``resource`` the resource name that pods request.
    """

    accelerator: str
    capacity: int
    used: int
    resource: str = NVIDIA_GPU

    @property
    def free(self) -> int:
        """GPUs that no scheduled pod has; 0 if more are used than there are, because a node went away."""
        return max(0, self.capacity - self.used)


@dataclass(frozen=True, slots=True, order=True)
class GpuQuota:
    """What a ResourceQuota ``name`` lets its namespace request of one GPU resource: ``hard``, and ``used`` already."""

    namespace: str
    resource: str
    hard: int
    used: int
    name: str = ""

    @property
    def free(self) -> int:
        """GPUs that pods of the namespace may still request."""
        return max(0, self.hard - self.used)


@dataclass(frozen=True, slots=True)
class Inventory:
    """All pools, sorted by accelerator, and all quotas, sorted by namespace, resource and name."""

    pools: tuple[AcceleratorPool, ...] = ()
    quotas: tuple[GpuQuota, ...] = ()

    @staticmethod
    def of(pools: list[AcceleratorPool], quotas: list[GpuQuota] | None = None) -> Inventory:
        """Return an Inventory in canonical order; pools of the same accelerator and resource are added up."""
        merged: dict[tuple[str, str], AcceleratorPool] = {}
        for pool in pools:
            key = (pool.accelerator, pool.resource)
            former = merged.get(key, AcceleratorPool(pool.accelerator, 0, 0))
            capacity, used = former.capacity + pool.capacity, former.used + pool.used
            merged[key] = AcceleratorPool(pool.accelerator, capacity, used, pool.resource)
        return Inventory(tuple(merged[key] for key in sorted(merged)), tuple(sorted(quotas or [])))

    def pool_of(self, accelerator: str) -> AcceleratorPool | None:
        """Return the pool that a variant's accelerator label means, None when there is none.

        The label may be a short name or a full product; case does not matter.
        """
        for wanted in (accelerator.casefold(), normalize_accelerator(accelerator).casefold()):
            for pool in self.pools:
                if wanted and pool.accelerator.casefold() == wanted:
                    return pool
        return None

    def quotas_for(self, namespace: str, resource: str) -> tuple[GpuQuota, ...]:
        """Return the quotas that a pod of the namespace has to fit into."""
        return tuple(quota for quota in self.quotas if (quota.namespace, quota.resource) == (namespace, resource))


class UnknownInventory(StrEnum):
    """What the limiter does while the number of GPUs is unknown."""

    NO_GROWTH = "no-growth"
    UNLIMITED = "unlimited"
