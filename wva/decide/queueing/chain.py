"""Steady state of many replicas at once: the birth-death chain of optimizer.md 2.2 to 2.5 in numpy, float64.

Each row is one queue. The weights of the states below the full batch are kept as logarithms relative to the highest
service rate, those of the waiting part are summed in closed form (``geometric``), and the mean wait comes from the mean
number waiting, not from a difference of two large means. The chain is finite, so it has a steady state at any load,
also beyond what it can serve: an overloaded replica gets an answer instead of an error.

``log_load`` is the natural logarithm of arrival rate / highest service rate throughout: 0 is saturation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.decide.queueing.columns import Columns, Law, Rows, mean_time, take_law
from wva.decide.queueing.geometric import Vector, mean_index, power_sum

MS_PER_SECOND: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Steady:
    """Mean values per row; rates in requests per second, times in ms.

    ``throughput`` is the accepted rate, ``batch`` the mean size of the batch that a request is computed in, ``serving``
    the mean number in service, ``waiting`` the mean number that waits, ``loss`` the share of requests that find the
    replica full, ``empty`` the share of time without any request.
    """

    throughput: Vector
    service: Vector
    wait: Vector
    batch: Vector
    serving: Vector
    waiting: Vector
    prefill: Vector
    itl: Vector
    ttft: Vector
    loss: Vector
    empty: Vector


@dataclass(frozen=True, slots=True)
class Chains:
    """Rows of replicas with similar batch sizes, ready to be evaluated at any load.

    ``drops`` holds, per state n below the full batch, the sum of ln(service rate k / highest rate) for k = 1 .. n, and
    infinity for states that a row does not have; ``last_drop`` the same for the full batch.
    """

    law: Law
    size: Vector
    room: Vector
    top_rate: Vector
    drops: NDArray[np.float64]
    last_drop: Vector

    @staticmethod
    def of(columns: Columns) -> Chains:
        """Prepare usable queues; all in one block, so they should not differ much in batch size."""
        law, size = columns.law, columns.size
        states = np.arange(1, int(size.max()) + 1, dtype=np.float64)
        slowest = law.base + law.slope * size
        sums = np.multiply.outer(law.slope, states)
        sums += law.base[:, None]
        np.divide(states, sums, out=sums)
        sums *= (slowest / size)[:, None]
        np.cumsum(np.log(sums, out=sums), axis=1, out=sums)
        last = sums[np.arange(len(size)), size.astype(np.intp) - 1]
        drops = np.empty_like(sums)
        drops[:, 0] = 0.0
        drops[:, 1:] = sums[:, :-1]
        if size.min() < len(states):
            drops[states > size[:, None]] = np.inf
        return Chains(law, size, columns.room, size / slowest, drops, last)

    def take(self, rows: Rows) -> Chains:
        """Return some of the rows."""
        return Chains(
            take_law(self.law, rows),
            self.size[rows],
            self.room[rows],
            self.top_rate[rows],
            self.drops[rows],
            self.last_drop[rows],
        )

    def log_load(self, rates: Vector) -> Vector:
        """Return the logarithmic load of arrival rates in requests per second."""
        logarithms: Vector = np.log(rates / MS_PER_SECOND / self.top_rate)
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

    def steady(self, log_load: Vector) -> Steady:
        """Return the steady state of every row at its load."""
        law, size, over = self.law, self.size, log_load > 0
        states = np.arange(self.drops.shape[1], dtype=np.float64)
        logs = np.multiply.outer(log_load, states)
        logs -= self.drops
        tail_log = size * log_load - self.last_drop + np.maximum(self.room * log_load, 0.0)
        peak = np.maximum(self._highest(logs, log_load), tail_log)
        logs -= peak[:, None]
        weights = np.exp(logs, out=logs)
        head, weighted = weights.sum(axis=1), weights @ states
        y, tail_weight = np.abs(log_load), np.exp(tail_log - peak)
        terms = power_sum(y, self.room + 1)
        last = np.where(over, 1.0, np.exp(-self.room * y))
        tail, open_tail = tail_weight * terms, tail_weight * (terms - last)
        index = mean_index(y, self.room + 1)
        index = np.where(over, self.room - index, index)
        total, accepted = head + tail, head + open_tail
        throughput = np.exp(log_load) * self.top_rate * (accepted / total)
        waiting = tail * index / total
        batch = (weighted + head + size * open_tail) / accepted
        serving = (weighted + size * tail) / total
        wait = waiting / throughput
        prefill, itl = mean_time(law.prefill, batch, serving), mean_time(law.decode, batch, serving)
        return Steady(
            throughput=throughput * MS_PER_SECOND,
            service=law.base + law.slope * batch,
            wait=wait,
            batch=batch,
            serving=serving,
            waiting=waiting,
            prefill=prefill,
            itl=itl,
            ttft=wait + prefill + law.first_decode * itl,
            loss=tail_weight * last / total,
            empty=np.exp(-peak) / total,
        )

    def _highest(self, logs: NDArray[np.float64], log_load: Vector) -> Vector:
        """Return the largest weight below the full batch: where the service rate passes the arrival rate.

        Service rates rise with the batch, so the weights rise up to there and fall after it.
        """
        rate = np.exp(np.minimum(log_load, 0.0)) * self.top_rate
        room = np.maximum(1.0 - rate * self.law.slope, 1e-12)
        at = np.clip(rate * self.law.base / room, 0.0, self.size - 1)
        found: Vector = logs[np.arange(len(logs)), at.astype(np.intp)]
        return found
