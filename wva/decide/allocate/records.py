"""The records of step 4: offers, wants, the rules of sharing, the plan, and the stock of GPUs.

A GPU is free if no scheduled pod has it and no pod that waits for a node will take it. A namespace may also have
quotas. A *limit* is a pool of GPUs or a quota: a name, and the GPUs that are left under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from msgspec import Struct

from wva.decide.amounts import AMPLE
from wva.model.decision import LIMITER, Limit
from wva.model.inventory import NVIDIA_GPU, GpuQuota, Inventory, UnknownInventory
from wva.model.service import LOWEST_PRIORITY
from wva.model.variant import COUNTED_BY, UNKNOWN_ACCELERATOR, ModelKey, Variant, VariantKey
from wva.numbers import MAX_REPLICAS

LARGEST: Final = 1e18
"""The largest capacity and price that WVA believes. Results of arithmetic with a few such numbers are finite."""
_SMALLEST: Final = 1e-15
_LEAST_NEED: Final = 1e-300
"""A smaller need is none: divided by a capacity it could be rounded to 0, and would be a lack of no replica."""

UNKNOWN_STOCK: Final = f"{LIMITER} inventory"
"""Name of the limit while the number of GPUs is not known: nothing is free under it."""


class Offer(Struct, frozen=True, gc=False):
    """One variant: the price and the capacity of a replica, and how many of them there may be."""

    key: VariantKey
    price: float  # of one replica, in any unit that is the same for all variants
    capacity: float  # what one replica carries, in the unit of its model; 0 is unknown: the variant keeps its number
    present: int  # replicas that are asked for now; each replica beyond them is a move
    existing: int  # replicas that exist: they have their GPUs, and the scaler compares with them
    floor: int = 0  # fewest replicas
    ceiling: int | None = None  # most replicas, None for no limit; below the floor it wins, as in ``Bounds``
    ceiling_origin: str = COUNTED_BY  # who sets the ceiling, in words
    step: int = 1  # the smallest change of the existing replicas that the scaler acts on
    gpus: int = 1  # GPUs of one replica
    limits: tuple[str, ...] = ()  # names in ``Stock`` that the GPUs are taken from; empty if GPUs are not counted
    rank: tuple[float, ...] = ()  # among equal variants with equal numbers, the lowest rank gets the next replica

    @property
    def pinned(self) -> bool:
        """Whether the variant keeps its number because its capacity is not known."""
        return not _SMALLEST <= self.capacity <= LARGEST

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest number; if the floor is above the ceiling, both are the ceiling."""
        high = MAX_REPLICAS if self.ceiling is None else min(max(0, self.ceiling), MAX_REPLICAS)
        return min(max(0, self.floor), high), high

    def bounded(self, number: int) -> int:
        """Return the nearest number within the bounds."""
        low, high = self.bounds
        return min(max(number, low), high)


class Want(Struct, frozen=True, gc=False):
    """One model, or one of its roles: the capacity it needs, and the variants that offer it."""

    key: ModelKey
    need: float  # in the model's own unit; NaN asks for the present capacity, to neither grow nor shrink
    offers: tuple[Offer, ...]
    priority: int = LOWEST_PRIORITY  # of its service class, 1 the highest
    weight: float = 1.0  # within a priority the largest is first; with ``SharingRule.SCORE`` it multiplies the lack
    keeps_one: bool = False  # a replica stays even without a need
    # For a role, if requests also need other roles of the model. ``part``: the share of the model's requests that come
    # to this role; 0 if no other role is needed. ``beside``: what the variants that keep their number carry of these.
    part: float = 0.0
    beside: float = 0.0

    @property
    def joined(self) -> bool:
        """Whether requests also need other roles, which can use no more of this role than they carry themselves."""
        return _SMALLEST <= self.part <= LARGEST and abs(self.beside) <= LARGEST and self.believed > 0.0

    def requests(self, covered: float) -> float:
        """Return how many requests of the model a role carries if this much of its need is covered."""
        return (covered + self.beside) / self.part if self.joined else covered

    def needed(self, requests: float) -> float:
        """Return how much of the need of a role has to be covered for this many requests of the model."""
        return requests * self.part - self.beside if self.joined else requests

    @property
    def believed(self) -> float:
        """The need as far as WVA believes it: 0 if it is too small, at most ``AMPLE``; NaN stays."""
        return 0.0 if self.need < _LEAST_NEED else min(self.need, AMPLE)


class SharingRule(StrEnum):
    """Which models get GPUs if there are too few for all: the order of the models, and what each turn gives.

    All but the first two are best effort (``saturationPolicy``): models that can be covered completely come first.
    """

    # One model after another, by priority, weight and name; each gets as much as it can use. Within a priority, each
    # model first gets what it was promised: weights are measured anew in each cycle, and so the order of two models may
    # change by chance.
    PRIORITY = "Priority"
    SCORE = "Score"  # a replica to the model that lacks the most, times its weight
    NONE = "None"  # nothing to the others
    PRIORITY_EXHAUSTIVE = "PriorityExhaustive"  # the others get what is left, one after another
    PRIORITY_ROUND_ROBIN = "PriorityRoundRobin"  # the others get one replica in turns, within each priority
    ROUND_ROBIN = "RoundRobin"  # the others get one replica in turns


@dataclass(frozen=True, slots=True)
class AllocationPolicy:
    """The rules of an allocation."""

    sharing: SharingRule = SharingRule.PRIORITY
    delayed: bool = False  # best effort comes after the models of all priorities, not after those of each
    move_share: float = 0.1  # what a replica beyond the present ones costs more, as a share of its price
    effort: int = 250_000  # bounds the search: numbers of replicas that it looks at, in about a second


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of each variant. The gap is 0 if the plan is the cheapest one."""

    numbers: Mapping[VariantKey, int]  # of replicas
    missing: Mapping[ModelKey, float] = field(default_factory=dict)  # capacity not covered, of models that lack some
    limits: Mapping[VariantKey, Limit] = field(default_factory=dict)  # of variants that would have more replicas
    gap: float = 0.0  # the largest share by which the price of models that are solved together may exceed the lowest
    # For each model with roles that lack capacity: the role that keeps the model from serving more.
    binding: Mapping[ModelKey, ModelKey] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stock:
    """The free GPUs by the name of their limit; a limit whose name is absent has none.

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
        """Return the GPUs that are free after each pod that waits for a node has got its GPUs."""
        if inventory is None:
            return UNLIMITED if unknown is UnknownInventory.UNLIMITED else Stock()
        inventory = Inventory.of(list(inventory.pools), list(inventory.quotas))
        # If several pools have one accelerator, the first counts, as in ``pool_of``; if several quotas have one name,
        # the smallest counts.
        free = {f"{LIMITER} {pool.accelerator}": pool.free for pool in reversed(inventory.pools)}
        for quota in inventory.quotas:
            free[_name(quota)] = min(quota.free, free.get(_name(quota), quota.free))
        for variant in variants:
            pool = inventory.pool_of(variant.accelerator or variant.status_accelerator)
            if pool is not None:
                waiting = max(variant.unplaced_pods, variant.unschedulable_pods) * max(1, variant.gpus_per_replica)
                name = f"{LIMITER} {pool.accelerator}"
                free[name] = max(0, free[name] - waiting)
        return Stock(free, inventory)

    def limits_of(self, variant: Variant) -> tuple[str, ...]:
        """Return the limits that every replica of a variant draws from."""
        if self.inventory is None:
            return (UNKNOWN_STOCK,) if self.counted else ()
        accelerator = variant.accelerator or variant.status_accelerator
        pool = self.inventory.pool_of(accelerator)
        if pool is None:
            return (f"{LIMITER} {accelerator or UNKNOWN_ACCELERATOR}",)
        quotas = self.inventory.quotas_for(variant.key.namespace, pool.resource)
        return (f"{LIMITER} {pool.accelerator}", *map(_name, quotas))


UNLIMITED: Final = Stock(counted=False)
"""The stock where GPUs are not counted."""


def _name(quota: GpuQuota) -> str:
    name = f"ResourceQuota {quota.namespace}/{quota.name}"
    return name if quota.resource == NVIDIA_GPU else f"{name} {quota.resource}"
