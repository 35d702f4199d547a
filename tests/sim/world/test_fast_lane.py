"""The fast lane in the embedded world: what it costs at the default pace, and how soon a surge is decided on."""

from __future__ import annotations

import pytest

from wva.model.records import replace
from wva.sim.commands.demo import play
from wva.sim.stage.scenario import Scenario, StartUp, WorldObservation
from wva.sim.world.clock import EPOCH_SECONDS
from wva.sim.world.scenarios import between, demo_scenario, demo_variant
from wva.sim.world.world import EmbeddedWorld

MINUTE = 60.0
QUICK = StartUp(3.0, 0.2)
CALM = demo_scenario(
    "calm",
    "the same load all the time, at the pace of the chart",
    (demo_variant("h100", "H100", 40.0, start_up=QUICK), demo_variant("a100", "A100", 20.0, start_up=QUICK)),
    between((0, 3), minutes=6),
    interval_seconds=15.0,
    observation=WorldObservation(scrape_seconds=5.0),
    hpa_down_seconds=60.0,
)
SURGE_MINUTES = 5.05
SURGE = replace(
    CALM, name="surge", traffic=between((0, 2), (SURGE_MINUTES, 2), (SURGE_MINUTES, 22), minutes=SURGE_MINUTES + 2)
)
"""The step comes three seconds after a scrape, and the next scrape shows it at the earliest."""


async def _nothing() -> None:
    return


async def _run(scenario: Scenario) -> EmbeddedWorld:
    world = EmbeddedWorld(scenario, seed=2)
    await play(world, duration_seconds=world.traffic.duration_seconds, tick=_nothing)
    return world


@pytest.mark.timeout(300)
async def test_a_steady_load_takes_at_most_thirty_queries_a_minute() -> None:
    """With the default analyzer: four cycles and eight looks, in each of the last four minutes."""
    world = await _run(CALM)
    asked = [request.at_seconds - EPOCH_SECONDS for request in world.prometheus.requests.entries]
    for minute in range(2, 6):
        in_minute = [at for at in asked if minute * MINUTE <= at < (minute + 1) * MINUTE]
        assert 20 <= len(in_minute) <= 30, (minute, len(in_minute))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("interval", [pytest.param(15.0, marks=pytest.mark.nightly), 60.0])
async def test_a_surge_is_decided_on_within_six_seconds_of_the_scrape_that_shows_it(interval: float) -> None:
    """Also where the next cycle would come a minute later."""
    world = await _run(replace(SURGE, interval_seconds=interval))
    shown = (SURGE_MINUTES * MINUTE // 5 + 1) * 5
    grown = [
        entry.at_seconds
        for entry in world.timeline.decisions
        if entry.previous is not None and entry.desired > entry.previous
    ]
    assert min(at for at in grown if at >= SURGE_MINUTES * MINUTE) - shown <= 6.0
