"""Steady state of many replicas at once: the birth-death chain of optimizer.md 2.2 to 2.5 in numpy, float64.

Each row is one queue. The weights of the states below the full batch are kept as logarithms relative to the highest
service rate, those of the waiting part are summed in closed form (``geometric``), and the mean wait comes from the mean
number waiting, not from a difference of two large means. The chain is finite, so it has a steady state at any load,
also beyond what it can serve: an overloaded replica gets an answer instead of an error.

``log_load`` is the natural logarithm of arrival rate / highest service rate throughout: 0 is saturation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.decide.queueing.geometric import Vector, mean_index, power_sum
from wva.decide.queueing.service import Mean, Queue

CELLS: Final = 1 << 17
"""States evaluated together: 1 MB per array stays in the processor's cache."""

MS_PER_SECOND: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Means:
    """Coefficients of a mean time for every row, see ``service.Mean``."""

    constant: Vector
    batch: Vector
    serving: Vector

    @staticmethod
    def of(means: Sequence[Mean]) -> Means:
        """Return the means of several rows."""
        rows = np.array([(mean.constant, mean.batch, mean.serving) for mean in means]).reshape(len(means), 3)
        return Means(rows[:, 0], rows[:, 1], rows[:, 2])

    def at(self, batch: Vector, serving: Vector) -> Vector:
        """Return the mean times in ms."""
        return self.constant + self.batch * batch + self.serving * serving

    def take(self, rows: NDArray[np.intp]) -> Means:
        """Return some of the rows."""
        return Means(self.constant[rows], self.batch[rows], self.serving[rows])


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

    size: Vector
    room: Vector
    top_rate: Vector
    base: Vector
    slope: Vector
    drops: NDArray[np.float64]
    last_drop: Vector
    prefill: Means
    decode: Means
    first_decode: Vector

    @staticmethod
    def of(queues: Sequence[Queue]) -> Chains:
        """Prepare queues without problems; all in one block, so they should not differ much in batch size."""
        laws = [queue.parameters.law(queue.request) for queue in queues]
        size = np.array([queue.max_batch for queue in queues], dtype=np.float64)
        base = np.array([law.base for law in laws])
        slope = np.array([law.slope for law in laws])
        states = np.arange(1, int(size.max()) + 1, dtype=np.float64)
        slowest = base + slope * size
        relative = states / size[:, None] * (slowest[:, None] / (base[:, None] + slope[:, None] * states))
        sums = np.cumsum(np.log(relative), axis=1)
        columns = size.astype(np.intp)
        drops = np.concatenate((np.zeros((len(queues), 1)), sums[:, :-1]), axis=1)
        drops[np.arange(drops.shape[1]) >= columns[:, None]] = np.inf
        return Chains(
            size=size,
            room=np.array([queue.max_queue for queue in queues], dtype=np.float64),
            top_rate=size / slowest,
            base=base,
            slope=slope,
            drops=drops,
            last_drop=sums[np.arange(len(queues)), columns - 1],
            prefill=Means.of([law.prefill for law in laws]),
            decode=Means.of([law.decode for law in laws]),
            first_decode=np.array([law.first_decode for law in laws]),
        )

    def take(self, rows: NDArray[np.intp]) -> Chains:
        """Return some of the rows."""
        return Chains(
            self.size[rows],
            self.room[rows],
            self.top_rate[rows],
            self.base[rows],
            self.slope[rows],
            self.drops[rows],
            self.last_drop[rows],
            self.prefill.take(rows),
            self.decode.take(rows),
            self.first_decode[rows],
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
        logarithms: Vector = np.log((self.base + self.slope * self.size) / (self.base + self.slope) / self.size)
        return logarithms

    def steady(self, log_load: Vector) -> Steady:
        """Return the steady state of every row at its load."""
        states = np.arange(self.drops.shape[1], dtype=np.float64)
        logs = log_load[:, None] * states - self.drops
        tail_log = self.size * log_load - self.last_drop + np.maximum(self.room * log_load, 0.0)
        peak = np.maximum(logs.max(axis=1), tail_log)
        logs -= peak[:, None]
        weights = np.exp(logs, out=logs)
        head, weighted = weights.sum(axis=1), weights @ states
        y, over = np.abs(log_load), log_load > 0
        tail_weight = np.exp(tail_log - peak)
        tail = tail_weight * power_sum(y, self.room + 1)
        open_tail = tail_weight * np.where(over, np.exp(-y), 1.0) * power_sum(y, self.room)
        index = mean_index(y, self.room + 1)
        index = np.where(over, self.room - index, index)
        total, accepted = head + tail, head + open_tail
        throughput = np.exp(log_load) * self.top_rate * (accepted / total)
        waiting = tail * index / total
        batch = (weighted + head + self.size * open_tail) / accepted
        serving = (weighted + self.size * tail) / total
        wait = waiting / throughput
        prefill, itl = self.prefill.at(batch, serving), self.decode.at(batch, serving)
        return Steady(
            throughput=throughput * MS_PER_SECOND,
            service=self.base + self.slope * batch,
            wait=wait,
            batch=batch,
            serving=serving,
            waiting=waiting,
            prefill=prefill,
            itl=itl,
            ttft=wait + prefill + self.first_decode * itl,
            loss=tail_weight * np.where(over, 1.0, np.exp(-self.room * y)) / total,
            empty=np.exp(-peak) / total,
        )


def blocks(queues: Sequence[Queue]) -> Iterator[NDArray[np.intp]]:
    """Yield row numbers that fit together: batch sizes within a factor of two, and not more states than ``CELLS``."""
    sizes = np.array([queue.max_batch for queue in queues], dtype=np.intp)
    order = np.argsort(sizes, kind="stable")
    start = 0
    for stop in range(1, len(order) + 1):
        largest = sizes[order[stop]] if stop < len(order) else 0
        too_large = largest > 2 * sizes[order[start]] or (stop - start + 1) * largest > CELLS
        if stop == len(order) or too_large:
            yield order[start:stop]
            start = stop
