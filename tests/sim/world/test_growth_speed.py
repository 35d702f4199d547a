"""How fast WVA answers a surge in the embedded world: the real controller over real HTTP, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import pytest

from wva.model.records import replace
from wva.sim.commands.demo import play
from wva.sim.stage.scenario import Scenario, StartUp, WorldObservation
from wva.sim.world.scenarios import between, demo_scenario, demo_variant
from wva.sim.world.world import EmbeddedWorld

MINUTE = 60.0
POD_START = 90.0
SURGE = 5 * MINUTE
CYCLE = 30.0
SLOW = StartUp(POD_START, 0.0)
SLOW_SURGE = demo_scenario(
    "slow-surge",
    "load for five replicas at once, pods that take a minute and a half to start",
    (demo_variant("h100", "H100", 40.0, start_up=SLOW), demo_variant("a100", "A100", 20.0, start_up=SLOW)),
    between((0, 3), (5, 3), (5, 26), (60, 26), minutes=(SURGE + 2 * POD_START + 3 * CYCLE) / MINUTE),
)
QUICK = StartUp(3.0, 0.2)
STEP = demo_scenario(
    "step",
    "eleven times the load within a second, pods that start in seconds",
    (demo_variant("h100", "H100", 40.0, start_up=QUICK), demo_variant("a100", "A100", 20.0, start_up=QUICK)),
    between((0, 2), (1, 2), (1, 22), (60, 22), minutes=1 + 200 / 60),
    interval_seconds=10.0,
    observation=WorldObservation(scrape_seconds=2.0),
    hpa_seconds=5.0,
    hpa_down_seconds=60.0,
)


async def _nothing() -> None:
    return


async def _run(scenario: Scenario, entry: str, seed: int = 2) -> EmbeddedWorld:
    world = EmbeddedWorld(replace(scenario, saturation={"default": entry}), seed=seed)
    await play(world, duration_seconds=world.traffic.duration_seconds, tick=_nothing)
    return world


def _serving(world: EmbeddedWorld) -> dict[float, int]:
    """Return how many replicas of all variants serve, by time."""
    serving: dict[float, int] = {}
    for variant in world.timeline.variants.values():
        for point in variant.points:
            serving[point.at_seconds] = serving.get(point.at_seconds, 0) + point.ready
    return serving


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param("{}", id="demand"),
        pytest.param("analyzerName: percentage", id="percentage", marks=pytest.mark.nightly),
        pytest.param("analyzerName: saturation", id="saturation", marks=pytest.mark.nightly),
    ],
)
async def test_five_replicas_serve_after_two_pod_starts_at_most(entry: str) -> None:
    """When load for five replicas arrives at once, five serve within two pod starts and two cycles."""
    world = await _run(SLOW_SURGE, entry)
    five = min(at for at, count in _serving(world).items() if count >= 5)
    assert five - SURGE <= 2 * POD_START + 2 * CYCLE


@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_a_step_of_the_load_is_answered_early_and_large() -> None:
    """Of the requests of the first 200 s, 80 % see their first token within a second; fewer if WVA grows one by one.

    It is the mean of two runs: phases and start-ups of one move it by a point.
    """
    sized, old = [
        [await _run(STEP, entry, seed) for seed in (1, 2)]
        for entry in ("analyzerName: percentage", "compatibility: v0.5")
    ]
    attained, before = [_mean(worlds, "ttft_attainment") for worlds in (sized, old)]
    assert attained >= 0.8
    assert attained >= before + 0.08
    for world in sized:
        first = next(entry for entry in world.timeline.decisions if (entry.previous or entry.desired) < entry.desired)
        assert first.at_seconds - MINUTE <= 20.0
        assert first.desired - first.current >= 2
    assert _mean(sized, "replica_cost") <= 1.1 * _mean(old, "replica_cost")


def _mean(worlds: Sequence[EmbeddedWorld], figure: str) -> float:
    return fmean([world.timeline.summary(world.model)[figure] for world in worlds])
