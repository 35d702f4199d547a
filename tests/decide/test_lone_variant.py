"""A model with a single variant under a steady load: WVA sizes it once, then waits until the new replicas serve."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest

from wva.model.records import replace
from wva.sim.rivals.wva import SETUPS, controllers
from wva.sim.scorecard.suites import CHEAP
from wva.sim.stage.scenario import Scenario
from wva.sim.stage.world import StageWorld
from wva.sim.traffic import shapes

pytestmark = pytest.mark.long_story

SOONEST_START_SECONDS = 60.0
"""Nearly all pods take longer: the median is 110 s."""


def asked(policy, seed):
    """Return what a policy asks for within 40 minutes of 8 requests/s, as (seconds, before, after).

    Cycles come at their time. A cycle that the fast lane begins orders more for a backlog, as a precaution.
    """
    traffic = partial(shapes.constant, rate=8.0, duration_seconds=2400.0)
    scenario = Scenario("constant", "8 requests/s", "steady", (CHEAP,), traffic)
    world = StageWorld(scenario, seed=seed, traffic=scenario.traffic(seed))
    world.run(controllers(replace(SETUPS[policy], fast_lane_seconds=0.0), scenario))
    return [(change.at_seconds, change.before, change.after) for change in world.asked]


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_under_way_is_waited_for(seed):
    """A full replica does not show how many are missing, so each growth begins when the last one serves."""
    growths = [(at, after) for at, before, after in asked("wva-percentage", seed) if after > before]
    assert all(later - at >= SOONEST_START_SECONDS for (at, _), (later, _) in pairwise(growths))
    assert max(after for _, after in growths) <= 5


@pytest.mark.parametrize("seed", [1, 2])
def test_where_demand_is_measured_it_is_sized_within_two_minutes(seed):
    """Eight requests/s need two and a half replicas. The backlog that builds up meanwhile adds no demand.

    Later it may look once as if demand rose, for one replica.
    """
    changes = asked("wva", seed)
    later = [after - before for at, before, after in changes if after > before and 120.0 < at < 1200.0]
    assert sum(later) <= 1
    assert max(after for _, _, after in changes) <= 4
