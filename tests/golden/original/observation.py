"""The latencies that a queue with given parameters reports: the function that estimators invert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.golden.original.chain import Chains
from tests.golden.original.columns import QueueColumns, Rows, blocks
from tests.golden.original.geometric import Vector
from tests.golden.original.observed import ObservedReplica
from tests.golden.original.queues import MAX_BATCH, QUEUE_TO_BATCH, size_problem
from tests.golden.original.service import LONGEST, SHORTEST, RequestSize

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reports:
    """Observations as columns: request sizes, rates and largest batches, and the logarithms of both latencies."""

    sizes: Matrix
    rates: Vector
    batches: Vector
    latencies: Matrix

    @staticmethod
    def of(observations: Sequence[ObservedReplica]) -> Reports:
        """Return the columns of observations."""
        rows = np.array(
            [
                (seen.input_tokens, seen.output_tokens, seen.rate, seen.batch, seen.ttft, seen.itl)
                for seen in observations
            ]
        ).reshape(len(observations), 6)
        return Reports(rows[:, :2], rows[:, 2], rows[:, 3], np.log(rows[:, 4:]))

    def take(self, rows: Rows) -> Reports:
        """Return some of the observations, also several times."""
        return Reports(self.sizes[rows], self.rates[rows], self.batches[rows], self.latencies[rows])

    def predicted(self, parameters: Matrix, *, first_decode: bool = True) -> Matrix:
        """Return time to first token and inter-token latency in ms, one row per observation and its parameters.

        ``parameters`` has a row (alpha, beta, gamma) per observation. With ``first_decode`` the time to first token
        includes the first decode step, as in engines and in ``sizing``.
        """
        count = len(self.rates)
        numbers = np.concatenate((parameters, np.zeros((count, 1)), self.sizes), axis=1)
        columns = QueueColumns.of_numbers(
            numbers, size=self.batches, room=QUEUE_TO_BATCH * self.batches, late=np.ones(count, dtype=np.bool_)
        )
        found = np.empty((count, 2))
        with np.errstate(all="ignore"):  # an estimator may try any parameters
            for block in blocks(columns, np.arange(count, dtype=np.intp)):
                chains = Chains.of(columns.take(block))
                steady = chains.steady(chains.log_load(self.rates[block]))
                found[block, 0] = steady.ttft if first_decode else steady.wait + steady.prefill
                found[block, 1] = steady.itl
        return np.nan_to_num(found, copy=False, nan=LONGEST, posinf=LONGEST)


def usable(seen: ObservedReplica) -> bool:
    """Tell whether an observation is possible for a queue."""
    size = RequestSize(seen.input_tokens, seen.output_tokens)
    positive = all(0 < value <= LONGEST for value in (seen.rate, seen.input_tokens, seen.output_tokens))
    timed = all(SHORTEST <= value <= LONGEST for value in (seen.ttft, seen.itl))
    return positive and timed and not size_problem(size) and 1 <= seen.batch <= MAX_BATCH
