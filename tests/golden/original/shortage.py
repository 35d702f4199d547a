"""The policies of best effort, for servers that cannot all get enough cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from tests.golden.original.allocations import Allocation, Market, OriginalServer
from wva.model.optimizers import BestEffort


@dataclass(frozen=True, slots=True)
class Leftover:
    """A server that could not be served in full, with its candidates, the best first."""

    server: OriginalServer
    rank: int
    options: tuple[Allocation, ...]


@dataclass(slots=True)
class FreeCards:
    """Free cards per type; a type without a count has none."""

    system: Market
    free: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        """Start with the whole capacity."""
        self.free = dict(self.system.capacity)

    def affordable(self, server: OriginalServer, allocation: Allocation) -> int:
        """Return how many replicas the free cards allow; an allocation on several accelerators gets all or nothing."""
        if allocation.parts:
            return allocation.replicas if self._fits(server, allocation.parts) else 0
        cards = max(1, self.system.cards(server, allocation.accelerator))
        return max(0, self.free.get(self.type_of(allocation), 0)) // cards

    def take(self, server: OriginalServer, allocation: Allocation, replicas: int) -> bool:
        """Take the cards of some replicas; return whether there were enough."""
        if self.affordable(server, allocation) < replicas:
            return False
        for part in allocation.parts:
            self._deduct(server, part, part.replicas)
        if not allocation.parts:
            self._deduct(server, allocation, replicas)
        return True

    def _fits(self, server: OriginalServer, parts: Sequence[Allocation]) -> bool:
        asked: Counter[str] = Counter()
        for part in parts:
            asked[self.type_of(part)] += part.replicas * self.system.cards(server, part.accelerator)
        return all(self.free.get(kind, 0) >= count for kind, count in asked.items())

    def _deduct(self, server: OriginalServer, allocation: Allocation, replicas: int) -> None:
        self.free[self.type_of(allocation)] -= replicas * self.system.cards(server, allocation.accelerator)

    def type_of(self, allocation: Allocation) -> str:
        """Return the type of card that counts an allocation on one accelerator."""
        return self.system.type_of(allocation.accelerator)


def best_effort(
    policy: BestEffort, leftovers: Sequence[Leftover], *, stock: FreeCards, chosen: dict[str, Allocation]
) -> None:
    """Add to ``chosen`` the allocations that the policy gives to the remaining servers."""
    if policy is BestEffort.PRIORITY_EXHAUSTIVE:
        _exhaustive(leftovers, stock, chosen)
    elif policy is BestEffort.ROUND_ROBIN:
        _round_robin(leftovers, stock, chosen)
    elif policy is BestEffort.PRIORITY_ROUND_ROBIN:
        for _, level in groupby(leftovers, key=lambda leftover: leftover.rank):
            _round_robin(list(level), stock, chosen)


def _exhaustive(leftovers: Sequence[Leftover], stock: FreeCards, chosen: dict[str, Allocation]) -> None:
    """Give each server in turn as many replicas as possible of its first candidate that has any cards."""
    for leftover in leftovers:
        for option in leftover.options:
            replicas = min(stock.affordable(leftover.server, option), option.replicas)
            if replicas > 0:
                stock.take(leftover.server, option, replicas)
                chosen[leftover.server.name] = option.cut(replicas)
                break


def _round_robin(leftovers: Sequence[Leftover], stock: FreeCards, chosen: dict[str, Allocation]) -> None:
    """Give one replica to each server in turn until no server wants or can get another one."""
    picked: dict[str, tuple[Allocation, int]] = {}
    active = list(leftovers)
    while active:
        staying = []
        for leftover in active:
            name = leftover.server.name
            option, given = picked.get(name) or (_first(leftover, stock), 0)
            if option is not None and given < option.replicas and stock.take(leftover.server, option, 1):
                picked[name] = option, given + 1
                staying.append(leftover)
        active = staying
        _whole_rounds([(leftover, *picked[leftover.server.name]) for leftover in active], stock, picked)
    chosen.update({name: option.cut(replicas) for name, (option, replicas) in picked.items()})


def _whole_rounds(
    active: Sequence[tuple[Leftover, Allocation, int]], stock: FreeCards, picked: dict[str, tuple[Allocation, int]]
) -> None:
    """Take in one step all rounds in which every server gets a replica: there may be as many rounds as GPUs.

    No allocation here is on several accelerators: the cards for such a one were missing, and none become free.
    """
    each_round: Counter[str] = Counter()
    for leftover, option, _ in active:
        each_round[stock.type_of(option)] += stock.system.cards(leftover.server, option.accelerator)
    limits = [stock.free.get(kind, 0) // cards for kind, cards in each_round.items() if cards > 0]
    limits += [option.replicas - given for _, option, given in active]
    rounds = min(limits, default=0)
    for leftover, option, given in active if rounds > 0 else ():
        stock.take(leftover.server, option, rounds)
        picked[leftover.server.name] = option, given + rounds


def _first(leftover: Leftover, stock: FreeCards) -> Allocation | None:
    return next((option for option in leftover.options if stock.affordable(leftover.server, option) > 0), None)
