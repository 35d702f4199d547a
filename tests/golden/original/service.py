"""The time that an engine takes for a request, in two parameterisations. No numpy.

An engine computes n requests at once. In both parameterisations the mean service time of a request is an affine
function of n, and so are its latencies:

- ``PrefillDecode``: alpha + beta*n ms per output token and gamma + delta*input*n ms for the prompt; known performance
  parameters of a model on an accelerator have this form.
- ``IterationTime``: alpha + n*(beta*c + gamma*m) ms per iteration with c computed and m resident tokens; these
  parameters can be estimated from an engine's reports.

Two things differ from the Go controller: a request without input tokens has no prefill, so the effective batch does
not include gamma either; and the single decode step of an answer of one token counts in both places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from wva.model.service import MAX_BATCH_SIZE

SHORTEST: Final = 1e-6
LONGEST: Final = 1e12
"""Bounds of a service time in ms, beyond which rates would have no meaning in floating point."""


@dataclass(frozen=True, slots=True)
class RequestSize:
    """Mean tokens of a request: the prompt's and the answer's, and those in the KV cache while it is computed.

    ``resident`` 0 means unknown: then the prompt and half of the answer count.
    """

    input_tokens: float
    output_tokens: float
    resident: float = 0.0


@dataclass(frozen=True, slots=True)
class LinearMean:
    """A mean time in ms, linear in the two counts of requests that are computed at once.

    ``batch`` is the factor of the mean batch of a request, ``serving`` that of the mean number in service.
    """

    constant: float
    batch: float
    serving: float


@dataclass(frozen=True, slots=True)
class ServiceLaw:
    """Service of requests of one size: ``base`` + ``slope``*n ms in a batch of n.

    ``first_decode`` is 1 where the time to first token includes the first decode step.
    """

    base: float
    slope: float
    prefill: LinearMean
    decode: LinearMean
    first_decode: float


@dataclass(frozen=True, slots=True)
class PrefillDecode:
    """alpha (ms), beta (ms per request), gamma (ms), delta (ms per input token and request)."""

    alpha: float
    beta: float
    gamma: float = 0.0
    delta: float = 0.0

    def law(self, request: RequestSize) -> ServiceLaw:
        """Return the service of requests of one size, or of columns of sizes and parameters."""
        prompt, answer = request.input_tokens, request.output_tokens
        prompted = prompt > 0
        start, growth = prompted * self.gamma, prompted * self.delta * prompt
        steps = answer - 1 + (prompt == 0) * (answer == 1)
        nothing = 0 * self.alpha
        return ServiceLaw(
            base=start + steps * self.alpha,
            slope=growth + steps * self.beta,
            prefill=LinearMean(start, growth, nothing),
            decode=LinearMean(self.alpha, self.beta, nothing),
            first_decode=nothing,
        )


@dataclass(frozen=True, slots=True)
class IterationTime:
    """alpha (ms), beta (ms per computed token), gamma (ms per token in the KV cache)."""

    alpha: float
    beta: float
    gamma: float

    def law(self, request: RequestSize) -> ServiceLaw:
        """Return the service of requests of one size, or of columns of sizes and parameters."""
        prompt, answer = request.input_tokens, request.output_tokens
        prompted = prompt > 0
        known = request.resident > 0
        resident = known * request.resident + (1 - known) * (prompt + answer / 2)
        slope = self.beta * (prompt + answer) / (answer + 1) + self.gamma * resident
        decode = self.alpha + self.beta + self.gamma * resident
        prefill = prompted * (self.alpha + (self.beta + self.gamma) * prompt)
        prefill_slope = prompted * slope
        service_slope = prefill_slope + answer * slope
        nothing = 0 * self.alpha
        return ServiceLaw(
            base=prefill + answer * decode,
            slope=service_slope,
            prefill=LinearMean(prefill, nothing, prefill_slope),
            decode=LinearMean(decode, service_slope / answer, -prefill_slope / answer),
            first_decode=nothing + 1,
        )


Parameters = PrefillDecode | IterationTime


def derived_batch(max_batch: int, at_tokens: int, output_tokens: float) -> int:
    """Return the batch with the same number of tokens as ``max_batch`` has with ``at_tokens`` tokens per answer.

    With ``at_tokens`` 0 the batch is the same at any number of tokens.
    """
    if at_tokens <= 0:
        return max_batch
    return min(max(math.floor(max_batch * at_tokens / max(output_tokens, 1.0)), 1), MAX_BATCH_SIZE)


@dataclass(frozen=True, slots=True)
class ServiceQueue:
    """One replica that computes at most ``max_batch`` requests at once; the others wait."""

    parameters: Parameters
    request: RequestSize
    max_batch: int

    @property
    def usable(self) -> bool:
        """Whether service times are within the range where floating point is exact enough."""
        law = self.parameters.law(self.request)
        times = (law.base + law.slope, law.base + law.slope * self.max_batch)
        return all(SHORTEST <= time <= LONGEST for time in times)
