"""Targets for a model without any: derived from its parameters or from observed latencies. No numpy.

Formulas: docs/design/queueing-formulas.md#derived-targets. A replica at utilization 1 - 1/k has iterations k times as
long as an idle one: with k = 3, a target is what requests see while two thirds of the replica are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from wva.decide.queueing.service import Parameters, PrefillDecode
from wva.decide.queueing.targets import Target

HEADROOM: Final = 1.5
MOST_TTFT: Final = 10_000.0
MOST_ITL: Final = 500.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a busy replica serves: requests per second, mean tokens, mean latencies in ms."""

    rate: float
    input_tokens: float
    output_tokens: float
    ttft: float
    itl: float

    @staticmethod
    def mean(parts: Sequence[Traffic]) -> Traffic | None:
        """Return the sum of the rates and the means weighted with them; None without any traffic."""
        busy = [part for part in parts if part.rate > 0]
        total = math.fsum(part.rate for part in busy)
        if not busy:
            return None
        return Traffic(
            total,
            math.fsum(part.rate * part.input_tokens for part in busy) / total,
            math.fsum(part.rate * part.output_tokens for part in busy) / total,
            math.fsum(part.rate * part.ttft for part in busy) / total,
            math.fsum(part.rate * part.itl for part in busy) / total,
        )


def derived_target(multiplier: float, parameters: Iterable[Parameters], traffic: Traffic) -> Target | None:
    """Return the loosest of the targets that the parameters imply, else one from the observed latencies, else None."""
    targets = [_implied(multiplier, each, traffic) for each in parameters]
    if targets:
        return Target(max(each.ttft for each in targets), max(each.itl for each in targets))
    if traffic.ttft > 0 and traffic.itl > 0:
        return Target(min(HEADROOM * traffic.ttft, MOST_TTFT), min(HEADROOM * traffic.itl, MOST_ITL))
    return None


def _implied(multiplier: float, parameters: Parameters, traffic: Traffic) -> Target:
    prompt, answer = traffic.input_tokens, traffic.output_tokens
    alpha, beta, gamma = parameters.alpha, parameters.beta, parameters.gamma
    iteration = multiplier * alpha
    if isinstance(parameters, PrefillDecode):
        return Target(iteration + multiplier * gamma + parameters.delta * prompt, iteration + beta)
    return Target(iteration + (beta + gamma) * prompt, iteration + beta + gamma * (prompt + (answer + 1) / 2))
