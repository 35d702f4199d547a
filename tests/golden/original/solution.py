"""Solves a system: candidates, solver, latencies of cut allocations, cards per type, and the trace.

An allocation that was cut for lack of cards is evaluated again, so that its latencies are those of the replicas that it
gets. (The Go controller kept the latencies of the whole allocation.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.golden.original.allocations import NO_ACCELERATOR, Allocation
from tests.golden.original.candidates import Candidates, candidates, evaluated
from tests.golden.original.solvers import solve
from tests.golden.original.system import System
from tests.golden.original.trace import ReplicaPlan, server_head, server_line, type_lines


@dataclass(frozen=True, slots=True)
class TypeUse:
    """The allocated and the existing cards of one type, and the cost of the allocations."""

    type: str
    count: int
    limit: int
    cost: float


@dataclass(frozen=True, slots=True)
class Solution:
    """Allocations by server, the candidates of each server, and the used cards by type."""

    allocations: Mapping[str, Allocation]
    candidates: tuple[Candidates, ...]
    by_type: tuple[TypeUse, ...]

    @property
    def cost(self) -> float:
        """Cost of everything allocated."""
        return math.fsum(allocation.cost for allocation in self.allocations.values())


def optimize(system: System) -> Solution:
    """Return the solution of a system."""
    return choose(system, candidates(system))


def choose(system: System, options: tuple[Candidates, ...]) -> Solution:
    """Return the solution of a system whose candidates are known."""
    by_name = {each.server.name: each.allocations for each in options}
    chosen = solve(system, by_name)
    cut = [name for name, each in chosen.items() if all(each is not option for option in by_name[name])]
    chosen.update(zip(cut, evaluated([chosen[name] for name in cut]), strict=True))
    return Solution(chosen, options, tuple(_by_type(system, chosen)))


def _by_type(system: System, chosen: Mapping[str, Allocation]) -> Iterator[TypeUse]:
    counts: dict[str, int] = {}
    costs: dict[str, list[float]] = {}
    for name in sorted(chosen):
        allocation = chosen[name]
        if allocation.accelerator == NO_ACCELERATOR:
            continue
        kind = system.accelerators[allocation.accelerator].type
        cards = allocation.replicas * system.cards(system.servers[name], allocation.accelerator)
        counts[kind] = counts.get(kind, 0) + cards
        costs.setdefault(kind, []).append(allocation.cost)
    for kind in sorted(counts):
        yield TypeUse(kind, counts[kind], system.capacity.get(kind, 0), math.fsum(costs[kind]))


def trace(system: System, solution: Solution) -> tuple[str, ...]:
    """Return the solution in words, one line per server and type."""
    lines = [_server_line(system, solution, each) for each in solution.candidates]
    uses = [(use.type, use.count, use.limit, use.cost) for use in solution.by_type]
    return (*lines, *type_lines(uses, total=solution.cost))


def _server_line(system: System, solution: Solution, options: Candidates) -> str:
    server = options.server
    load = server.load
    head = server_head(
        server.name,
        service_class=server.service_class,
        model=server.model,
        load=(load.per_minute, load.output_tokens),
        candidates=len(options.allocations),
    )
    allocation = solution.allocations.get(server.name)
    if allocation is None:
        why = "; ".join(f"{name}: {problem}" for name, problem in options.dropped)
        return f"{head}no allocation{f' ({why})' if why else ''}"
    target = system.classes[server.service_class].targets[server.model]
    return server_line(head, plan_of(allocation, load.per_minute), accelerator=allocation.accelerator, target=target)


def plan_of(allocation: Allocation, per_minute: float) -> ReplicaPlan:
    """Return an allocation as a plan for the requests that arrive per minute."""
    return ReplicaPlan(
        allocation.replicas,
        allocation.batch,
        allocation.cost,
        allocation.value,
        allocation.itl,
        allocation.wait,
        allocation.ttft,
        allocation.busy,
        allocation.max_rpm,
        per_minute,
    )
