"""Computes the steady state of many replicas at once: a birth-death chain in numpy, float64.

Formulas: docs/design/queueing-formulas.md#steady-state.

Each row is one queue. The weights of the states below the full batch are logarithms relative to the highest service
rate. A closed form sums the weights of the waiting part (``geometric``). The mean wait comes from the mean number
waiting, not from a difference of two large means. The chain is finite, so it has a steady state at any load: an
overloaded replica gets an answer instead of an error.

``log_load`` is the natural logarithm of arrival rate / highest service rate throughout: 0 is saturation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.golden.original.columns import Law, QueueColumns, Rows, mean_time, take_law
from tests.golden.original.geometric import Vector, mean_index, power_sum

MS_PER_SECOND: Final = 1000.0

_CELLS: Final = 1 << 15
"""Weights computed at a time: memory of this size is quick to allocate and stays in the processor's cache."""
_LEAST_LOAD: Final = 1e-300


@dataclass(frozen=True, slots=True)
class Chains:
    """Rows of replicas with similar batch sizes, ready to be evaluated at any load.

    ``drops`` holds, per state n below the full batch, the sum of ln(service rate k / highest rate) for k = 1 .. n, and
    infinity for states that a row does not have; ``last_drop`` the same for the full batch. ``powers`` has the numbers
    of the states and as many ones; ``head`` multiplies them with the logarithmic load and the peak.
    """

    law: Law
    size: Vector
    room: Vector
    top_rate: Vector
    drops: NDArray[np.float64]
    last_drop: Vector
    powers: NDArray[np.float64]

    @staticmethod
    def of(columns: QueueColumns) -> Chains:
        """Prepare usable queues as one block; their batch sizes should not differ much."""
        law, size = columns.law, columns.size
        states = np.arange(1, int(size.max()) + 1, dtype=np.float64)
        slowest = law.base + law.slope * size
        sums = np.zeros((len(size), len(states) + 1))
        terms = sums[:, 1:]
        np.multiply(law.slope[:, None], states, out=terms)
        terms += law.base[:, None]
        np.divide(states, terms, out=terms)
        terms *= (slowest / size)[:, None]
        np.cumsum(np.log(terms, out=terms), axis=1, out=terms)
        last = sums[np.arange(len(size)), size.astype(np.intp)]
        drops = sums[:, :-1]
        if size.min() < len(states):
            drops[states > size[:, None]] = np.inf
        powers = np.array((states - 1, np.ones_like(states)))
        return Chains(law, size, columns.room, size / slowest, drops, last, powers)

    def take(self, rows: Rows) -> Chains:
        """Return some of the rows."""
        return Chains(
            take_law(self.law, rows),
            self.size[rows],
            self.room[rows],
            self.top_rate[rows],
            self.drops[rows],
            self.last_drop[rows],
            self.powers,
        )

    def log_load(self, rates: Vector) -> Vector:
        """Return the logarithmic load of arrival rates in requests per second."""
        # The smallest rates would become 0, which has no logarithm.
        loads = np.maximum(rates / MS_PER_SECOND / self.top_rate, _LEAST_LOAD)
        logarithms: Vector = np.log(loads)
        return logarithms

    def rate(self, log_load: Vector) -> Vector:
        """Return the arrival rates in requests per second of logarithmic loads."""
        rates: Vector = np.exp(log_load) * self.top_rate * MS_PER_SECOND
        return rates

    @property
    def single_rate(self) -> Vector:
        """Logarithm of the service rate of a single request, relative to the highest rate."""
        law = self.law
        logarithms: Vector = np.log((law.base + law.slope * self.size) / (law.base + law.slope) / self.size)
        return logarithms

    def steady(self, log_load: Vector) -> SteadyState:
        """Return the steady state of every row at its load."""
        return SteadyState(self, log_load)

    def head(self, log_load: Vector, peak: Vector) -> tuple[Vector, Vector]:
        """Return the sum of the weights below the full batch and that of weight * state, both relative to a peak."""
        points, sums = np.array((log_load, -peak)).T, np.empty((len(peak), 2))
        step = max(1, _CELLS // self.drops.shape[1])
        for start in range(0, len(peak), step):
            rows = slice(start, start + step)
            logs = points[rows] @ self.powers
            logs -= self.drops[rows]
            np.matmul(np.exp(logs, out=logs), self.powers.T, out=sums[rows])
        return sums[:, 1], sums[:, 0]

    def highest(self, log_load: Vector) -> Vector:
        """Return the largest logarithm of a weight below the full batch.

        Service rates rise with the batch, so the weights rise until service is as fast as arrival, and then fall.
        """
        rate = np.exp(np.minimum(log_load, 0.0)) * self.top_rate
        room = np.maximum(1.0 - rate * self.law.slope, 1e-12)
        at = np.clip(rate * self.law.base / room, 0.0, self.size - 1).astype(np.intp)
        found: Vector = at * log_load - self.drops[np.arange(len(at)), at]
        return found


class SteadyState:
    """Mean values per row at a load. Each is computed on first use, because a search uses one latency only.

    Rates in requests per second, times in ms.
    """

    def __init__(self, chains: Chains, log_load: Vector) -> None:
        """Add up the weights of all states."""
        self._chains, self._log_load, self._over = chains, log_load, log_load > 0
        tail_log = chains.size * log_load - chains.last_drop + np.maximum(chains.room * log_load, 0.0)
        self._peak = np.maximum(chains.highest(log_load), tail_log)
        self._head, self._weighted = chains.head(log_load, self._peak)
        y = np.abs(log_load)
        weight = np.exp(tail_log - self._peak)
        terms = power_sum(y, chains.room + 1)
        last = np.where(self._over, 1.0, np.exp(-chains.room * y))
        self._last, self._tail, self._open_tail = weight * last, weight * terms, weight * (terms - last)
        self._total, self._accepted = self._head + self._tail, self._head + self._open_tail

    @cached_property
    def _per_ms(self) -> Vector:
        arriving: Vector = np.exp(self._log_load) * self._chains.top_rate
        return arriving * (self._accepted / self._total)

    @property
    def throughput(self) -> Vector:
        """Accepted requests."""
        return self._per_ms * MS_PER_SECOND

    @cached_property
    def batch(self) -> Vector:
        """Mean batch size while a request is computed."""
        return (self._weighted + self._head + self._chains.size * self._open_tail) / self._accepted

    @cached_property
    def serving(self) -> Vector:
        """Mean number in service."""
        return (self._weighted + self._chains.size * self._tail) / self._total

    @property
    def service(self) -> Vector:
        """Mean time in service."""
        return self._chains.law.base + self._chains.law.slope * self.batch

    @cached_property
    def wait(self) -> Vector:
        """Mean time that a request waits."""
        room = self._chains.room
        index = mean_index(np.abs(self._log_load), room + 1)
        waiting = self._tail * np.where(self._over, room - index, index) / self._total
        return waiting / self._per_ms

    @cached_property
    def prefill(self) -> Vector:
        """Mean time of the prompt."""
        return mean_time(self._chains.law.prefill, self.batch, self.serving)

    @property
    def prompted(self) -> Vector:
        """Mean time until the prompt is computed."""
        return self.wait + self.prefill

    @cached_property
    def itl(self) -> Vector:
        """Mean inter-token latency."""
        return mean_time(self._chains.law.decode, self.batch, self.serving)

    @property
    def ttft(self) -> Vector:
        """Mean time to the first token."""
        return self.prompted + self._chains.law.first_decode * self.itl

    @property
    def loss(self) -> Vector:
        """Share of the requests that find the replica full."""
        return self._last / self._total

    @property
    def rho(self) -> Vector:
        """Used share of the batch."""
        return np.clip(self.serving / self._chains.size, 0.0, 1.0)

    @property
    def busy(self) -> Vector:
        """Share of time with at least one request."""
        shares: Vector = 1.0 - np.exp(-self._peak) / self._total
        return shares
