"""How long an engine takes for a request: the two parameterisations of the service law, as values without numpy.

An engine computes n requests at once. In both parameterisations (optimizer.md 2.1) the mean service time of a request
is an affine function of n, and so are the latencies that people ask about:

- ``PrefillDecode``: alpha + beta*n ms per output token and gamma + delta*input*n ms for the prompt; known performance
  parameters of a model on an accelerator come in this form.
- ``IterationTime``: alpha + n*(beta*c + gamma*m) ms per iteration with c computed and m resident tokens; the form that
  can be estimated from what an engine reports.

Departure: without input tokens a request has no prefill, so gamma is left out of the effective batch as well, and the
single decode step of a request of one token counts in both places (optimizer.md 8.1, items 3 and 4).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Final

MAX_BATCH: Final = 100_000
"""Requests in one batch that are evaluated at most; the time of an evaluation grows with it."""

MAX_QUEUE: Final = 10 * MAX_BATCH
QUEUE_TO_BATCH: Final = 10
"""Requests that may wait per request of the batch (optimizer.md 1.2)."""


@dataclass(frozen=True, slots=True)
class RequestSize:
    """Mean tokens of a request: the prompt's and the answer's."""

    input_tokens: float
    output_tokens: float

    def problem(self) -> str:
        """Return in words what is wrong, empty if nothing is."""
        if not (math.isfinite(self.input_tokens) and self.input_tokens >= 0):
            return f"input tokens {self.input_tokens:g}, expected a number of at least 0"
        if not (math.isfinite(self.output_tokens) and self.output_tokens >= 1):
            return f"output tokens {self.output_tokens:g}, expected a number of at least 1"
        return ""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean time in ms, linear in the two ways to count what is being computed.

    ``batch`` goes with the mean batch that a request is computed in, ``serving`` with the mean number in service.
    """

    constant: float
    batch: float = 0.0
    serving: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceLaw:
    """Service of requests of one size: ``base`` + ``slope``*n ms in a batch of n.

    ``first_decode`` is 1 where the time to first token includes the first decode step (optimizer.md 2.5).
    """

    base: float
    slope: float
    prefill: Mean
    decode: Mean
    first_decode: float = 0.0


@dataclass(frozen=True, slots=True)
class PrefillDecode:
    """alpha (ms), beta (ms per request), gamma (ms), delta (ms per input token and request)."""

    alpha: float
    beta: float
    gamma: float = 0.0
    delta: float = 0.0

    def problem(self) -> str:
        """Return in words what is wrong, empty if nothing is."""
        return _parameter_problem(self)

    def law(self, request: RequestSize) -> ServiceLaw:
        """Return the service of requests of one size."""
        tokens, steps = request.input_tokens, request.output_tokens - 1
        gamma, delta = (self.gamma, self.delta * tokens) if tokens > 0 else (0.0, 0.0)
        if tokens == 0 and steps == 0:
            steps = 1.0
        return ServiceLaw(
            base=gamma + steps * self.alpha,
            slope=delta + steps * self.beta,
            prefill=Mean(gamma, batch=delta),
            decode=Mean(self.alpha, batch=self.beta),
        )


@dataclass(frozen=True, slots=True)
class IterationTime:
    """alpha (ms), beta (ms per computed token), gamma (ms per token in the KV cache)."""

    alpha: float
    beta: float
    gamma: float

    def problem(self) -> str:
        """Return in words what is wrong, empty if nothing is."""
        return _parameter_problem(self)

    def law(self, request: RequestSize) -> ServiceLaw:
        """Return the service of requests of one size."""
        tokens, answer = request.input_tokens, request.output_tokens
        resident = tokens + answer / 2
        slope = self.beta * (tokens + answer) / (answer + 1) + self.gamma * resident
        decode = self.alpha + self.beta + self.gamma * resident
        prefill = self.alpha + (self.beta + self.gamma) * tokens if tokens > 0 else 0.0
        prefill_slope = slope if tokens > 0 else 0.0
        service_slope = prefill_slope + answer * slope
        return ServiceLaw(
            base=prefill + answer * decode,
            slope=service_slope,
            prefill=Mean(prefill, serving=prefill_slope),
            decode=Mean(decode, batch=service_slope / answer, serving=-prefill_slope / answer),
            first_decode=1.0,
        )


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


def _parameter_problem(parameters: Parameters) -> str:
    for name, value in asdict(parameters).items():
        if not (math.isfinite(value) and value >= 0):
            return f"{name} is {value:g}, expected a number of at least 0"
    return ""


def _time_problem(milliseconds: float) -> str:
    """Refuse what would make rates infinite or zero in floating point: the chain would have no stable state."""
    if _SHORTEST <= milliseconds <= _LONGEST:
        return ""
    return f"a request would take {milliseconds:g} ms, expected {_SHORTEST:g} to {_LONGEST:g}"


_SHORTEST: Final = 1e-6
_LONGEST: Final = 1e12
