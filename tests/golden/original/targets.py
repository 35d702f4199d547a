"""Targets of a model: latencies and throughput; and derived targets for a model without any. No numpy.

A replica at utilization 1 - 1/k has iterations k times as long as an idle one: with k = 3, a target is the latency
while two thirds of the replica are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.golden.original.service import Parameters, PrefillDecode

HEADROOM: Final = 1.5
MOST_TTFT: Final = 10_000.0
MOST_ITL: Final = 500.0


@dataclass(frozen=True, slots=True)
class OriginalTarget:
    """Wanted time to first token and inter-token latency in ms, and tokens per second; 0 means no target."""

    ttft: float = 0.0
    itl: float = 0.0
    tps: float = 0.0


@dataclass(frozen=True, slots=True)
class ServedTraffic:
    """The traffic of a busy replica: requests per second, mean tokens, mean latencies in ms."""

    rate: float
    input_tokens: float
    output_tokens: float
    ttft: float
    itl: float

    @staticmethod
    def mean(parts: Sequence[ServedTraffic]) -> ServedTraffic | None:
        """Return the sum of the rates and the means weighted with them; None without any traffic."""
        total = math.fsum(part.rate for part in parts)
        if not total > 0:
            return None
        values = [(part.input_tokens, part.output_tokens, part.ttft, part.itl) for part in parts]
        means = [
            math.fsum(part.rate * row[n] for part, row in zip(parts, values, strict=True)) / total for n in range(4)
        ]
        return ServedTraffic(total, *means)


def derived_target(multiplier: float, parameters: Iterable[Parameters], traffic: ServedTraffic) -> OriginalTarget:
    """Return the loosest target that the parameters imply; without parameters one from observed latencies."""
    targets = [_implied(multiplier, each, traffic) for each in parameters]
    if targets:
        return OriginalTarget(max(each.ttft for each in targets), max(each.itl for each in targets))
    if traffic.ttft > 0 and traffic.itl > 0:
        return OriginalTarget(min(HEADROOM * traffic.ttft, MOST_TTFT), min(HEADROOM * traffic.itl, MOST_ITL))
    return OriginalTarget()


def _implied(multiplier: float, parameters: Parameters, traffic: ServedTraffic) -> OriginalTarget:
    prompt, answer = traffic.input_tokens, traffic.output_tokens
    alpha, beta, gamma = parameters.alpha, parameters.beta, parameters.gamma
    iteration = multiplier * alpha
    if isinstance(parameters, PrefillDecode):
        return OriginalTarget(iteration + multiplier * gamma + parameters.delta * prompt, iteration + beta)
    return OriginalTarget(iteration + (beta + gamma) * prompt, iteration + beta + gamma * (prompt + (answer + 1) / 2))
