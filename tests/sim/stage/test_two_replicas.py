"""The load of docs/emulator.md that takes two replicas, on simulated replicas of the emulator's speed."""

from __future__ import annotations

from itertools import groupby

import pytest

from wva.model.records import replace
from wva.sim.fleet.parameters import PRESETS
from wva.sim.rivals.wva import WvaSetup, controllers
from wva.sim.stage.run import play
from wva.sim.stage.scenario import Scenario, StartUp, VariantSetup
from wva.sim.traffic.assembly import poisson_traffic
from wva.sim.traffic.lengths import Sizes, fixed
from wva.sim.traffic.rates import steps

QUIET_SECONDS, LOAD_SECONDS, PER_MINUTE = 300.0, 1200.0, 40.0
SIZES = Sizes(fixed(70), lambda generator, count: generator.integers(89, 268, count))
ENGINE = replace(PRESETS["A100"], max_num_seqs=4)


def traffic(seed):
    """Return no request for five minutes, then 40 a minute for twenty."""
    profile = steps(((QUIET_SECONDS, 1e-6), (LOAD_SECONDS, PER_MINUTE / 60)))
    return poisson_traffic(seed, profile, duration_seconds=QUIET_SECONDS + LOAD_SECONDS, sizes=SIZES)


@pytest.mark.parametrize("seed", range(1, 9))
def test_the_variant_goes_from_one_replica_to_two_and_stays(seed):
    """With the chart's interval of a minute, and pods that start in half a minute."""
    variant = VariantSetup("a", "A100", ENGINE, 40.0, maximum=10, start_up=StartUp(30.0, 0.1))
    scenario = Scenario("two", "two", "two", (variant,), traffic, interval_seconds=60.0)
    (asked,) = play(scenario, "wva", seed, lambda of, _: controllers(WvaSetup(), of)).timeline.variants
    assert [number for number, _ in groupby(asked.asked)] == [1, 2]
