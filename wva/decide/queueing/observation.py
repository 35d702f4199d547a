"""What a queue with given parameters would report: the function that estimators invert."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wva.decide.queueing.chain import Chains
from wva.decide.queueing.columns import Columns, blocks
from wva.decide.queueing.service import QUEUE_TO_BATCH, IterationTime, Queue, RequestSize
from wva.model.queueing import Observation

Matrix = NDArray[np.float64]


def predicted(observations: Sequence[Observation], parameters: Matrix, *, first_decode: bool = True) -> Matrix:
    """Return time to first token and inter-token latency in ms, one row per observation and its parameters.

    ``parameters`` has a row (alpha, beta, gamma) per observation. ``first_decode`` counts the first decode step to the
    time to first token, as engines and ``sizing`` do.
    """
    queues = [
        Queue(
            IterationTime(alpha, beta, gamma),
            RequestSize(seen.input_tokens, seen.output_tokens),
            seen.batch,
            QUEUE_TO_BATCH * seen.batch,
        )
        for seen, (alpha, beta, gamma) in zip(observations, parameters.tolist(), strict=True)
    ]
    rates = np.array([seen.rate for seen in observations])
    found = np.empty((len(queues), 2))
    columns = Columns.of(queues)
    for block in blocks(columns, np.arange(len(queues), dtype=np.intp)):
        chains = Chains.of(columns.take(block))
        steady = chains.steady(chains.log_load(rates[block]))
        found[block, 0] = steady.ttft if first_decode else steady.wait + steady.prefill
        found[block, 1] = steady.itl
    return found


def usable(seen: Observation) -> bool:
    """Tell whether an observation can be explained at all."""
    size = RequestSize(seen.input_tokens, seen.output_tokens)
    positive = all(0 < value < np.inf for value in (seen.rate, seen.input_tokens, seen.ttft, seen.itl))
    return positive and not size.problem() and seen.batch >= 1
