"""How fast WVA answers a surge in the embedded world: the real controller over real HTTP, in virtual time."""

from __future__ import annotations

import pytest

from wva.model.records import replace
from wva.sim.commands.demo import play
from wva.sim.world.scenario import VariantPlan, WorldScenario, load
from wva.sim.world.workloads import Loading
from wva.sim.world.world import EmbeddedWorld

MINUTE = 60.0
POD_START = 180.0
SURGE = 10 * MINUTE
CYCLE = 30.0
SLOW = Loading(POD_START, POD_START)
SLOW_SURGE = WorldScenario(
    "slow-surge",
    "load for five replicas at once, pods that take three minutes to start",
    (VariantPlan("h100", "H100", 40.0, loading=SLOW), VariantPlan("a100", "A100", 20.0, loading=SLOW)),
    load((0, 3), (10, 3), (10, 26), (60, 26)),
    duration_seconds=SURGE + 2 * POD_START + 3 * CYCLE,
)
QUICK = Loading(2.0, 4.0)
STEP = WorldScenario(
    "step",
    "eleven times the load within a second, pods that start in seconds",
    (VariantPlan("h100", "H100", 40.0, loading=QUICK), VariantPlan("a100", "A100", 20.0, loading=QUICK)),
    load((0, 2), (1, 2), (1, 22), (60, 22)),
    duration_seconds=MINUTE + 200.0,
    interval_seconds=10.0,
    scrape_seconds=2.0,
    scaler_seconds=5.0,
    scale_down_window_seconds=60,
)


async def _nothing() -> None:
    return


async def _run(scenario: WorldScenario, entry: str) -> EmbeddedWorld:
    world = EmbeddedWorld(replace(scenario, saturation={"default": entry}), seed=2)
    await play(world, duration_seconds=scenario.duration_seconds, tick=_nothing)
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
    ["{}", "analyzerName: percentage", "analyzerName: saturation"],
    ids=["demand", "percentage", "saturation"],
)
async def test_five_replicas_serve_after_two_pod_starts_at_most(entry: str) -> None:
    """When load for five replicas arrives at once, five serve within two pod starts and two cycles."""
    world = await _run(SLOW_SURGE, entry)
    five = min(at for at, count in _serving(world).items() if count >= 5)
    assert five - SURGE <= 2 * POD_START + 2 * CYCLE


@pytest.mark.timeout(300)
async def test_a_step_of_the_load_is_answered_early_and_large() -> None:
    """Of the requests of the first 200 s, 80 % see their first token within a second; fewer if WVA grows one by one."""
    sized, old = [await _run(STEP, entry) for entry in ("analyzerName: percentage", "compatibility: v0.5")]
    attained, before = (world.timeline.summary(world.model)["ttft_attainment"] for world in (sized, old))
    assert attained >= 0.8
    assert attained >= before + 0.08
    first = next(entry for entry in sized.timeline.decisions if (entry.previous or entry.desired) < entry.desired)
    assert first.at_seconds - MINUTE <= 20.0
    assert first.desired - first.current >= 2
    costs = [world.timeline.summary(world.model)["replica_cost"] for world in (sized, old)]
    assert costs[0] <= 1.1 * costs[1]
