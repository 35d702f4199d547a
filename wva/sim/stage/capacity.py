"""The capacity of one replica, for policies that know the world."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Final

from wva.model.objectives import Objectives
from wva.sim.fleet import calibration
from wva.sim.fleet.capacity import capacity
from wva.sim.fleet.parameters import EngineParameters

Capacity = Callable[[EngineParameters, float, float], float]
"""The requests per second that a replica carries, of a mean prompt and a mean answer in tokens."""

_GRID: Final = 1.25
"""Sizes are simulated at powers of this; between them the formula for a saturated replica goes on."""


def saturation(parameters: EngineParameters, prompt_tokens: float, output_tokens: float) -> float:
    """Return the rate at which the queue of a replica starts to grow without bound, by a formula."""
    point = calibration.saturation(
        parameters, prompt_tokens=max(1, round(prompt_tokens)), output_tokens=max(1, round(output_tokens))
    )
    return point.requests_per_second


def within(objectives: Objectives) -> Capacity:
    """Return the capacity at which users get what they expect, by simulation of one replica.

    Where no rate is low enough for that, it is the rate of saturation: then no fleet serves them, of any size.
    """

    def carried(parameters: EngineParameters, prompt_tokens: float, output_tokens: float) -> float:
        prompt, answer = _on_grid(prompt_tokens), _on_grid(output_tokens)
        simulated = capacity(parameters, prompt_tokens=prompt, output_tokens=answer, objectives=objectives)
        full = saturation(parameters, prompt_tokens, output_tokens)
        return full * simulated / saturation(parameters, prompt, answer) if simulated else full

    return carried


def _on_grid(tokens: float) -> int:
    return max(1, round(_GRID ** round(log(max(1.0, tokens), _GRID))))
