"""What one replica carries: the highest steady rate of requests at which users get what they expect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import floor
from random import Random
from typing import Final, Protocol

from wva.sim.fleet.calibration import alone_seconds, saturation
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


Sizes = tuple[tuple[int, int], ...]
"""Prompts and answers of requests in tokens, each as likely as the others."""


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
    they do not. Returns 0 when even a request that is alone is not served within them. The same arguments give the same
    number, and are simulated once in a process.
    """
    return capacity_of_mix(parameters, sizes=((prompt_tokens, output_tokens),), objectives=objectives, seed=seed)


def capacity_of_mix(
    parameters: EngineParameters, *, sizes: Sizes, objectives: LatencyObjectives, seed: int = 0
) -> float:
    """Return the same for requests of several sizes; those count whose first token would be in time if they were alone.

    The others are served and not counted; requests that are too long for the model are refused. Returns 0 when none
    would be in time.
    """
    ttft_seconds, itl_seconds = objectives.ttft_seconds, objectives.itl_seconds
    sizes = tuple(size for size in sizes if size[0] < parameters.max_model_len)
    if not any(alone_seconds(parameters, prompt) <= ttft_seconds for prompt, _ in sizes):
        return 0.0
    return _answer(_CapacityQuestion(parameters, sizes, ttft_seconds, itl_seconds, seed))


@dataclass(frozen=True, slots=True)
class _CapacityQuestion:
    parameters: EngineParameters
    sizes: Sizes
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
            prompt, answer = self.sizes[random.randrange(len(self.sizes)) if len(self.sizes) > 1 else 0]
            request = UserRequest(number=number, arrival_seconds=at, prompt_tokens=prompt, output_tokens=answer)
            engine.submit(request, at_seconds=at)
        engine.advance(at + 4.0 * _SECONDS)
        counted = [served for served in engine.finished if served.request.number >= requests // 3]
        in_time = sum(served.time_to_first_token_seconds <= self.ttft_seconds for served in counted)
        gaps = [served.inter_token_latency_seconds or 0.0 for served in counted]
        hopeless = sum(
            alone_seconds(self.parameters, served.request.prompt_tokens) > self.ttft_seconds for served in counted
        )
        required = ATTAINMENT * (requests - requests // 3 - hopeless)
        return in_time >= required and sum(gaps) <= self.itl_seconds * len(gaps)


@cache
def _answer(question: _CapacityQuestion) -> float:
    prompt, answer = (round(sum(tokens) / len(tokens)) for tokens in zip(*question.sizes, strict=True))
    saturated = saturation(question.parameters, prompt_tokens=prompt, output_tokens=answer)
    low, high = 0.0, 0.8 * saturated.requests_per_second
    while question.carries(high):
        low, high = high, high * 1.3
    while high - low > _RESOLUTION * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if question.carries(middle) else (low, middle)
        if high < _LEAST:
            return 0.0
    return low
