"""Many queues as columns of numbers, for arithmetic over all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.golden.original.geometric import Vector
from tests.golden.original.queues import MAX_BATCH, MAX_QUEUE, BoundedQueue
from tests.golden.original.service import (
    LONGEST,
    SHORTEST,
    IterationTime,
    LinearMean,
    PrefillDecode,
    RequestSize,
    ServiceLaw,
)

CELLS: Final = 1 << 16
"""States evaluated together: half a megabyte per array stays in the processor's cache."""

Law = ServiceLaw
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class QueueColumns:
    """Service laws, batch sizes and room to wait of queues; ``usable`` tells which of them can be evaluated."""

    law: Law
    size: Vector
    room: Vector
    usable: Mask

    @staticmethod
    def of(queues: Sequence[BoundedQueue]) -> QueueColumns:
        """Return the columns of queues, also of unusable ones."""
        numbers = chain.from_iterable([_row(queue) for queue in queues])
        data = np.fromiter(numbers, np.float64, 9 * len(queues)).reshape(len(queues), 9)
        return QueueColumns.of_numbers(data[:, :6], size=data[:, 6], room=data[:, 7], late=data[:, 8] > 0)

    @staticmethod
    def of_numbers(numbers: NDArray[np.float64], *, size: Vector, room: Vector, late: Mask) -> QueueColumns:
        """Return the columns of queues given by numbers: alpha, beta, gamma, delta, prompt and answer in each row.

        ``late`` marks the rows with parameters that can be estimated; these have no delta.
        """
        with np.errstate(all="ignore"):  # unusable rows may contain any numbers
            law = _law(numbers, late)
            one, all_of_them = law.base + law.slope, law.base + law.slope * size
        usable = (np.isfinite(numbers) & (numbers >= 0)).all(axis=1) & (numbers[:, 5] >= 1)
        usable &= (numbers[:, :4] <= LONGEST).all(axis=1)
        usable &= (size >= 1) & (size <= MAX_BATCH) & (room >= 0) & (room <= MAX_QUEUE)
        usable &= (one >= SHORTEST) & (one <= LONGEST) & (all_of_them >= SHORTEST) & (all_of_them <= LONGEST)
        return QueueColumns(law, size, room, usable)

    def take(self, rows: Rows) -> QueueColumns:
        """Return some of the queues."""
        return QueueColumns(take_law(self.law, rows), self.size[rows], self.room[rows], self.usable[rows])


def blocks(columns: QueueColumns, rows: Rows) -> Iterator[Rows]:
    """Yield blocks of rows with batch sizes within a factor of two, and with at most ``CELLS`` states."""
    order = rows[np.argsort(columns.size[rows], kind="stable")]
    sizes = columns.size[order]
    start = 0
    while start < len(order):
        similar = sizes[start : np.searchsorted(sizes, 2 * sizes[start], side="right")]
        states = similar * np.arange(1, len(similar) + 1)
        stop = start + max(1, int(np.searchsorted(states, CELLS, side="right")))
        yield order[start:stop]
        start = stop


def take_law(law: Law, rows: Rows) -> Law:
    """Return some rows of a law."""
    prefill, decode = law.prefill, law.decode
    return ServiceLaw(
        law.base[rows],
        law.slope[rows],
        LinearMean(prefill.constant[rows], prefill.batch[rows], prefill.serving[rows]),
        LinearMean(decode.constant[rows], decode.batch[rows], decode.serving[rows]),
        law.first_decode[rows],
    )


def mean_time(mean: LinearMean, batch: Vector, serving: Vector) -> Vector:
    """Return mean times in ms at mean batches and mean numbers in service."""
    return mean.constant + mean.batch * batch + mean.serving * serving


def _row(queue: BoundedQueue) -> tuple[float, ...]:
    parameters, request = queue.parameters, queue.request
    late, delta = (0.0, parameters.delta) if isinstance(parameters, PrefillDecode) else (1.0, 0.0)
    return (
        parameters.alpha,
        parameters.beta,
        parameters.gamma,
        delta,
        request.input_tokens,
        request.output_tokens,
        queue.max_batch,
        queue.max_queue,
        late,
    )


def _law(numbers: NDArray[np.float64], late: Mask) -> Law:
    """Return the law of every row; ``late`` marks the rows with parameters that can be estimated."""
    alpha, beta, gamma, delta, prompt, answer = numbers.T
    request = RequestSize(prompt, answer)
    if not late.any():
        return PrefillDecode(alpha, beta, gamma, delta).law(request)
    estimated: Law = IterationTime(alpha, beta, gamma).law(request)
    if late.all():
        return estimated
    return _either(late, estimated, PrefillDecode(alpha, beta, gamma, delta).law(request))


def _either(chosen: Mask, first: Law, second: Law) -> Law:
    def pick(one: Vector, other: Vector) -> Vector:
        return np.where(chosen, one, other)

    def means(one: LinearMean, other: LinearMean) -> LinearMean:
        return LinearMean(
            pick(one.constant, other.constant), pick(one.batch, other.batch), pick(one.serving, other.serving)
        )

    return ServiceLaw(
        pick(first.base, second.base),
        pick(first.slope, second.slope),
        means(first.prefill, second.prefill),
        means(first.decode, second.decode),
        pick(first.first_decode, second.first_decode),
    )
