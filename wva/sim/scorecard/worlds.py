"""Scenarios in which something goes wrong, beside the load or instead of it, and their short versions."""

from __future__ import annotations

from functools import partial
from typing import Final

from wva.sim.scorecard.fleets import CHEAP, HOUR, MINUTE, scenario_of
from wva.sim.stage.faults import SlowPods
from wva.sim.traffic import shapes

_HALF_SPEED: Final = (SlowPods(CHEAP.name, every=2, speed=0.5),)

WORLDS: Final = (
    scenario_of(
        "half-speed",
        "10 requests/s; every second pod of the cheap variant runs at half speed, and nothing says so; 2 hours",
        partial(shapes.constant, duration_seconds=2 * HOUR, rate=10.0),
        faults=_HALF_SPEED,
    ),
)
"""As long as it takes to tell policies apart."""

SHORT_WORLDS: Final = (
    scenario_of(
        "half-speed-short",
        "10 requests/s; every second pod of the cheap variant runs at half speed, 20 minutes",
        partial(shapes.constant, duration_seconds=20 * MINUTE, rate=10.0),
        faults=_HALF_SPEED,
    ),
)
"""A few minutes of each, with the same kinds of faults and loads."""
