"""A minimum of zero, over many cycles: a variant goes to zero while another one runs, and comes back when it is needed.

The world follows WVA: the number of a cycle is the number of replicas in the next one.
"""

from __future__ import annotations

import pytest

from tests.builders import replica, variant
from tests.optimizer.optimizer_scene import INTERVAL, OptimizerScene
from wva.model.decision import Reason
from wva.model.policy import ScaleToZeroEntry, ScaleToZeroRules
from wva.model.records import replace
from wva.model.snapshot import RequestCounts, Snapshot
from wva.model.variant import ModelKey

COSTS = {"cheap": 20.0, "dear": 40.0}
QUIET = RequestCounts(ModelKey("ns", "m"), 600.0, finished=0.0, in_progress=0.0, covered_seconds=600.0)


class TwoVariantWorld(OptimizerScene):
    """Two variants of one model, both with a minimum of zero. The load is in fully used replicas."""

    def __init__(self):
        """Start with two replicas of each variant, and hardly any load."""
        super().__init__()
        self.exist = {"cheap": 2, "dear": 2}
        self.load = 0.2
        self.most = {}
        self.requests = ()

    async def cycles(self, count):
        """Run cycles. After each of them the replicas are as it decided."""
        for _ in range(count):
            running = sum(self.exist.values())
            kv = min(0.99, self.load / running) if running else None
            variants = [
                variant(name, minimum=0, maximum=self.most.get(name), cost=COSTS[name], replicas=number, desired=number)
                for name, number in self.exist.items()
            ]
            pods = [
                replica(f"{name}-{index}", variant=name, kv=kv, queue=9 if self.load > running else 0)
                for name, number in self.exist.items()
                for index in range(number)
            ]
            self.snapshot = replace(Snapshot.of(variants, pods), request_counts=self.requests)
            decisions = await self.optimizer.cycle()
            self.exist = {decision.key.name: decision.desired for decision in decisions}
            await self.advance(INTERVAL)
        return {decision.key.name: decision.reason for decision in decisions}


@pytest.fixture
def world():
    """Return a world."""
    return TwoVariantWorld()


async def test_a_sibling_goes_to_zero_and_the_last_replica_is_of_the_cheap_variant(world):
    """Under a low load the model keeps one replica of its cheapest variant, and the other variant stays at zero."""
    await world.cycles(10)
    assert world.exist == {"cheap": 1, "dear": 0}
    await world.cycles(20)
    assert world.exist == {"cheap": 1, "dear": 0}


async def test_a_sibling_at_zero_comes_back_when_the_cheap_variant_is_not_enough(world):
    """Under a high load it gets replicas, and goes to zero again afterwards."""
    world.most["cheap"] = 3
    await world.cycles(10)
    assert world.exist == {"cheap": 1, "dear": 0}
    world.load = 5.0
    await world.cycles(10)
    assert world.exist["cheap"] == 3
    assert world.exist["dear"] >= 2
    world.load = 0.2
    await world.cycles(30)
    assert world.exist["dear"] == 0
    assert world.exist["cheap"] >= 1


async def test_without_requests_the_last_replica_goes_too_where_that_is_allowed(world):
    """If scale to zero is enabled, both variants go to zero."""
    rules = ScaleToZeroRules(ScaleToZeroEntry("default", "", None, True, 600.0))
    world.configuration.policy = replace(world.configuration.policy, scale_to_zero=rules)
    world.requests = (QUIET,)
    world.load = 0.0
    reasons = await world.cycles(10)
    assert world.exist == {"cheap": 0, "dear": 0}
    assert set(reasons.values()) == {Reason.INACTIVE}
