"""All models at once: which model grows on which variant, within the free GPUs. No numpy.

A *server* of the solvers (``solvers``) is a model that needs more than its replicas carry. Its candidates are ways to
carry the rest: on one variant alone, or on several at the lowest cost (``cover``). A chosen candidate is taken as a
whole. If no candidate of a model fits, the model gets what the policy of best effort gives, of one variant. Without a
budget every model gets its cheapest candidate. A shrink needs no GPUs, and frees none before its pods are gone.

The Go controller took whole fleets for candidates, and moved a model from one accelerator to another at a penalty. Here
replicas are added to those that serve, and the value of a candidate is its cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from wva.decide.amounts import rounded_up
from wva.decide.queueing.cover import ROUNDING, Carrier, carried, cover, spread
from wva.decide.queueing.solvers import Allocations, solve
from wva.decide.queueing.system import Allocation, Load, Options, Server
from wva.decide.wording import LIMITER
from wva.model.variant import ModelKey, VariantKey

SEVERAL: Final = "several"
"""Accelerator of a candidate on more than one variant."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs that are free by type, and the type that the replicas of a variant take (absent: there are none such).

    ``rooms`` are the replicas that quotas leave to a variant, and the name of the tightest; absent without a quota.
    ``unknown`` says why their number is unknown, empty when it is known.
    """

    free: Mapping[str, int] = field(default_factory=dict)
    types: Mapping[VariantKey, str] = field(default_factory=dict)
    rooms: Mapping[VariantKey, tuple[int, str]] = field(default_factory=dict)
    unknown: str = ""

    def binding(self, carrier: Carrier, wanted: int) -> str:
        """Return whose limit keeps a variant from getting so many replicas more."""
        if self.unknown:
            return f"{LIMITER} inventory"
        room, name = self.rooms.get(carrier.key, (wanted, ""))
        return name if room < wanted else f"{LIMITER} {self.types.get(carrier.key, carrier.accelerator)}"


@dataclass(frozen=True, slots=True)
class Fleet:
    """How all models are solved together: the options, and the GPUs that count unless these are unlimited."""

    options: Options = field(default_factory=Options)
    gpus: Gpus = field(default_factory=Gpus)


UNLIMITED: Final = Fleet()


@dataclass(frozen=True, slots=True)
class FleetNeed:
    """What a model has to carry (requests per second), and what may carry it; ``rank`` is that of its class."""

    model: ModelKey
    rank: int
    demand: float
    carriers: tuple[Carrier, ...]
    shrinks: bool

    @property
    def name(self) -> str:
        """Name of the model, by which ties are broken."""
        return f"{self.model.namespace}/{self.model.model_id}"

    @property
    def missing(self) -> float:
        """Requests per second that are not carried yet, 0 when all are."""
        missing = self.demand - carried(self.carriers)
        return missing if missing > ROUNDING * self.demand else 0.0


@dataclass(frozen=True, slots=True)
class Grant:
    """Replicas by variant, what they would be without a budget, and requests per second that no variant can carry.

    ``candidates`` is among how many ways to carry the demand the solver chose: 1 for a model that needs nothing more.
    ``bindings`` are those who keep variants from what they would get.
    """

    numbers: Mapping[VariantKey, int]
    wanted: Mapping[VariantKey, int]
    short: float = 0.0
    candidates: int = 1
    bindings: Mapping[VariantKey, str] = field(default_factory=dict)

    def denied(self, key: VariantKey) -> int:
        """Return how many replicas fewer than wanted a variant gets."""
        return max(0, self.wanted[key] - self.numbers[key])


def plan(needs: Sequence[FleetNeed], fleet: Fleet = UNLIMITED) -> tuple[Grant, ...]:
    """Return what every model gets, in their order."""
    growing = {need.name: need for need in needs if need.missing > 0}
    candidates, wanted = _chosen(growing, UNLIMITED)
    chosen = wanted
    if not fleet.options.unlimited:
        candidates, chosen = _chosen(growing, fleet)
    grants = []
    for need in needs:
        numbers, short = cover(need.demand, need.carriers, shrinks=need.shrinks)
        grant = Grant(numbers, numbers, short)
        if need.name in growing:
            grant = Grant(
                _numbers(need, chosen.get(need.name)),
                _numbers(need, wanted.get(need.name)),
                short,
                len(candidates[need.name]),
            )
        grants.append(_bound(grant, need, fleet.gpus))
    return tuple(grants)


def _bound(grant: Grant, need: FleetNeed, gpus: Gpus) -> Grant:
    denied = [carrier for carrier in need.carriers if grant.denied(carrier.key)]
    return replace(
        grant, bindings={each.key: gpus.binding(each, grant.wanted[each.key] - each.planned) for each in denied}
    )


def _chosen(growing: Mapping[str, FleetNeed], fleet: Fleet) -> tuple[dict[str, list[Allocation]], Allocations]:
    """Return the candidates of the models that grow, and what the solver chooses for them, by their names."""
    rooms = {} if fleet.options.unlimited else fleet.gpus.rooms
    candidates = {name: _candidates(need, rooms) for name, need in growing.items()}
    return candidates, solve(_Market(growing, fleet), candidates)


def _candidates(need: FleetNeed, rooms: Mapping[VariantKey, tuple[int, str]]) -> list[Allocation]:
    """Return the ways to carry what is missing: all of it, and for best effort as much as one variant can."""
    carriers = [_within(carrier, rooms) for carrier in need.carriers]
    numbers, _ = cover(need.demand, carriers, shrinks=False)
    added = [(carrier, numbers[carrier.key] - carrier.planned) for carrier in carriers]
    parts = tuple(_part(carrier, count) for carrier, count in added if count > 0)
    if not parts:
        return []
    mixed = parts[0]
    if len(parts) > 1:
        cost = math.fsum(part.cost for part in parts)
        mixed = Allocation(SEVERAL, sum(part.replicas for part in parts), cost=cost, value=cost, parts=parts)
    alone = [_alone(carrier, need.missing) for carrier in carriers if carrier.room > 0]
    same = (mixed.accelerator, mixed.replicas)
    return [mixed, *(each for each in alone if (each.accelerator, each.replicas) != same)]


def _alone(carrier: Carrier, missing: float) -> Allocation:
    """Return as much as one variant can carry; what it leaves is priced as what it carries."""
    replicas = int(min(max(1, rounded_up(missing / carrier.rate - ROUNDING)), carrier.room))
    part = _part(carrier, replicas)
    left = missing - replicas * carrier.rate
    if left <= ROUNDING * missing:
        return part
    return replace(part, value=part.cost * missing / (replicas * carrier.rate), short=left)


def _part(carrier: Carrier, replicas: int) -> Allocation:
    cost = carrier.cost * replicas
    return Allocation(str(carrier.key), replicas, cost=cost, value=cost, rate=carrier.rate)


def _within(carrier: Carrier, rooms: Mapping[VariantKey, tuple[int, str]]) -> Carrier:
    """Return a carrier that grows no further than quotas allow."""
    room, _ = rooms.get(carrier.key, (carrier.room, ""))
    return carrier if room >= carrier.room else replace(carrier, highest=carrier.planned + int(room))


def _numbers(need: FleetNeed, chosen: Allocation | None) -> dict[VariantKey, int]:
    parts = () if chosen is None else chosen.parts or (chosen,)
    added = {part.accelerator: part.replicas for part in parts}
    numbers = {carrier.key: carrier.planned + added.get(str(carrier.key), 0) for carrier in need.carriers}
    return spread(need.carriers, numbers)


class _Market:
    """The models that grow as servers, and their variants as what these are served on."""

    def __init__(self, growing: Mapping[str, FleetNeed], fleet: Fleet) -> None:
        self.options = fleet.options
        self.capacity = fleet.gpus.free
        self.servers = {
            name: Server(name, "", need.model.model_id, Load(need.demand * 60, 0.0, 0.0))
            for name, need in growing.items()
        }
        self._ranks = {name: need.rank for name, need in growing.items()}
        carriers = [carrier for need in growing.values() for carrier in need.carriers]
        self._types = {str(each.key): fleet.gpus.types.get(each.key, "") for each in carriers}
        self._cards = {str(each.key): each.cards for each in carriers}

    def rank(self, server: Server) -> int:
        """Return the priority of a model."""
        return self._ranks[server.name]

    def type_of(self, accelerator: str) -> str:
        """Return the type of GPUs that a variant runs on."""
        return self._types[accelerator]

    def cards(self, server: Server, accelerator: str) -> int:  # noqa: ARG002 - a system asks for both
        """Return the GPUs that one replica of a variant takes."""
        return self._cards[accelerator]
