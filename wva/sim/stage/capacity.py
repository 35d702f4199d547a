"""The capacity of one replica, for policies that know the world."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Final

from wva.model.objectives import Objectives
from wva.sim.fleet import calibration
from wva.sim.fleet.capacity import ATTAINMENT, Sizes, capacity, capacity_of_mix
from wva.sim.fleet.parameters import EngineParameters

Capacity = Callable[[EngineParameters, float, float], float]
"""The requests per second that a replica carries, for a mean prompt and a mean answer in tokens."""

OUT_OF_REACH: Final = 0.25
"""A replica carries so much of its saturation at least: who keeps the objectives only below that keeps them at no sane
price, and fleets of four times the size are compared with nothing."""
_HALVINGS: Final = 40
"""Of the KV cache usage, until an objective is met."""
_GRID: Final = 1.25
"""Sizes are simulated at powers of this; between them the formula for a saturated replica goes on."""


def saturation(parameters: EngineParameters, prompt_tokens: float, output_tokens: float) -> float:
    """Return the rate at which the queue of a replica starts to grow without bound, by a formula."""
    point = calibration.saturation(
        parameters, prompt_tokens=max(1, round(prompt_tokens)), output_tokens=max(1, round(output_tokens))
    )
    return point.requests_per_second


def fluent(itl_seconds: float) -> Capacity:
    """Return the capacity at which the time between tokens is within an objective, by a formula; users may wait.

    Where even a single request alone misses the objective, the capacity is the rate of saturation.
    """

    def carried(parameters: EngineParameters, prompt_tokens: float, output_tokens: float) -> float:
        prompt, answer = max(1, round(prompt_tokens)), max(1, round(output_tokens))
        saturated = calibration.saturation(parameters, prompt_tokens=prompt, output_tokens=answer)
        if saturated.inter_token_latency_seconds <= itl_seconds:
            return saturated.requests_per_second
        low, high, rate = 0.0, saturated.kv_cache_usage, 0.0
        for _ in range(_HALVINGS):
            usage = (low + high) / 2.0
            point = calibration.operating_point(
                parameters, kv_cache_usage=usage, prompt_tokens=prompt, output_tokens=answer
            )
            if point.inter_token_latency_seconds <= itl_seconds:
                low, rate = usage, point.requests_per_second
            else:
                high = usage
        return rate or saturated.requests_per_second

    return carried


def within(objectives: Objectives, sizes: Sizes = ()) -> Capacity:
    """Return the capacity at which users get what they expect, by simulation of one replica.

    ``sizes`` are a sample of the requests. Requests that would be late even on a replica of their own are served but
    do not count: the capacity is the rate at which the others are in time. Where all would be late, the capacity is
    the rate of saturation: then no fleet of any size serves them in time.
    """

    def carried(parameters: EngineParameters, prompt_tokens: float, output_tokens: float) -> float:
        saturation_rate = saturation(parameters, prompt_tokens, output_tokens)
        hopeless = sum(calibration.alone_seconds(parameters, prompt) > objectives.ttft_seconds for prompt, _ in sizes)
        if hopeless > (1.0 - ATTAINMENT) * len(sizes):
            prompt, answer = (sum(tokens) / len(tokens) for tokens in zip(*sizes, strict=True))
            simulated = capacity_of_mix(parameters, sizes=sizes, objectives=objectives)
        else:
            prompt, answer = _on_grid(prompt_tokens), _on_grid(output_tokens)
            simulated = capacity(
                parameters, prompt_tokens=round(prompt), output_tokens=round(answer), objectives=objectives
            )
        if not simulated:
            return saturation_rate
        return saturation_rate * max(OUT_OF_REACH, simulated / saturation(parameters, prompt, answer))

    return carried


def _on_grid(tokens: float) -> int:
    return max(1, round(_GRID ** round(log(max(1.0, tokens), _GRID))))
