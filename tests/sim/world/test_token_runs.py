"""A whole run under the token analyzer: the real controller in the embedded world, over real HTTP, in virtual time."""

from __future__ import annotations

from collections import Counter

import pytest

from wva.sim.commands.demo import play
from wva.sim.world.scenario import VariantPlan, WorldScenario, load
from wva.sim.world.workloads import Loading
from wva.sim.world.world import EmbeddedWorld

MINUTE = 60.0
MAX_QUERIES = 6
FAST = Loading(40.0, 60.0)
SURGE = WorldScenario(
    "token-surge",
    "eight times the load within a second",
    (VariantPlan("h100", "H100", 40.0, loading=FAST), VariantPlan("a100", "A100", 20.0, loading=FAST)),
    load((0, 3), (8, 3), (8, 24), (18, 24), (18, 3), (30, 3)),
    duration_seconds=30 * MINUTE,
    scale_down_window_seconds=0,
    saturation={"default": "analyzerName: saturation\n"},
)


async def _nothing() -> None:
    return


@pytest.mark.timeout(300)
async def test_a_surge_is_answered_at_its_size_and_given_back() -> None:
    """WVA adds several replicas at once, names missing tokens, ends with two replicas, and sends few queries."""
    world = EmbeddedWorld(SURGE, seed=1)
    await play(world, duration_seconds=SURGE.duration_seconds, tick=_nothing)
    changes = [
        (entry.desired - entry.previous, entry.message)
        for entry in world.timeline.decisions
        if entry.previous is not None and entry.desired != entry.previous
    ]
    steps = [step for step, _ in changes]
    assert steps[0] > 1
    assert "tokens missing" in changes[0][1]
    assert min(steps) < 0
    assert {name: timeline.points[-1].desired for name, timeline in world.timeline.variants.items()} == {
        "h100": 1,
        "a100": 1,
    }
    asked = Counter(
        request.at_seconds for request in world.prometheus.requests.entries if request.path == "/api/v1/query"
    )
    assert 4 <= max(asked.values()) <= MAX_QUERIES
