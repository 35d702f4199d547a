"""Surges and steady load with simulated engines: how long users wait, what replicas cost, whether numbers settle."""

from __future__ import annotations

from statistics import fmean

import pytest

from tests.decide.fleet_loop import FleetLoop, LoopVariant, Setting
from wva.model.policy import Compatibility, Policy
from wva.sim.fleet.load import LoadSpec
from wva.sim.fleet.parameters import PRESETS, EngineParameters
from wva.sim.traffic.lengths import TokenLengths
from wva.sim.traffic.rates import RateProfile

pytestmark = pytest.mark.long_story

SIZED = Policy()
COMPATIBLE = Policy(compatibility=Compatibility.V0_5)
QUICK, SLOW = (2.2, 4.0), (120.0, 180.0)
CALM_SECONDS, STEP_SECONDS = 40.0, 200.0
# As on the real control plane (e2e/test_surge.py): one of each is half of what the step needs.
STEP = Setting(
    plans=(
        LoopVariant("a100", 20.0, EngineParameters(0.025, 0.00035, 0.00012, 3072), QUICK),
        LoopVariant("h100", 40.0, EngineParameters(0.016, 0.0002, 0.00008, 3072), QUICK),
    ),
    load=LoadSpec(
        RateProfile(
            (
                (0.0, 2.0),
                (CALM_SECONDS, 2.0),
                (CALM_SECONDS + 1, 22.0),
                (CALM_SECONDS + STEP_SECONDS, 22.0),
                (CALM_SECONDS + STEP_SECONDS, 0.0),
            )
        )
    ),
    duration_seconds=CALM_SECONDS + STEP_SECONDS,
    cycle_seconds=10.0,
    scrape_seconds=2.0,
    hpa_seconds=5.0,
)


def steady(rate: float, duration_seconds: float) -> Setting:
    """Return a load that rises for five minutes and then stays, on pods that take minutes to start."""
    return Setting(
        plans=(
            LoopVariant("a100", 20.0, PRESETS["A100"], SLOW, maximum=3),
            LoopVariant("h100", 40.0, PRESETS["H100"], SLOW),
        ),
        load=LoadSpec(RateProfile(((0.0, 3.0), (300.0, 3.0), (600.0, rate))), TokenLengths(1024), TokenLengths(512)),
        duration_seconds=duration_seconds,
        cycle_seconds=30.0,
        scrape_seconds=15.0,
        hpa_seconds=15.0,
        shrink_window_seconds=120.0,
        step_seconds=5.0,
    )


def test_a_surge_is_met_in_time_at_hardly_more_cost():
    """In three phases 85 % are in time on average, in each eight points more than v0.5.1 for a tenth more at most."""
    runs = [[FleetLoop(STEP, policy, seed=seed).run() for policy in (SIZED, COMPATIBLE)] for seed in range(1, 4)]
    assert fmean(sized.attained for sized, _ in runs) >= 0.85
    for sized, old in runs:
        assert sized.attained >= old.attained + 0.08
        assert sized.cost <= 1.10 * old.cost


def test_a_surge_is_not_answered_twice():
    """The number grows to what the load needs and stays there, so no replica was one too many."""
    loop = FleetLoop(STEP, SIZED, seed=2).run()
    assert loop.reversals == 0
    assert loop.changes[0][3] - loop.changes[0][2] == 2


@pytest.mark.parametrize("rate", [10.0, 20.0])
def test_a_steady_load_comes_to_rest(rate):
    """After the rise the numbers stop changing; after each reversal users would wait for a pod start."""
    loop = FleetLoop(steady(rate, 3000.0), SIZED, seed=2).run(afterwards_seconds=0.0)
    assert [change for change in loop.changes if change[0] > 1900.0] == []
