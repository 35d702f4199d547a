"""A system in, its solution out: candidates, solver, latencies of what was cut, cards per type, and the trace.

Departure: an allocation that was cut for lack of cards is evaluated again, so that its latencies are those of the
replicas it really gets (optimizer.md 8.1, item 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wva.decide.queueing.candidates import Candidates, candidates, evaluated
from wva.decide.queueing.solvers import solve
from wva.decide.queueing.system import NO_ACCELERATOR, Allocation, Server, System
from wva.decide.queueing.targets import Target


@dataclass(frozen=True, slots=True)
class TypeUse:
    """Cards of one type that are allocated, how many there are, and the cost of what uses them."""

    type: str
    count: int
    limit: int
    cost: float


@dataclass(frozen=True, slots=True)
class Solution:
    """Allocations by server (absent: none), the candidates they were chosen from, and the cards they take by type."""

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
    cut = [name for name in chosen if chosen[name] not in by_name[name]]
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
    """Return the solution in words, one line per server and type.

    Times are in ms, rates per minute. ``servTime`` is the inter-token latency, ``rho`` the share of time in which a
    replica has any request, ``maxRPM`` what one replica takes within its targets, ``sol`` the number of candidates.
    """
    lines = [_server_line(system, solution, each) for each in solution.candidates]
    lines += ["AllocationByType:"] if solution.by_type else []
    lines += [f"name={use.type}, count={use.count}, limit={use.limit}, cost={use.cost:.9g}" for use in solution.by_type]
    return (*lines, f"totalCost={solution.cost:.9g}")


def _server_line(system: System, solution: Solution, options: Candidates) -> str:
    server = options.server
    head = (
        f"s={server.name}; c={server.service_class}; m={server.model}; rate={server.load.per_minute:.9g}; "
        f"tk={server.load.output_tokens:.9g}; sol={len(options.allocations)}, "
    )
    allocation = solution.allocations.get(server.name)
    if allocation is None:
        why = "; ".join(f"{name}: {problem}" for name, problem in options.dropped)
        return f"{head}no allocation{f' ({why})' if why else ''}"
    return f"{head}{_allocation_words(server, allocation)}; {_target_words(_target(system, server))}"


def _allocation_words(server: Server, allocation: Allocation) -> str:
    saturated = str(allocation.saturated(server.load.per_minute)).lower()
    return (
        f"sat={saturated}, alloc={{acc={allocation.accelerator}; num={allocation.replicas}; "
        f"maxBatch={allocation.batch}; cost={allocation.cost:.9g}, val={allocation.value:.9g}, "
        f"servTime={allocation.itl:.9g}, waitTime={allocation.wait:.9g}, rho={allocation.busy:.9g}, "
        f"maxRPM={allocation.max_rpm:.9g}}}"
    )


def _target(system: System, server: Server) -> Target:
    return system.classes[server.service_class].targets[server.model]


def _target_words(target: Target) -> str:
    return f"slo-itl={target.itl:.9g}, slo-ttft={target.ttft:.9g}, slo-tps={target.tps:.9g}"
