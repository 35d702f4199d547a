"""What an analyzer finds out about a model, and what an analyzer is.

Demand and capacity of a model are in one unit, which is the analyzer's own: replicas, tokens or requests per second.
All that comes after the measurement is the same for all units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from wva.model.memory import CapacityBasis
from wva.model.trouble import Absence
from wva.model.variant import ModelKey, VariantKey


class Capacity(Struct, frozen=True, gc=False):
    """What one replica of a variant carries, in the unit of its model.

    Attributes:
        per_replica: the amount; 0 is not known. Then the variant keeps its number.
        basis: what the amount stands on.
        limit: which limit binds, for people: "KV cache", "sequences", "time between tokens"; empty if not known.

    """

    per_replica: float
    basis: CapacityBasis
    limit: str = ""


REPLICAS: Final = "replicas"
"""The unit of an analyzer that does not know what a replica carries: each counts as one."""

UNKNOWN: Final = Capacity(0.0, CapacityBasis.UNKNOWN)


class Need(Struct, frozen=True, gc=False):
    """What a model needs, as an analyzer measured it.

    Attributes:
        key: the model.
        unit: of demand and capacity, for people: "requests/s".
        demand: the demand for the model now, without the backlog.
        required: the capacity that there must be. With less of it the model grows.
        sufficient: the capacity that a shrink must leave, at least ``required``. Between the two nothing changes.
        capacities: what one replica of each variant carries.
        backlog: the demand that has piled up, in the unit times seconds.
        foreseeable: whether the demand is a rate, so that its past says something about its future.
        error: one standard error of the demand, in the unit; 0 where it is exact.
        unsettled: whether pods came or went, so that a part of ``demand`` may belong to the next cycle.
        recalls: whether a replica that does not report now counts as it did before; ``objection`` says when that has
            been for too long.
        most_added: how many replicas may be added in this cycle, None for no limit.
        most_removed: how many replicas may go in this cycle, None for no limit.
        hold: why nothing can be decided, None when something can.
        objection: why nothing may shrink, in words; empty when it may.
        wish: why the model should grow, in words; empty when it should not.
        stays: what a shrink must leave, in rising importance: amounts, each with the reason in words; the first is what
            the present demand needs and has no words. Empty where nothing is kept beyond that.
        deferred: why the wish is not answered in this cycle, in words; empty when it is.
        summary: the figures in words, for those who ask why.
        carries: the capacity of so many replicas of each variant together, where it is not the sum of theirs.
        answers: what so many replicas of each variant get through at most, where that is more than their capacity:
            beyond the capacity targets are missed, beyond this requests pile up.
        second: what another analyzer measured of the same model, until both have been foreseen; None if none was asked.

    """

    key: ModelKey
    unit: str
    demand: float
    required: float
    sufficient: float
    capacities: Mapping[VariantKey, Capacity]
    backlog: float = 0.0
    foreseeable: bool = False
    error: float = 0.0
    most_added: int | None = None
    most_removed: int | None = None
    hold: Absence | None = None
    objection: str = ""
    wish: str = ""
    deferred: str = ""
    summary: str = ""
    carries: Callable[[Mapping[VariantKey, int]], float] | None = None
    answers: Callable[[Mapping[VariantKey, int]], float] | None = None
    unsettled: bool = False
    second: Need | None = None
    stays: tuple[tuple[float, str], ...] = ()
    recalls: bool = False

    def carried(self, counts: Mapping[VariantKey, int]) -> float:
        """Return the capacity of so many replicas of each variant together."""
        if self.carries is not None:
            return self.carries(counts)
        return sum([count * self.capacities.get(key, UNKNOWN).per_replica for key, count in counts.items()])

    def of(self, variant: VariantKey) -> float:
        """Return what one replica of a variant carries, 0 if that is not known."""
        return self.capacities.get(variant, UNKNOWN).per_replica
