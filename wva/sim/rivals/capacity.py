"""The capacity of one replica, for policies that know the world."""

from __future__ import annotations

from collections.abc import Callable

from wva.sim.fleet import calibration
from wva.sim.fleet.parameters import EngineParameters

Capacity = Callable[[EngineParameters, float, float], float]
"""The requests per second that a replica carries, of a mean prompt and a mean answer in tokens."""


def saturation(parameters: EngineParameters, prompt_tokens: float, output_tokens: float) -> float:
    """Return the rate at which the queue of a replica starts to grow without bound."""
    point = calibration.saturation(
        parameters, prompt_tokens=max(1, round(prompt_tokens)), output_tokens=max(1, round(output_tokens))
    )
    return point.requests_per_second
