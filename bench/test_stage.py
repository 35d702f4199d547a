"""Four virtual hours of a model: on the stage, and in the embedded world with its servers, in one run."""

from __future__ import annotations

import asyncio
from functools import partial

from bench.paired import cpu_seconds
from wva import log
from wva.sim.commands.demo import play
from wva.sim.rivals.wva import SETUPS, controllers
from wva.sim.stage.run import figures
from wva.sim.stage.world import StageWorld
from wva.sim.traffic import shapes
from wva.sim.world.scenarios import demo_scenario, demo_variant
from wva.sim.world.world import EmbeddedWorld

SECONDS = 4 * 3600.0
SCENARIO = demo_scenario(
    "sine",
    "one swing of the load",
    (demo_variant("a", "A100", 20.0), demo_variant("h", "H100", 40.0)),
    partial(shapes.sine, duration_seconds=SECONDS, period_seconds=SECONDS),
)


def test_the_stage_is_at_least_four_times_as_fast() -> None:
    """Both simulate requests, scrapes, the decisions of the default configuration, and the HPA."""
    log.configure(level="error", encoding="console")
    world = EmbeddedWorld(SCENARIO, seed=1)

    async def tick() -> None:
        return

    slow = cpu_seconds(lambda: asyncio.run(play(world, duration_seconds=SECONDS, tick=tick)))
    setup = SETUPS["wva"]
    StageWorld(SCENARIO, seed=1).run(controllers(setup, SCENARIO))  # compiles, so that the measured run need not
    stage = StageWorld(SCENARIO, seed=1)
    fast = cpu_seconds(lambda: stage.run(controllers(setup, SCENARIO)))
    arrived = world.model_now.arrived
    print(f"\nembedded world: {slow:.1f} s, stage: {fast:.2f} s for {arrived} requests; CPU time x{slow / fast:.0f}")
    assert arrived == figures(stage).requests
    assert slow / fast >= 4
