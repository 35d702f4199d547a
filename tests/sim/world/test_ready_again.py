"""A pod whose probe fails for a while, in the whole controller: what its engine counted before does not arrive anew."""

from __future__ import annotations

import asyncio

from tests.sim.world.both import nothing
from wva.api.meta import Key, format_time
from wva.config import Inputs
from wva.hindsight.recordings import read_recording
from wva.sim.commands.demo import running
from wva.sim.stage.scenario import WorldObservation
from wva.sim.world.clock import EPOCH_SECONDS
from wva.sim.world.scenarios import between, demo_scenario, demo_variant
from wva.sim.world.world import EmbeddedWorld

STEADY_SECONDS = 480.0


def probed(world, pod, *, ready):
    """Let the probe of a pod fail, or succeed again."""
    now = format_time(world.clock.now())
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": now}
    world.api.store.patch_status("pods", pod, {"conditions": [condition]})


def test_a_probe_that_fails_for_a_while_asks_for_no_more_replicas(tmp_path):
    """The pod goes on to serve, as behind a picker that does not ask for readiness."""
    scenario = demo_scenario(
        "probe",
        "a steady load",
        (demo_variant("llama-h100", "H100", 40.0),),
        between((0, 12), (16, 12), minutes=16),
        interval_seconds=15.0,
        observation=WorldObservation(scrape_seconds=15.0),
    )
    world = EmbeddedWorld(scenario, seed=3)

    async def day():
        async with world.open() as endpoints, running(world, endpoints, Inputs({"record_dir": str(tmp_path)}, {}, {})):
            await world.run(STEADY_SECONDS, tick=nothing)
            item = world.api.store.list("pods")[0]
            pod = Key(item["metadata"]["namespace"], item["metadata"]["name"])
            for seconds in (40.0, 100.0):
                probed(world, pod, ready=False)
                await world.run(seconds, tick=nothing)
                probed(world, pod, ready=True)
                await world.run(120.0, tick=nothing)

    asyncio.run(day())
    cycles = sorted((read_recording(path.read_bytes()) for path in tmp_path.glob("*")), key=lambda each: each.now)
    numbers = [(each.now - EPOCH_SECONDS, each.decisions[0].desired) for each in cycles]
    usual = max(number for at, number in numbers if 240.0 < at <= STEADY_SECONDS)
    assert max(number for at, number in numbers if at > STEADY_SECONDS) <= usual + 1, numbers
