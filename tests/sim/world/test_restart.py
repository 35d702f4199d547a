"""A controller that is killed in mid-day and started again decides as one that was not: Prometheus has what it lost."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from tests.sim.world.both import nothing
from wva.config import Inputs
from wva.hindsight.recordings import read_recording
from wva.sim.commands.demo import running
from wva.sim.stage.scenario import StartUp, WorldObservation
from wva.sim.world.clock import EPOCH_SECONDS
from wva.sim.world.scenarios import between, demo_scenario, demo_variant
from wva.sim.world.world import EmbeddedWorld

MINUTE = 60.0
START_UP = StartUp(90.0, 0.2)


def day(traffic):
    """Return a scenario of two variants whose replicas come and go with the traffic."""
    return demo_scenario(
        "day",
        "replicas that come and go",
        (
            demo_variant("llama-h100", "H100", 40.0, start_up=START_UP),
            demo_variant("llama-a100", "A100", 20.0, start_up=START_UP),
        ),
        traffic,
        interval_seconds=15.0,
        observation=WorldObservation(scrape_seconds=15.0),
        hpa_down_seconds=60.0,
    )


def numbers(recording):
    """Return what a cycle decided, by variant."""
    return {decision.key.name: decision.desired for decision in recording.decisions}


def run(scenario, folder, *, seed, restart_at=None):
    """Return each cycle, by its time in the world. With a restart, a second controller takes the place of the first."""
    world = EmbeddedWorld(scenario, seed=seed)
    times = [0.0, *([] if restart_at is None else [restart_at]), world.traffic.duration_seconds]

    async def controllers():
        async with world.open() as endpoints:
            for begin, end in pairwise(times):
                own = folder / f"from-{begin:g}"
                own.mkdir(parents=True)
                async with running(world, endpoints, Inputs({"record_dir": str(own)}, {}, {})):
                    await world.run(end - begin, tick=nothing)

    asyncio.run(controllers())
    recordings = [read_recording(path.read_bytes()) for path in folder.glob("*/*")]
    return {round(each.now - EPOCH_SECONDS): each for each in recordings}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("traffic", "minute"),
    [
        pytest.param(between((0, 4), (4, 30), (9, 6), minutes=9.5), 6, id="falling"),
        pytest.param(
            between((0, 4), (8, 30), (16, 6), (30, 28), minutes=22), 18, id="rising", marks=pytest.mark.nightly
        ),
    ],
)
def test_from_the_third_cycle_on_a_restarted_controller_is_within_one_replica(traffic, minute, tmp_path):
    """At each time one of the numbers that the other had then, a cycle before, or a cycle after is that close."""
    scenario = day(traffic)
    one = run(scenario, tmp_path / "one", seed=3)
    two = run(scenario, tmp_path / "two", seed=3, restart_at=minute * MINUTE)
    later = [at for at in sorted(two) if at >= minute * MINUTE + 2 * scenario.interval_seconds]
    assert len(later) >= 10
    for at in later:
        near = [numbers(one[then]) for then in one if abs(then - at) <= scenario.interval_seconds]
        for name, number in numbers(two[at]).items():
            assert min(abs(number - each[name]) for each in near) <= 1, (at, name)
    assert max(sum(numbers(cycle).values()) for cycle in one.values()) >= 6
