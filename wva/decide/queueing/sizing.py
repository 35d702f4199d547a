"""From targets to the highest rate that one replica can take, for many replicas at once (optimizer.md 2.7).

The usable rates reach from a thousandth of the service rate of a single request to just below saturation. At both ends
a latency is compared with its target directly, so that feasibility does not depend on the shape of the curve between
them: a latency that no rate can change is *flat*, and its target is either met at every rate or at none (departure:
optimizer.md 8.1, item 1). Between the ends the rate is solved to 1e-12, in the logarithm of the rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.decide.queueing.chain import Chains, Steady, blocks
from wva.decide.queueing.geometric import Vector
from wva.decide.queueing.roots import find_roots
from wva.decide.queueing.service import Queue
from wva.decide.queueing.targets import Target

EPSILON: Final = 0.001
"""How far the usable rates stay away from nothing and from saturation (optimizer.md 1.2)."""

STABILITY_SHARE: Final = 0.9
"""Share of the highest rate that may be used when tokens per second are promised."""

_SHORTEST: Final = 1e-300

MEETS: Final = 1e-9
"""Relative room for rounding when a latency is compared with its target at the ends of the range."""


class Where(StrEnum):
    """Where in the usable range a latency meets its target."""

    NO_TARGET = "no target"
    INFEASIBLE = "infeasible"
    INTERIOR = "interior"
    UNCONSTRAINED = "unconstrained"


@dataclass(frozen=True, slots=True)
class Limit:
    """The highest rate (requests per second) at which a target is met, and where that is.

    ``flat``: no usable rate changes the latency. ``best`` is the latency in ms at the lowest rate.
    """

    rate: float
    where: Where
    flat: bool = False
    best: float = math.nan


@dataclass(frozen=True, slots=True)
class Performance:
    """What one replica does at a rate: requests per second, ms.

    ``rho`` is the used share of the batch, ``busy`` the share of time in which there is any request at all.
    """

    throughput: float
    service: float
    wait: float
    ttft: float
    itl: float
    prefill: float
    serving: float
    batch: float
    rho: float
    busy: float
    loss: float

    @property
    def response(self) -> float:
        """Mean time in the replica in ms."""
        return self.wait + self.service


@dataclass(frozen=True, slots=True)
class Sizing:
    """What one replica can take.

    ``rate`` is what it completes per second at the tightest limit, None when there is none; then ``problem`` says why.
    """

    rate: float | None
    problem: str = ""
    ttft: Limit | None = None
    itl: Limit | None = None
    tps_rate: float = math.nan
    lowest_rate: float = math.nan
    highest_rate: float = math.nan
    performance: Performance | None = None


def size(queues: Sequence[Queue], targets: Sequence[Target]) -> tuple[Sizing, ...]:
    """Return for each queue and its target the highest rate; one that cannot be evaluated says why."""
    found = [Sizing(None, queue.problem() or target.problem()) for queue, target in zip(queues, targets, strict=True)]
    usable = [number for number, sizing in enumerate(found) if not sizing.problem]
    for block in blocks([queues[number] for number in usable]):
        numbers = [usable[position] for position in block]
        sizings = _size_block(Chains.of([queues[n] for n in numbers]), [targets[n] for n in numbers])
        for number, sizing in zip(numbers, sizings, strict=True):
            found[number] = sizing
    return tuple(found)


def perform(queues: Sequence[Queue], rates: Sequence[float]) -> tuple[Performance | None, ...]:
    """Return what each queue does at an arrival rate in requests per second.

    None for a queue with a problem, or at a rate that is not a positive number. Rates above what a replica can serve
    are answered: what it cannot take is lost.
    """
    found: list[Performance | None] = [None] * len(queues)
    usable = [
        number
        for number, (queue, rate) in enumerate(zip(queues, rates, strict=True))
        if 0 < rate < math.inf and not queue.problem()
    ]
    for block in blocks([queues[number] for number in usable]):
        numbers = [usable[position] for position in block]
        chains = Chains.of([queues[number] for number in numbers])
        loads = chains.log_load(np.array([rates[number] for number in numbers]))
        for number, performance in zip(numbers, performances(chains, chains.steady(loads)), strict=True):
            found[number] = performance
    return tuple(found)


def performances(chains: Chains, steady: Steady) -> tuple[Performance, ...]:
    """Return a steady state row by row."""
    rho = np.clip(steady.serving / chains.size, 0.0, 1.0)
    columns = (
        steady.throughput,
        steady.service,
        steady.wait,
        steady.ttft,
        steady.itl,
        steady.prefill,
        steady.serving,
        steady.batch,
        rho,
        1.0 - steady.empty,
        steady.loss,
    )
    return tuple(Performance(*row) for row in np.stack(columns, axis=1).tolist())


@dataclass(frozen=True, slots=True)
class _Search:
    """One latency of every row of a block: the logarithmic load up to which its target is met."""

    load: Vector
    wanted: NDArray[np.bool_]
    feasible: NDArray[np.bool_]
    slack: NDArray[np.bool_]
    flat: NDArray[np.bool_]
    best: Vector

    def limits(self, chains: Chains) -> list[Limit]:
        """Return the limits row by row."""
        names = np.select(
            [~self.wanted, ~self.feasible, self.slack], [Where.NO_TARGET, Where.INFEASIBLE, Where.UNCONSTRAINED], ""
        )
        rows = zip(chains.rate(self.load).tolist(), names.tolist(), self.flat.tolist(), self.best.tolist(), strict=True)
        return [Limit(rate, Where(name or Where.INTERIOR), flat, best) for rate, name, flat, best in rows]


def _size_block(chains: Chains, targets: Sequence[Target]) -> list[Sizing]:
    wanted = np.array([(target.ttft, target.itl, target.tps) for target in targets])
    low = chains.single_rate + math.log(EPSILON)
    high = np.full_like(low, math.log1p(-EPSILON))
    at_low, at_high = chains.steady(low), chains.steady(high)
    ends = (low, high)
    ttft = _search(chains, "ttft", wanted[:, 0], ends=ends, at=(at_low.ttft, at_high.ttft))
    itl = _search(chains, "itl", wanted[:, 1], ends=ends, at=(at_low.itl, at_high.itl))
    tps = np.where(wanted[:, 2] > 0, high + math.log(STABILITY_SHARE), high)
    load = np.minimum(np.minimum(ttft.load, itl.load), tps)
    feasible = (ttft.feasible & itl.feasible).tolist()
    lowest, highest, tps_rates = (chains.rate(loads).tolist() for loads in (low, high, tps))
    rows = zip(ttft.limits(chains), itl.limits(chains), performances(chains, chains.steady(load)), strict=True)
    return [
        Sizing(
            performance.throughput if feasible[row] else None,
            "" if feasible[row] else _infeasible(first, each, targets[row]),
            first,
            each,
            tps_rates[row],
            lowest[row],
            highest[row],
            performance if feasible[row] else None,
        )
        for row, (first, each, performance) in enumerate(rows)
    ]


def _search(
    chains: Chains, name: str, target: Vector, *, ends: tuple[Vector, Vector], at: tuple[Vector, Vector]
) -> _Search:
    (low, high), (at_low, at_high) = ends, at
    wanted = target > 0
    limit = np.where(wanted, target, np.inf)
    slack = at_high <= limit * (1 + MEETS)
    feasible = (at_low <= limit * (1 + MEETS)) | slack
    load = np.where(feasible, high, low)
    interior = np.flatnonzero(feasible & ~slack)
    if len(interior):
        part, goal = chains.take(interior), np.log(target[interior])

        def excess(rows: NDArray[np.intp], points: Vector) -> Vector:
            steady = (part if len(rows) == len(interior) else part.take(rows)).steady(points)
            return _log(steady.ttft if name == "ttft" else steady.itl) - goal[rows]

        load[interior] = find_roots(
            excess,
            low=low[interior],
            high=high[interior],
            at_low=np.minimum(_log(at_low[interior]) - goal, -0.0),
            at_high=_log(at_high[interior]) - goal,
        )
    flat = np.abs(at_high - at_low) <= MEETS * np.abs(at_low)
    return _Search(load, wanted, feasible, slack, flat, at_low)


def _log(times: Vector) -> Vector:
    """Return logarithms; a request without prompt on an idle replica has a time to first token of 0."""
    logarithms: Vector = np.log(np.maximum(times, _SHORTEST))
    return logarithms


def _infeasible(ttft: Limit, itl: Limit, target: Target) -> str:
    words = []
    for name, limit, wanted in (("TTFT", ttft, target.ttft), ("ITL", itl, target.itl)):
        if limit.where is Where.INFEASIBLE:
            when = "at any rate" if limit.flat else "already at the lowest rate"
            words.append(f"{name} is {limit.best:.6g} ms {when}, target {wanted:g} ms")
    return "; ".join(words)
