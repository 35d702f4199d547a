"""Scenarios in which there is something to learn: what happens comes again, often enough to be learned.

In half an hour of traffic a policy that learns looks like one that does not. These take hours or days.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from wva.sim.scorecard.fleets import CHEAP, HOUR, MINUTE, scenario_of, starting
from wva.sim.stage.faults import SlowPods
from wva.sim.traffic import shapes

_OFFICE: Final = (
    scenario_of(
        "office",
        "Six days of an office, around 10 requests/s by day and a weekend; pods start in 2 minutes",
        partial(shapes.office, rate=2.5),
        variants=starting(2 * MINUTE, 0.1),
    ),
    scenario_of(
        "office-slow-pods",
        "Three days of an office, around 10 requests/s by day, the last a Saturday; pods start in 10 minutes",
        partial(shapes.office, duration_seconds=72 * HOUR, rate=2.5),
        variants=starting(10 * MINUTE, 0.1),
    ),
)

LEARNING: Final = (
    scenario_of(
        "bursts-regular",
        "Ten times the load for 5 of 20 minutes, 5 hours",
        partial(shapes.bursts, duration_seconds=5 * HOUR),
    ),
    scenario_of(
        "bursts-slow-pods",
        "Ten times the load for 15 of 60 minutes while pods need 10 minutes to start, 6 hours",
        partial(shapes.bursts, duration_seconds=6 * HOUR, burst_seconds=15 * MINUTE),
        variants=starting(10 * MINUTE, 0.1),
    ),
    scenario_of(
        "swings",
        "The load swings around 14 requests/s in an hour, 6 hours",
        partial(shapes.sine, duration_seconds=6 * HOUR, period_seconds=HOUR),
    ),
    scenario_of(
        "half-speed-long",
        "10 requests/s; every second pod of the cheap variant runs at half speed, and nothing says so; 4 hours",
        partial(shapes.constant, duration_seconds=4 * HOUR, rate=10.0),
        faults=(SlowPods(CHEAP.name, every=2, speed=0.5),),
    ),
    *_OFFICE,
)
