"""How long an engine takes for a request: the two parameterisations of the service law, as values without numpy.

An engine computes n requests at once. In both parameterisations the mean service time of a request is an affine
function of n, and so are its latencies (docs/design/queueing-formulas.md#service-times):

- ``PrefillDecode``: alpha + beta*n ms per output token and gamma + delta*input*n ms for the prompt; known performance
  parameters of a model on an accelerator come in this form.
- ``IterationTime``: alpha + n*(beta*c + gamma*m) ms per iteration with c computed and m resident tokens; the form that
  can be estimated from what an engine reports.

Two things differ from the Go controller: a request without input tokens has no prefill, so gamma is left out of the
effective batch as well; and the single decode step of an answer of one token counts in both places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from wva.model.service import MAX_BATCH_SIZE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Number = TypeVar("Number", float, "NDArray[np.float64]")
"""One queue, or an array of queues: the laws are the same."""

MAX_BATCH: Final = MAX_BATCH_SIZE
"""Requests in one batch that are evaluated at most; the time of an evaluation grows with it."""

MAX_QUEUE: Final = 10 * MAX_BATCH
SHORTEST: Final = 1e-6
LONGEST: Final = 1e12
"""Bounds of a service time in ms, beyond which rates would have no meaning in floating point."""

QUEUE_TO_BATCH: Final = 10
"""Requests that may wait per request of the batch."""


@dataclass(frozen=True, slots=True)
class RequestSize:
    """Mean tokens of a request: the prompt's and the answer's."""

    input_tokens: float
    output_tokens: float

    @property
    def sizes(self) -> Sizes[float]:
        """The same, as the service laws take it."""
        return Sizes(self.input_tokens, self.output_tokens)

    def problem(self) -> str:
        """Return in words what is wrong, empty if nothing is."""
        if not (math.isfinite(self.input_tokens) and self.input_tokens >= 0):
            return f"input tokens {self.input_tokens:g}, expected a number of at least 0"
        if not (math.isfinite(self.output_tokens) and self.output_tokens >= 1):
            return f"output tokens {self.output_tokens:g}, expected a number of at least 1"
        return ""


@dataclass(frozen=True, slots=True)
class Mean(Generic[Number]):
    """A mean time in ms, linear in the two ways to count what is being computed.

    ``batch`` goes with the mean batch that a request is computed in, ``serving`` with the mean number in service.
    """

    constant: Number
    batch: Number
    serving: Number


@dataclass(frozen=True, slots=True)
class ServiceLaw(Generic[Number]):
    """Service of requests of one size: ``base`` + ``slope``*n ms in a batch of n.

    ``first_decode`` is 1 where the time to first token includes the first decode step.
    """

    base: Number
    slope: Number
    prefill: Mean[Number]
    decode: Mean[Number]
    first_decode: Number


@dataclass(frozen=True, slots=True)
class Sizes(Generic[Number]):
    """Mean tokens of the prompt and of the answer."""

    prompt: Number
    answer: Number


def prefill_decode_law(
    sizes: Sizes[Number], *, alpha: Number, beta: Number, gamma: Number, delta: Number
) -> ServiceLaw[Number]:
    """Return the service in the parameterisation of ``PrefillDecode``, of one queue or of an array of queues."""
    prompted = sizes.prompt > 0
    start, growth = prompted * gamma, prompted * delta * sizes.prompt
    steps = sizes.answer - 1 + (sizes.prompt == 0) * (sizes.answer == 1)
    nothing = 0 * alpha
    return ServiceLaw(
        base=start + steps * alpha,
        slope=growth + steps * beta,
        prefill=Mean(start, growth, nothing),
        decode=Mean(alpha, beta, nothing),
        first_decode=nothing,
    )


def iteration_time_law(sizes: Sizes[Number], *, alpha: Number, beta: Number, gamma: Number) -> ServiceLaw[Number]:
    """Return the service in the parameterisation of ``IterationTime``, of one queue or of an array of queues."""
    prompt, answer = sizes.prompt, sizes.answer
    prompted = prompt > 0
    resident = prompt + answer / 2
    slope = beta * (prompt + answer) / (answer + 1) + gamma * resident
    decode = alpha + beta + gamma * resident
    prefill = prompted * (alpha + (beta + gamma) * prompt)
    prefill_slope = prompted * slope
    service_slope = prefill_slope + answer * slope
    nothing = 0 * alpha
    return ServiceLaw(
        base=prefill + answer * decode,
        slope=service_slope,
        prefill=Mean(prefill, nothing, prefill_slope),
        decode=Mean(decode, service_slope / answer, -prefill_slope / answer),
        first_decode=nothing + 1,
    )


@dataclass(frozen=True, slots=True)
class PrefillDecode:
    """alpha (ms), beta (ms per request), gamma (ms), delta (ms per input token and request)."""

    alpha: float
    beta: float
    gamma: float = 0.0
    delta: float = 0.0

    def problem(self) -> str:
        """Return in words what is wrong, empty if nothing is."""
        return _parameter_problem(alpha=self.alpha, beta=self.beta, gamma=self.gamma, delta=self.delta)

    def law(self, request: RequestSize) -> ServiceLaw[float]:
        """Return the service of requests of one size."""
        return prefill_decode_law(request.sizes, alpha=self.alpha, beta=self.beta, gamma=self.gamma, delta=self.delta)


@dataclass(frozen=True, slots=True)
class IterationTime:
    """alpha (ms), beta (ms per computed token), gamma (ms per token in the KV cache)."""

    alpha: float
    beta: float
    gamma: float

    def problem(self) -> str:
        """Return in words what is wrong, empty if nothing is."""
        return _parameter_problem(alpha=self.alpha, beta=self.beta, gamma=self.gamma)

    def law(self, request: RequestSize) -> ServiceLaw[float]:
        """Return the service of requests of one size."""
        return iteration_time_law(request.sizes, alpha=self.alpha, beta=self.beta, gamma=self.gamma)


Parameters = PrefillDecode | IterationTime


@dataclass(frozen=True, slots=True)
class Queue:
    """One replica: at most ``max_batch`` requests in service, at most ``max_queue`` waiting, the others are lost."""

    parameters: Parameters
    request: RequestSize
    max_batch: int
    max_queue: int

    def problem(self) -> str:
        """Return in words why it cannot be evaluated, empty if it can."""
        if not 1 <= self.max_batch <= MAX_BATCH:
            return f"batch size {self.max_batch}, expected 1 to {MAX_BATCH}"
        if not 0 <= self.max_queue <= MAX_QUEUE:
            return f"queue size {self.max_queue}, expected 0 to {MAX_QUEUE}"
        wrong = self.parameters.problem() or self.request.problem()
        if wrong:
            return wrong
        law = self.parameters.law(self.request)
        return _time_problem(law.base + law.slope) or _time_problem(law.base + law.slope * self.max_batch)


def _parameter_problem(**parameters: float) -> str:
    for name, value in parameters.items():
        if not 0 <= value <= LONGEST:
            return f"{name} is {value:g}, expected a number from 0 to {LONGEST:g}"
    return ""


def _time_problem(milliseconds: float) -> str:
    """Refuse what would make rates infinite or zero in floating point: the chain would have no stable state."""
    if SHORTEST <= milliseconds <= LONGEST:
        return ""
    return f"a request would take {milliseconds:g} ms, expected {SHORTEST:g} to {LONGEST:g}"
