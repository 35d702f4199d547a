"""A queue of the original: a bounded number of requests wait, and the others are lost."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Final

from tests.golden.original.service import LONGEST, SHORTEST, Parameters, RequestSize
from tests.golden.original.service import ServiceQueue as Replica
from wva.model.service import MAX_BATCH_SIZE

MAX_BATCH: Final = MAX_BATCH_SIZE
MAX_QUEUE: Final = 10 * MAX_BATCH

QUEUE_TO_BATCH: Final = 10
"""Requests that may wait per request of the batch."""


@dataclass(frozen=True, slots=True)
class BoundedQueue(Replica):
    """One replica: at most ``max_batch`` requests in service, at most ``max_queue`` waiting, the others are lost."""

    max_queue: int

    def problem(self) -> str:
        """Return in words why the queue cannot be evaluated; "" if it can."""
        if not 1 <= self.max_batch <= MAX_BATCH:
            return f"batch size {self.max_batch}, expected 1 to {MAX_BATCH}"
        if not 0 <= self.max_queue <= MAX_QUEUE:
            return f"queue size {self.max_queue}, expected 0 to {MAX_QUEUE}"
        wrong = parameter_problem(self.parameters) or size_problem(self.request)
        if wrong:
            return wrong
        law = self.parameters.law(self.request)
        for time in (law.base + law.slope, law.base + law.slope * self.max_batch):
            if not SHORTEST <= time <= LONGEST:
                return f"a request would take {time:g} ms, expected {SHORTEST:g} to {LONGEST:g}"
        return ""


def parameter_problem(parameters: Parameters) -> str:
    """Return in words what is wrong with parameters; "" if nothing is."""
    for name, value in asdict(parameters).items():
        if not 0 <= value <= LONGEST:
            return f"{name} is {value:g}, expected a number from 0 to {LONGEST:g}"
    return ""


def size_problem(size: RequestSize) -> str:
    """Return in words what is wrong with a size; "" if nothing is."""
    if not (math.isfinite(size.input_tokens) and size.input_tokens >= 0):
        return f"input tokens {size.input_tokens:g}, expected a number of at least 0"
    if not (math.isfinite(size.output_tokens) and size.output_tokens >= 1):
        return f"output tokens {size.output_tokens:g}, expected a number of at least 1"
    return ""
