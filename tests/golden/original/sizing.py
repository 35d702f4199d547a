"""Computes the highest rate at which a replica meets its targets, for many replicas at once.

The usable rates reach from a thousandth of the service rate of a single request to just below saturation. Sizing first
compares a latency with its target at both ends, so that feasibility does not depend on the shape of the curve between
them. A latency that no rate can change is *flat*: every rate meets its target, or none does. Between the ends a search
finds the logarithm of the rate to 1e-12. Formulas: docs/design/queueing-formulas.md#sizing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray

from tests.golden.original.chain import Chains, SteadyState
from tests.golden.original.columns import Mask, QueueColumns, Rows, blocks
from tests.golden.original.geometric import Vector
from tests.golden.original.queues import BoundedQueue
from tests.golden.original.results import Performance, RateLimit, Sizing, Where
from tests.golden.original.roots import Bracket, find_roots
from tests.golden.original.targets import OriginalTarget

EPSILON: Final = 0.001
"""The distance of the usable rates from zero and from saturation, as a share."""

STABILITY_SHARE: Final = 0.9
"""The usable share of the highest rate if a target promises tokens per second."""

_SHORTEST: Final = 1e-300

_PERFORMANCE: Final = tuple(field.name for field in fields(Performance))

_FIRST_LOOK: Final = math.log(0.75)
"""Most targets bind between here and saturation; a search that starts here needs fewer steps."""

MEETS: Final = 1e-9
"""Relative rounding error that a latency may have at the ends of the range."""


class Sizings(Sequence[Sizing]):
    """The sizings of many replicas, kept as columns; indexing creates a ``Sizing``.

    ``rates`` are the requests per second within the targets, NaN where no rate meets them.
    """

    def __init__(self, queues: Sequence[BoundedQueue], targets: Sequence[OriginalTarget]) -> None:
        """Size every queue for its target."""
        self._queues, self._targets = queues, targets
        columns = QueueColumns.of(queues)
        numbers = chain.from_iterable([(target.ttft, target.itl, target.tps) for target in targets])
        wanted = np.fromiter(numbers, np.float64, 3 * len(targets)).reshape(len(targets), 3)
        self._usable = columns.usable & (np.isfinite(wanted) & (wanted >= 0)).all(axis=1)
        self._blocks: list[tuple[Rows, _Block]] = []
        self._place = np.zeros((len(queues), 2), dtype=np.intp)
        self.rates = np.full(len(queues), np.nan)
        for rows in blocks(columns, np.flatnonzero(self._usable)):
            block = _Block.of(Chains.of(columns.take(rows)), wanted[rows])
            self._place[rows] = np.stack((np.full(len(rows), len(self._blocks)), np.arange(len(rows))), axis=1)
            self.rates[rows] = np.where(block.feasible, block.steady.throughput, np.nan)
            self._blocks.append((rows, block))

    def __len__(self) -> int:
        """Return the number of queues."""
        return len(self._queues)

    @overload
    def __getitem__(self, index: int) -> Sizing: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Sizing]: ...

    def __getitem__(self, index: int | slice) -> Sizing | Sequence[Sizing]:
        """Return the sizing of one replica, or of several."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"{index} of {len(self)} queues")
        if not self._usable[index]:
            return Sizing(None, self._queues[index].problem() or _target_problem(self._targets[index]))
        block, row = int(self._place[index, 0]), int(self._place[index, 1])
        return self._blocks[block][1].sizing(row, self._targets[index])


def size(queues: Sequence[BoundedQueue], targets: Sequence[OriginalTarget]) -> Sizings:
    """Return for each queue and its target the highest rate, or why the queue cannot be evaluated."""
    if len(queues) != len(targets):
        raise ValueError(f"{len(queues)} queues and {len(targets)} targets")
    return Sizings(queues, targets)


def perform(queues: Sequence[BoundedQueue], rates: Sequence[float]) -> tuple[Performance | None, ...]:
    """Return the performance of each queue at an arrival rate in requests per second.

    A queue with a problem, or a rate that is not a positive number, gets None. At a rate above the highest one the
    replica loses the surplus requests.
    """
    columns = QueueColumns.of(queues)
    chains = ((rows, Chains.of(columns.take(rows))) for rows in blocks(columns, np.flatnonzero(columns.usable)))
    found = _evaluated(chains, np.array(rates, dtype=np.float64)).tolist()
    return tuple(None if math.isnan(row[0]) else Performance(*row) for row in found)


def _evaluated(chains: Iterable[tuple[Rows, Chains]], rates: Vector) -> NDArray[np.float64]:
    """Return the means of a steady state in rows, in the order of ``Performance``."""
    found = np.full((len(rates), len(_PERFORMANCE)), np.nan)
    usable = np.isfinite(rates) & (rates > 0)
    for rows, block in chains:
        kept = np.flatnonzero(usable[rows])
        part = block if len(kept) == len(rows) else block.take(kept)
        found[rows[kept]] = _means(part.steady(part.log_load(rates[rows[kept]])))
    return found


def _means(steady: SteadyState) -> NDArray[np.float64]:
    return np.stack([getattr(steady, name) for name in _PERFORMANCE], axis=1)


@dataclass(frozen=True, slots=True)
class _Search:
    """One latency of every row of a block: the highest logarithmic load that meets its target."""

    load: Vector
    rate: Vector
    wanted: Mask
    feasible: Mask
    slack: Mask
    flat: Mask
    best: Vector

    def limit(self, row: int) -> RateLimit:
        """Return the limit of one row."""
        if not self.wanted[row]:
            where = Where.NO_TARGET
        elif not self.feasible[row]:
            where = Where.INFEASIBLE
        else:
            where = Where.UNCONSTRAINED if self.slack[row] else Where.INTERIOR
        return RateLimit(float(self.rate[row]), where, bool(self.flat[row]), float(self.best[row]))


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows that are sized together."""

    chains: Chains
    ttft: _Search
    itl: _Search
    ends: tuple[Vector, Vector]
    tps_load: Vector
    feasible: Mask
    steady: SteadyState

    @staticmethod
    def of(chains: Chains, wanted: NDArray[np.float64]) -> _Block:
        """Search for both latencies; ``wanted`` has a row (TTFT, ITL, TPS) per queue."""
        low = chains.single_rate + math.log(EPSILON)
        high = np.full_like(low, math.log1p(-EPSILON))
        at_low, at_high = chains.steady(low), chains.steady(high)
        ends = (low, high)
        ttft = _search(chains, "ttft", wanted[:, 0], ends=ends, at=(at_low.ttft, at_high.ttft))
        itl = _search(chains, "itl", wanted[:, 1], ends=ends, at=(at_low.itl, at_high.itl))
        tps = np.where(wanted[:, 2] > 0, high + math.log(STABILITY_SHARE), high)
        load = np.minimum(np.minimum(ttft.load, itl.load), tps)
        return _Block(chains, ttft, itl, ends, tps, ttft.feasible & itl.feasible, chains.steady(load))

    def sizing(self, row: int, target: OriginalTarget) -> Sizing:
        """Return the sizing of one row."""
        ttft, itl = self.ttft.limit(row), self.itl.limit(row)
        one = self.chains.take(np.array([row], dtype=np.intp))
        lowest, highest, tps_rate = (float(one.rate(load[row : row + 1])[0]) for load in (*self.ends, self.tps_load))
        if not self.feasible[row]:
            return Sizing(None, _infeasible(ttft, itl, target), ttft, itl, tps_rate, lowest, highest)
        load = min(self.ttft.load[row], self.itl.load[row], self.tps_load[row])
        performance = Performance(*_means(one.steady(np.array([load])))[0].tolist())
        rate = float(self.steady.throughput[row])
        return Sizing(rate, "", ttft, itl, tps_rate, lowest, highest, performance)


class _Excess:
    """The logarithm of latency over target. It takes the rows of a search from the block only once."""

    def __init__(self, chains: Chains, name: str, goal: Vector) -> None:
        """Begin with all rows."""
        self._all, self._name, self._goals = chains, name, goal
        self._rows: Rows | None = None
        self._part, self._goal = chains, goal

    def __call__(self, rows: Rows, points: Vector) -> Vector:
        """Return the values of some rows at their points."""
        if rows is not self._rows:
            complete = len(rows) == len(self._goals)
            self._rows, self._part = rows, self._all if complete else self._all.take(rows)
            self._goal = self._goals[rows]
        steady = self._part.steady(points)
        return _log(steady.ttft if self._name == "ttft" else steady.itl) - self._goal


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
        part = chains if len(interior) == len(load) else chains.take(interior)
        goal = np.log(target[interior])
        load[interior] = find_roots(
            _Excess(part, name, goal),
            Bracket(
                low=low[interior],
                high=high[interior],
                at_low=np.minimum(_log(at_low[interior]) - goal, -0.0),
                at_high=_log(at_high[interior]) - goal,
                first=_FIRST_LOOK,
            ),
        )
    flat = np.abs(at_high - at_low) <= MEETS * np.abs(at_low)
    return _Search(load, chains.rate(load), wanted, feasible, slack, flat, at_low)


def _log(times: Vector) -> Vector:
    """Return logarithms, also of 0: the time to first token of a request without prompt on an idle replica."""
    logarithms: Vector = np.log(np.maximum(times, _SHORTEST))
    return logarithms


def _infeasible(ttft: RateLimit, itl: RateLimit, target: OriginalTarget) -> str:
    words = []
    for name, limit, wanted in (("TTFT", ttft, target.ttft), ("ITL", itl, target.itl)):
        if limit.where is Where.INFEASIBLE:
            when = "at any rate" if limit.flat else "already at the lowest rate"
            words.append(f"{name} is {limit.best:.6g} ms {when}, target {wanted:g} ms")
    return "; ".join(words)


def _target_problem(target: OriginalTarget) -> str:
    """Return in words what is wrong with a target; "" if nothing is."""
    for name, value in (("TTFT", target.ttft), ("ITL", target.itl), ("TPS", target.tps)):
        if not (math.isfinite(value) and value >= 0):
            return f"target {name} is {value:g}, expected a number of at least 0"
    return ""
