"""Which variants a rival scales. Rivals know nothing of other variants of the model: one autoscaler per Deployment.

``Scope.ALL``: each Deployment has an autoscaler, all with the same target, as users set them up who ignore prices.
``Scope.CHEAPEST``: only the variant with the lowest price for its capacity has one; the others stay at their minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from wva.sim.stage.capacity import Capacity, saturation
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.view import StageController, StageView

_USUAL_PROMPT, _USUAL_ANSWER = 512, 256
"""Tokens of the request by which variants are compared."""


class Scope(Enum):
    """Which variants are scaled."""

    ALL = "all"
    CHEAPEST = "cheapest"

    @property
    def ending(self) -> str:
        """The end of the names of policies with this scope."""
        return "" if self is Scope.ALL else f"-{self.value}"


def scaled(scenario: Scenario, scope: Scope, capacity: Capacity = saturation) -> tuple[VariantSetup, ...]:
    """Return the variants that a rival of this scope scales."""
    if scope is Scope.ALL:
        return scenario.variants
    return (
        min(
            scenario.variants,
            key=lambda setup: setup.price / capacity(setup.parameters, _USUAL_PROMPT, _USUAL_ANSWER),
        ),
    )


def at_minimum(scenario: Scenario, but: tuple[VariantSetup, ...]) -> list[StageController]:
    """Return a controller that holds all other variants at their minimum; none if there are no others."""
    others = [setup for setup in scenario.variants if setup not in but]
    return [_AtMinimum(scenario.hpa_seconds, others)] if others else []


class _AtMinimum:
    decides = False

    def __init__(self, period_seconds: float, variants: Sequence[VariantSetup]) -> None:
        self.period_seconds = period_seconds
        self._variants = variants

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Set each variant to its minimum."""
        del now_seconds
        for setup in self._variants:
            stage.scale(setup.name, setup.minimum)
