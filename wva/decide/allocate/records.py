"""What is allocated, to whom, and by which rules: the records of step 4. The free GPUs are in ``stock``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from wva.model.decision import Limit
from wva.model.service import LOWEST_PRIORITY
from wva.model.variant import COUNTED_BY, ModelKey, VariantKey


class Offer(Struct, frozen=True, gc=False):
    """One variant: what a replica costs and carries, and how many of them there may be."""

    key: VariantKey
    price: float  # of one replica, in any unit that is the same for all variants; 0 is as good as nothing
    capacity: float  # what one replica carries, in the unit of its model; 0 is unknown: the variant keeps its number
    present: int  # replicas that are asked for now; those beyond it are moves
    existing: int  # replicas that exist: they have their GPUs, and the scaler compares with them
    floor: int = 0  # fewest replicas
    ceiling: int | None = None  # most replicas, None for no limit; below the floor it wins, as in ``Bounds``
    ceiling_origin: str = COUNTED_BY  # who sets the ceiling, in words
    step: int = 1  # the smallest change of the existing replicas that the scaler acts on
    gpus: int = 1  # GPUs of one replica
    limits: tuple[str, ...] = ()  # of the ``Stock`` that they are taken from; empty where GPUs are not counted
    rank: tuple[float, ...] = ()  # of equal variants with equal numbers the lowest gets the next replica


class Want(Struct, frozen=True, gc=False):
    """One model: the capacity it needs, and the variants that offer it."""

    key: ModelKey
    need: float  # in the model's own unit; NaN asks for the present capacity, to neither grow nor shrink
    offers: tuple[Offer, ...]
    priority: int = LOWEST_PRIORITY  # of its service class, 1 the highest
    weight: float = 1.0  # the largest is first of one priority; with ``SharingRule.SCORE`` it multiplies the lack
    keeps_one: bool = False  # a replica stays even without a need


class SharingRule(StrEnum):
    """Which models get GPUs that do not suffice for all: whose turn it is, and what a turn gives.

    All but the first two are best effort (``saturationPolicy``): models that can be covered completely come first.
    """

    PRIORITY = "Priority"  # one model after another, by priority, weight and name, as much as each can use
    SCORE = "Score"  # a replica to the model of which most is missing, times its weight
    NONE = "None"  # nothing to the others
    PRIORITY_EXHAUSTIVE = "PriorityExhaustive"  # to the others what is left, one after another
    PRIORITY_ROUND_ROBIN = "PriorityRoundRobin"  # to the others one replica in turns, within each priority
    ROUND_ROBIN = "RoundRobin"  # to the others one replica in turns


@dataclass(frozen=True, slots=True)
class AllocationPolicy:
    """The rules of an allocation."""

    sharing: SharingRule = SharingRule.PRIORITY
    delayed: bool = False  # best effort comes after the models of all priorities, not after those of each
    move_share: float = 0.1  # what a replica beyond the present ones costs more, as a share of its price
    effort: int = 250_000  # bounds the search: numbers of replicas that it looks at, in about a second


@dataclass(frozen=True, slots=True)
class Plan:
    """What every variant gets. The gaps are 0 when the plan is the best one."""

    numbers: Mapping[VariantKey, int]  # of replicas
    missing: Mapping[ModelKey, float] = field(default_factory=dict)  # capacity not covered, of models that lack some
    limits: Mapping[VariantKey, Limit] = field(default_factory=dict)  # who kept a variant from so many replicas more
    gap: float = 0.0  # the largest share by which the price of models that are solved together may exceed the lowest
    coverage_gap: float = 0.0  # the largest share of the needs of such models that might be covered in addition
