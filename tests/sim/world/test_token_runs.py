"""A whole run under the token analyzer: the real controller in the embedded world, over real HTTP, in virtual time."""

from __future__ import annotations

from collections import Counter

import pytest

from wva.sim.commands.demo import play
from wva.sim.stage.scenario import StartUp
from wva.sim.world.scenarios import between, demo_scenario, demo_variant
from wva.sim.world.world import EmbeddedWorld

MAX_QUERIES = 6
FAST = StartUp(50.0, 0.115)
SURGE = demo_scenario(
    "token-surge",
    "eight times the load within a second",
    (demo_variant("h100", "H100", 40.0, start_up=FAST), demo_variant("a100", "A100", 20.0, start_up=FAST)),
    between((0, 3), (8, 3), (8, 24), (12, 24), (12, 3), minutes=24),
    hpa_down_seconds=0.0,
    saturation={"default": "analyzerName: saturation\n"},
)


async def _nothing() -> None:
    return


@pytest.mark.timeout(300)
async def test_a_surge_is_answered_at_its_size_and_given_back() -> None:
    """WVA adds several replicas at once, names missing tokens, ends with two replicas, and sends few queries."""
    world = EmbeddedWorld(SURGE, seed=1)
    await play(world, duration_seconds=world.traffic.duration_seconds, tick=_nothing)
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
