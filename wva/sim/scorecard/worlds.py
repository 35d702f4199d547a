"""Scenarios in which more changes than a plain load, and their short versions.

Pods go, start late or are slow; users come back, models change places, sessions go on; scrapes are rare, and users
expect more or less.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.fleet.users import GatewaySettings, Routing
from wva.sim.scorecard.fleets import (
    CHEAP,
    DEAR,
    GATEWAY,
    HOUR,
    LONG_PROMPTS,
    MINUTE,
    scenario_of,
    starting,
)
from wva.sim.stage.faults import Eviction, Fault, NoStarts, SlowPods
from wva.sim.stage.scenario import Scenario, WorldObservation
from wva.sim.traffic import shapes, traces
from wva.sim.traffic.agents import agents
from wva.sim.traffic.requests import Traffic

_HALF_SPEED: Final = (SlowPods(CHEAP.name, every=2, speed=0.5),)
_STORM: Final = GatewaySettings(patience_seconds=4.0, attempts=5, retry_seconds=1.0)
_PREFIX_AWARE: Final = replace(GATEWAY, routing=Routing.PREFIX, prefix_weight=0.5)
_ZERO: Final = tuple(replace(variant, minimum=0) for variant in (CHEAP, DEAR))
_SHARES: Final = (0.01, 0.05, 0.25, 0.5, 0.25, 0.5, 1.0)
"""Of the requests that go to a new model, one after the other: once it goes back a step."""
_CANARY: Final = tuple(18.0 * share for share in _SHARES)
_REPLACED: Final = tuple(18.0 * (1.0 - share) for share in _SHARES)


def _drained(first_seconds: float, every_seconds: float, rounds: int) -> tuple[Fault, ...]:
    """Return evictions of a quarter of the Ready pods, one after the other."""
    return tuple(Eviction(first_seconds + round_ * every_seconds, share=0.25) for round_ in range(rounds))


def _reclaimed(at_seconds: float, for_seconds: float) -> tuple[Fault, ...]:
    """Return the faults with which half of the cheap pods vanish, and none becomes Ready for a while."""
    return (
        Eviction(at_seconds, share=0.5, variants=(CHEAP.name,), grace_seconds=0.0),
        NoStarts(CHEAP.name, at_seconds, at_seconds + for_seconds),
    )


_MODELS: Final = {"L40S": 8, "A100": 5}
"""The GPUs of two models, of which each takes more than half of them at its peak."""


def _swinging(seed: int, *, duration_seconds: float, period_seconds: float, swing: float) -> Traffic:
    """Return a load that swings around 16 requests/s. If it begins at its highest, it has other requests."""
    return shapes.sine(
        seed if swing > 0 else 1000 + seed,
        duration_seconds=duration_seconds,
        rate=16.0,
        swing=swing,
        period_seconds=period_seconds,
    )


def _two_models(name: str, title: str, duration_seconds: float, period_seconds: float) -> Scenario:
    """Return two models whose loads swing against each other, on GPUs that are too few for both at their peak."""
    variants = tuple(replace(variant, name=f"code-{variant.accelerator.lower()}") for variant in (CHEAP, DEAR))
    load = partial(_swinging, duration_seconds=duration_seconds, period_seconds=period_seconds)
    code = scenario_of("code", title, partial(load, swing=-0.8), variants=variants, model_id="org/code")
    return scenario_of(name, title, partial(load, swing=0.8), others=(code,), gpus=_MODELS)


_FAULTY: Final = (
    scenario_of(
        "half-speed",
        "10 requests/s; every second pod of the cheap variant runs at half speed, and nothing says so; 2 hours",
        partial(shapes.constant, duration_seconds=2 * HOUR, rate=10.0),
        faults=_HALF_SPEED,
    ),
    scenario_of(
        "drain",
        "12 requests/s; every 5 minutes a quarter of the Ready pods is evicted, 8 times, oldest first; 2 hours",
        partial(shapes.constant, duration_seconds=2 * HOUR, rate=12.0),
        faults=_drained(30 * MINUTE, 5 * MINUTE, 8),
    ),
    scenario_of(
        "reclaim",
        "12 requests/s; half of the cheap pods vanish, and no other one becomes Ready for 20 minutes; 2 hours",
        partial(shapes.constant, duration_seconds=2 * HOUR, rate=12.0),
        faults=_reclaimed(50 * MINUTE, 20 * MINUTE),
    ),
)
_LOADS: Final = (
    scenario_of(
        "agents",
        "Calls of agents, 8 per second: long sessions, tool pauses, growing prompts, routing by prefix; 2 hours",
        agents,
        variants=LONG_PROMPTS,
        gateway=_PREFIX_AWARE,
        objectives=Objectives(ttft_seconds=3.0),
    ),
    scenario_of(
        "retry-storm",
        "Users wait 4 s and try five times; 5 requests/s, and twice 16 for 20 minutes; 2 hours",
        partial(shapes.levels, duration_seconds=2 * HOUR, parts=(5.0, 16.0, 5.0, 16.0, 5.0, 5.0)),
        gateway=_STORM,
    ),
    scenario_of("viral", "3 requests/s, eight times as many within 3 minutes, and a slow decay; 2 hours", shapes.viral),
    scenario_of(
        "canary",
        "A new model gets 1, 5, 25, 50, again 25, 50 and 100 % of 18 requests/s, 10 minutes each",
        partial(shapes.levels, duration_seconds=70 * MINUTE, parts=_CANARY),
    ),
    scenario_of(
        "canary-old",
        "The model that a canary replaces: 99, 95, 75, 50, again 75, 50 and 0 % of 18 requests/s",
        partial(shapes.levels, duration_seconds=70 * MINUTE, parts=_REPLACED),
    ),
    _two_models(
        "two-models",
        "Two models on 8 and 5 GPUs; one swings between 3 and 29 requests/s in an hour, the other against it; 2 hours",
        duration_seconds=2 * HOUR,
        period_seconds=HOUR,
    ),
    scenario_of(
        "jittered-bursts",
        "2 requests/s, and every 14 to 26 minutes 12 to 22 for 3 to 6 minutes; 4 hours",
        shapes.jittered_bursts,
    ),
    scenario_of(
        "low-traffic-1s",
        "Minutes to hours between two requests, each to be answered within 1 s; variants may go to zero",
        partial(shapes.low_traffic, duration_seconds=12 * HOUR),
        variants=_ZERO,
        gateway=GatewaySettings(patience_seconds=600.0),
    ),
)
_SCRAPES: Final = tuple(
    scenario_of(
        f"scrapes-{seconds:.0f}s",
        f"The load jumps to ten times as much and back; a scrape of each pod every {seconds:.0f} s",
        shapes.step,
        observation=WorldObservation(scrape_seconds=seconds),
    )
    for seconds in (30.0, 60.0)
)
"""The scrapes of ``step`` come every 15 s. Each pod has a phase of its own."""
_OBJECTIVES: Final = tuple(
    scenario_of(
        f"{name}-{label}",
        f"{title}; first token within {limit}",
        traffic,
        objectives=Objectives(ttft_seconds=seconds),
        **more,
    )
    for name, title, traffic, more in (
        ("upstream-ramp", "The ramp of llm-d's benchmark", shapes.upstream_ramp, {}),
        (
            "sine",
            "The load swings around 14 requests/s once in two hours",
            partial(shapes.sine, duration_seconds=2 * HOUR),
            {},
        ),
        (
            "conversation",
            "Three hours of Azure's conversation service of 2024",
            partial(traces.azure_2024_conversation, duration_seconds=3 * HOUR, rate=10.0, day="Mon", hour=8),
            {"variants": starting(110.0, pulls=0.1)},
        ),
    )
    for label, limit, seconds in (("300ms", "300 ms", 0.3), ("3s", "3 s", 3.0), ("10s", "10 s", 10.0))
)
"""The scenarios without a time in their name have 1 s, and ``sine`` and ``conversation`` take twice as long."""

WORLDS: Final = (*_FAULTY, *_LOADS, *_SCRAPES, *_OBJECTIVES)
"""Each takes as long as is needed to tell policies apart."""

SHORT_WORLDS: Final = (
    scenario_of(
        "half-speed-short",
        "10 requests/s; every second pod of the cheap variant runs at half speed, 20 minutes",
        partial(shapes.constant, duration_seconds=20 * MINUTE, rate=10.0),
        faults=_HALF_SPEED,
    ),
    scenario_of(
        "drain-short",
        "12 requests/s; a quarter of the Ready pods is evicted three times, half an hour",
        partial(shapes.constant, duration_seconds=30 * MINUTE, rate=12.0),
        faults=_drained(12 * MINUTE, 5 * MINUTE, 3),
    ),
    scenario_of(
        "reclaim-short",
        "12 requests/s; half of the cheap pods vanish, and none becomes Ready for 10 minutes, half an hour",
        partial(shapes.constant, duration_seconds=30 * MINUTE, rate=12.0),
        faults=_reclaimed(12 * MINUTE, 10 * MINUTE),
    ),
    scenario_of(
        "agents-short",
        "Calls of agents, 8 per second: long sessions, tool pauses and routing by prefix, 20 minutes",
        partial(agents, duration_seconds=20 * MINUTE),
        variants=LONG_PROMPTS,
        gateway=_PREFIX_AWARE,
        objectives=Objectives(ttft_seconds=3.0),
    ),
    scenario_of(
        "retry-storm-short",
        "Users wait 4 s and try five times; 5 requests/s, then 16 for 10 minutes, half an hour",
        partial(shapes.levels, duration_seconds=30 * MINUTE, parts=(5.0, 16.0, 5.0)),
        gateway=_STORM,
    ),
    scenario_of(
        "viral-short",
        "3 requests/s, eight times as many within 3 minutes, and a slow decay, half an hour",
        partial(shapes.viral, duration_seconds=30 * MINUTE),
    ),
    scenario_of(
        "canary-short",
        "A new model gets 1, 5, 25, 50, again 25, 50 and 100 % of 18 requests/s, 4 minutes each",
        partial(shapes.levels, duration_seconds=28 * MINUTE, parts=_CANARY),
    ),
    _two_models(
        "two-models-short",
        "Two models on 8 and 5 GPUs; one swings between 3 and 29 requests/s, the other against it; 40 minutes",
        duration_seconds=40 * MINUTE,
        period_seconds=40 * MINUTE,
    ),
    scenario_of(
        "office-short",
        "The morning of an office from 8:45 on: 2.5 requests/s, then 10; 40 minutes",
        partial(shapes.office, duration_seconds=40 * MINUTE, rate=2.5, begin_hour=8.75),
    ),
)
"""A few minutes of each, with the same kinds of faults and loads."""
