"""What one replica carries: the highest steady rate of requests at which users get what they expect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import floor
from random import Random
from typing import Final, Protocol

from wva.sim.fleet.calibration import saturation
from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.requests import UserRequest

ATTAINMENT: Final = 0.99
"""Share of first tokens that must come in time."""

_SECONDS: Final = 300.0
"""How long a load lasts; its first third is not counted."""

_MOST_REQUESTS: Final = 9_000
_FEWEST_REQUESTS: Final = 600
_RESOLUTION: Final = 0.01
"""Share of the result to which it is exact."""

_LEAST: Final = 1e-4
"""Requests per second that count as none."""


class LatencyObjectives(Protocol):
    """What users expect, in seconds."""

    @property
    def ttft_seconds(self) -> float:
        """Longest time to the first token."""
        ...

    @property
    def itl_seconds(self) -> float:
        """Longest mean time between tokens."""
        ...


def capacity(
    parameters: EngineParameters,
    *,
    prompt_tokens: int,
    output_tokens: int,
    objectives: LatencyObjectives,
    seed: int = 0,
) -> float:
    """Return the highest rate, in requests per second, that an engine serves within the objectives.

    The load is a Poisson process with requests of one length, for five minutes. At the rate returned, 99 % of the first
    tokens come within ``ttft_seconds`` and the mean time between tokens is within ``itl_seconds``; at a rate 1 % higher
    they do not. Returns 0 when not even a request that is alone is served within them. The same arguments give the same
    number, and are simulated once in a process.
    """
    return _answer(
        _CapacityQuestion(
            parameters, prompt_tokens, output_tokens, objectives.ttft_seconds, objectives.itl_seconds, seed
        )
    )


@dataclass(frozen=True, slots=True)
class _CapacityQuestion:
    parameters: EngineParameters
    prompt_tokens: int
    output_tokens: int
    ttft_seconds: float
    itl_seconds: float
    seed: int

    def carries(self, rate: float) -> bool:
        """Tell whether an engine serves this many requests per second within the objectives."""
        random = Random(self.seed)
        requests = min(_MOST_REQUESTS, max(_FEWEST_REQUESTS, floor(rate * _SECONDS)))
        engine = DrivenEngine(self.parameters)
        at = 0.0
        for number in range(requests):
            at += random.expovariate(rate)
            request = UserRequest(
                number=number, arrival_seconds=at, prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens
            )
            engine.submit(request, at_seconds=at)
        engine.advance(at + 4.0 * _SECONDS)
        counted = [served for served in engine.finished if served.request.number >= requests // 3]
        in_time = sum(served.time_to_first_token_seconds <= self.ttft_seconds for served in counted)
        gaps = [served.inter_token_latency_seconds or 0.0 for served in counted]
        return in_time >= ATTAINMENT * (requests - requests // 3) and sum(gaps) <= self.itl_seconds * len(gaps)


@cache
def _answer(question: _CapacityQuestion) -> float:
    full = saturation(question.parameters, prompt_tokens=question.prompt_tokens, output_tokens=question.output_tokens)
    low, high = 0.0, 0.8 * full.requests_per_second
    while question.carries(high):
        low, high = high, high * 1.3
    while high - low > _RESOLUTION * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if question.carries(middle) else (low, middle)
        if high < _LEAST:
            return 0.0
    return low
