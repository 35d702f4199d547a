"""The unlimited and the greedy solver choose a candidate for each server. No numpy.

Names break ties, so that the same inputs give the same allocation. The result has a server that needs no replicas with
0 replicas, also under limited capacity. (The Go controller left it out there.)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tests.golden.original.allocations import NO_ACCELERATOR, Allocation, Market, OriginalServer
from tests.golden.original.shortage import FreeCards, Leftover, best_effort
from wva.model.records import replace

Allocations = dict[str, Allocation]


def solve(system: Market, options: Mapping[str, Sequence[Allocation]]) -> Allocations:
    """Return an allocation per server; a server that gets nothing is absent. ``options`` are candidates by server."""
    if system.options.unlimited:
        return {name: min(_whole(options[name]), key=_cheapest) for name in sorted(options) if options[name]}
    return _greedy(system, options)


def _whole(options: Sequence[Allocation]) -> list[Allocation]:
    """Return the candidates that serve the whole demand."""
    return [option for option in options if not option.short]


def _cheapest(allocation: Allocation) -> tuple[float, float, str]:
    return allocation.value, allocation.cost, allocation.accelerator


@dataclass(frozen=True, slots=True)
class _WaitingServer:
    """A server that waits for capacity, and its next candidate; best effort chooses from ``everything``."""

    server: OriginalServer
    rank: int
    options: tuple[Allocation, ...]
    everything: tuple[Allocation, ...]
    position: int = 0

    @property
    def wanted(self) -> Allocation:
        """The candidate that the server wants next."""
        return self.options[self.position]

    @property
    def urgency(self) -> tuple[int, float, float]:
        """Order of service: priority, then the cost of the next best candidate, then the value."""
        following = self.position + 1
        regret = math.inf
        if following < len(self.options):
            regret = self.options[following].value - self.wanted.value
        return self.rank, -regret, -self.wanted.value


def _entry(system: Market, name: str, options: Sequence[Allocation]) -> _WaitingServer:
    server, everything = system.servers[name], tuple(sorted(options, key=_cheapest))
    return _WaitingServer(server, system.rank(server), tuple(_whole(everything)), everything)


def _greedy(system: Market, options: Mapping[str, Sequence[Allocation]]) -> Allocations:
    entries = [_entry(system, name, options[name]) for name in sorted(options) if options[name]]
    entries.sort(key=lambda entry: entry.urgency)
    stock = FreeCards(system)
    chosen: Allocations = {}
    if system.options.delayed:
        best_effort(system.options.best_effort, _allocate(entries, stock, chosen), stock=stock, chosen=chosen)
        return chosen
    for _, level in groupby(entries, key=lambda entry: entry.rank):
        best_effort(system.options.best_effort, _allocate(list(level), stock, chosen), stock=stock, chosen=chosen)
    return chosen


def _allocate(entries: list[_WaitingServer], stock: FreeCards, chosen: Allocations) -> list[Leftover]:
    """Serve the entries in order; a server that fits nowhere is left over."""
    leftovers = []
    while entries:
        entry = entries.pop(0)
        wanted, name = entry.wanted, entry.server.name
        if wanted.accelerator == NO_ACCELERATOR or stock.take(entry.server, wanted, wanted.replicas):
            chosen[name] = wanted
        elif entry.position + 1 < len(entry.options):
            later = replace(entry, position=entry.position + 1)
            entries.insert(bisect_left(entries, later.urgency, key=lambda each: each.urgency), later)
        else:
            leftovers.append(Leftover(entry.server, entry.rank, entry.everything))
    return leftovers
