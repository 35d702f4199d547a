"""The timeline of a run of the embedded world."""

from __future__ import annotations

import pytest

from tests.sim.stage.scenes import evenly, scene, variant
from wva.sim.world.timeline import WorldTimeline


def test_pods_cost_for_the_time_that_passes_with_them():
    """Two pods at 10 per hour for half an hour, and then three for a quarter; another variant has none."""
    timeline = WorldTimeline(scene(evenly(1, 10), variant("a", price=10.0), variant("b", price=99.0)))
    timeline.pass_to(1800.0, {"a": 2, "b": 0})
    timeline.pass_to(2700.0, {"a": 3, "b": 0})
    assert timeline.now_seconds == 2700.0
    assert timeline.total_cost == pytest.approx(10.0 + 7.5)
