"""Four virtual hours of a model: on the stage, and in the embedded world with its servers, in one run."""

from __future__ import annotations

import asyncio
import math

from bench.paired import cpu_seconds
from wva import log
from wva.sim.commands.demo import play
from wva.sim.fleet.load import LoadSpec, RateProfile, TokenLengths
from wva.sim.fleet.parameters import PRESETS
from wva.sim.rivals.wva import SETUPS, controllers
from wva.sim.stage.run import figures
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.world import StageWorld as Stage
from wva.sim.traffic import shapes
from wva.sim.world.scenario import VariantPlan
from wva.sim.world.scenario import WorldScenario as Embedded
from wva.sim.world.world import EmbeddedWorld

HOURS = 4
MEAN = 14.0
SWING = 0.7


def embedded() -> Embedded:
    """Return the scenario of the embedded world."""
    steps = range(HOURS * 60 + 1)
    wave = [(60.0 * step, MEAN * (1 - SWING * math.cos(2 * math.pi * step / (HOURS * 60)))) for step in steps]
    load = LoadSpec(RateProfile(tuple(wave)), prompt=TokenLengths(1024), output=TokenLengths(512, maximum_tokens=2048))
    plans = (VariantPlan("a", "A100", 20.0), VariantPlan("h", "H100", 40.0))
    return Embedded("sine", "", plans, load, duration_seconds=HOURS * 3600.0)


def staged() -> Scenario:
    """Return the same scenario on the stage."""
    variants = tuple(
        VariantSetup(name.lower(), name, PRESETS[name], price) for name, price in (("A100", 20.0), ("H100", 40.0))
    )
    return Scenario("sine", "", "sine", variants, lambda seed: shapes.sine(seed, period_seconds=HOURS * 3600.0))


def test_the_stage_is_at_least_four_times_as_fast() -> None:
    """Both simulate requests, scrapes, the decisions of the default configuration, and the HPA."""
    log.configure(level="error", encoding="console")
    world = EmbeddedWorld(embedded(), seed=1)

    async def tick() -> None:
        return

    slow = cpu_seconds(lambda: asyncio.run(play(world, duration_seconds=HOURS * 3600.0, tick=tick)))
    scenario = staged()
    Stage(scenario, seed=1).run(controllers(SETUPS["wva"], scenario))  # compiles, so that the measured run need not
    stage = Stage(scenario, seed=1)
    fast = cpu_seconds(lambda: stage.run(controllers(SETUPS["wva"], scenario)))
    arrived = world.model_now.arrived
    print(f"\nembedded world: {slow:.1f} s for {arrived} requests; stage: {fast:.2f} s for {figures(stage).requests}")
    print(f"CPU time x{slow / fast:.0f}")
    assert abs(arrived / figures(stage).requests - 1) < 0.1
    assert slow / fast >= 4
