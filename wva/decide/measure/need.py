"""What an analyzer finds out about a model, in a unit of its own: replicas, tokens or requests per second."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from wva.decide.measure.queues import QueueModel
from wva.model.decision import Aim
from wva.model.memory import CapacityBasis
from wva.model.trouble import Absence
from wva.model.variant import ModelKey, VariantKey


class Capacity(Struct, frozen=True, gc=False):
    """What one replica of a variant carries, in the unit of its model."""

    per_replica: float  # 0 is not known; then the variant keeps its number
    basis: CapacityBasis  # how this is known
    limit: str = ""  # which limit binds, for people: "KV cache", "sequences", "time between tokens"; empty: not known


REPLICAS: Final = "replicas"  # the unit of an analyzer that does not know what a replica carries: each counts as one

UNKNOWN: Final = Capacity(0.0, CapacityBasis.UNKNOWN)


class DemandRate(Struct, frozen=True, gc=False):
    """What is known of a demand that is a rate, beside its size: its past says something about its future.

    All amounts are in the unit of the need.

    The defaults are those of a demand that is known exactly, of which nothing waits.
    """

    error: float = 0.0  # one standard error of the demand; less in a short cycle
    backlog: float = 0.0  # the demand that has piled up, in the unit times seconds
    refused: float = 0.0  # the part of the demand that was not let in, so it waits nowhere; each attempt counts
    # The demand between the last two scrapes of each pod; infinite where that is not known. A cycle that is shorter
    # than the time between two scrapes counts the demand of this whole time, or none.
    scraped: float = math.inf
    unsettled: bool = False  # whether pods came or went, so that a part of the demand may belong to the next cycle
    in_progress: float = 0.0  # the requests in progress, those that wait among them
    # The requests in progress that the serving replicas carry within the targets; infinite where that is not known.
    ceiling: float = math.inf
    # How much so many replicas of each variant get through at most, while their capacity is uncertain. Beyond the
    # capacity requests miss their targets; beyond this amount they are sure to pile up. None: what is beyond the
    # capacity counts as piling up.
    answers: Callable[[Mapping[VariantKey, int]], float] | None = None
    # Whether capacities leave room for what comes by chance: hardly anybody is late while demand is a little more.
    roomy: bool = False
    # For how long the demand has been as it is now, in multiples of the time that a replica takes to be ordered and to
    # start; infinite if it has been so for as long as WVA remembers. A move between variants has to repay its start
    # within this time.
    lasted: float = math.inf
    # The amounts that a shrink must leave, each with the reason in words. The first is what the present demand needs,
    # and has no words. Of the others, the first that keeps a replica is named. Empty if nothing is kept beyond that.
    stays: tuple[tuple[float, str], ...] = ()


class Need(Struct, frozen=True, gc=False):
    """What a model needs, as an analyzer measured it."""

    key: ModelKey
    unit: str  # of demand and capacity, for people: "requests/s"
    demand: float  # the demand for the model now, without the backlog
    required: float  # the capacity that there must be; with less of it the model grows
    sufficient: float  # the capacity that a shrink must leave, at least ``required``; between the two nothing changes
    capacities: Mapping[VariantKey, Capacity]  # what one replica of each variant carries
    rate: DemandRate | None = None  # what is known beside a demand that is a rate, None if it is none
    most_added: int | None = None  # how many replicas may be added in this cycle, None for no limit
    most_removed: int | None = None  # how many replicas may go in this cycle, None for no limit
    hold: Absence | None = None  # why nothing can be decided, None when something can
    objection: str = ""  # why nothing may shrink, in words; empty when it may
    wish: str = ""  # why the model should grow, in words; empty when it should not
    deferred: str = ""  # why no more is ordered for the wish, in words: what serves already answers it; else empty
    slow: Mapping[VariantKey, str] = {}  # which pods of a variant are slower than others of it, in words
    unusable: str = ""  # what keeps the chosen analyzer from measuring, in words, so that another one does; else empty
    summary: str = ""  # the figures in words, to explain the decision
    # The capacity of so many replicas of each variant together, if it is not the sum of theirs.
    carries: Callable[[Mapping[VariantKey, int]], float] | None = None
    solved: QueueModel | None = None  # what the queueing formulas found, None where they were not asked
    second: Need | None = None  # what another analyzer measured of the same model, until both have been foreseen
    # Whether a replica that does not report now counts as before; ``objection`` says so if it has been silent too long.
    recalls: bool = False
    # The objectives that are planned for with each variant; empty if the analyzer has none.
    aims: Mapping[VariantKey, Aim] = {}

    def carried(self, counts: Mapping[VariantKey, int]) -> float:
        """Return the capacity of so many replicas of each variant together."""
        if self.carries is not None:
            return self.carries(counts)
        return sum([count * self.capacities.get(key, UNKNOWN).per_replica for key, count in counts.items()])

    def of(self, variant: VariantKey) -> float:
        """Return what one replica of a variant carries, 0 if that is not known."""
        return self.capacities.get(variant, UNKNOWN).per_replica
