"""Who else writes the replicas of a target: when it counts, and what is told."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from tests.builders import variant
from tests.collect.cluster import CachedCluster
from tests.kube.clocks import ManualClock
from tests.live_target import FakeLiveTarget, owner
from tests.publish.decisions import decision
from wva.api.meta import Key
from wva.instruments import Instruments
from wva.kube.controller import After, Done
from wva.model.records import replace
from wva.model.trouble import UNTROUBLED
from wva.model.variant import VariantKey
from wva.other_writers import FOLLOWS_SECONDS, KEPT_SECONDS, OtherWriters
from wva.publish.ledger import Ledger

KEY, VARIANT = Key("ns", "a"), VariantKey("ns", "a")


class WritersScene:
    """A variant whose target has the replicas that its number asks for: three."""

    def __init__(self):
        """Follow the caches."""
        self.cluster, self.client = CachedCluster(), FakeLiveTarget()
        self.clock, self.revisited, self.shadows = ManualClock(), [], set()
        self.ledger = Ledger(asked_for_shadow=self.shadows.__contains__)
        self.writers = OtherWriters(
            client=self.client,
            stores=self.cluster.stores,
            ledger=self.ledger,
            revisit=self.revisited.append,
            clock=self.clock,
            instruments=Instruments(CollectorRegistry()),
        )
        self.writers.watch()
        self.scale(3)
        self.cluster.va("a", target="x")
        self.decide(3)

    def scale(self, replicas):
        """Write the replicas of the target."""
        self.cluster.deployment("x", replicas=replicas, uid="the-same")

    def decide(self, desired):
        """Record a number."""
        self.ledger.record([replace(decision(desired, current=2), key=VARIANT)])

    @property
    def taken_at(self):
        """When the last write was that took replicas away."""
        return self.writers.apply(variant("a", namespace="ns"), self.clock.now()).taken_at

    async def put_back(self, times=1):
        """Let somebody put the replicas back to one, and a scaler to the number, each three minutes."""
        for _ in range(times):
            self.scale(1)
            result = await self.writers.reconcile(KEY)
            self.scale(3)
            await self.clock.advance(180.0)
        return result


def test_the_time_of_a_write_is_told_by_the_clock_of_now():
    """The clock may have been set since: an hour back, an hour forward."""
    scene = WritersScene()
    scene.scale(1)
    now = scene.clock.now()
    for told in (now, now - 3600, now + 3600):
        assert scene.writers.apply(variant("a", namespace="ns"), told).taken_at == told


@pytest.fixture
def scene():
    """Return a scene."""
    return WritersScene()


async def test_a_write_below_every_recent_number_is_anothers(scene):
    """Neither WVA nor a scaler that follows it asked for so few."""
    assert scene.taken_at is None
    scene.scale(1)
    assert scene.taken_at == scene.clock.now()
    assert len(scene.writers.queue) == 1


@pytest.mark.parametrize("before", [1, 2])
async def test_a_scaler_may_follow_a_number_of_the_last_minutes(scene, before):
    """An HPA goes down late."""
    scene.decide(before)
    scene.decide(3)
    scene.scale(before)
    assert scene.taken_at is None
    await scene.clock.advance(FOLLOWS_SECONDS + 1.0)
    scene.decide(4)
    scene.scale(3)
    scene.scale(before)
    assert scene.taken_at is not None


async def test_growth_and_a_target_of_the_same_name_are_no_writers(scene):
    """More replicas may come from another trigger of the scaler."""
    scene.scale(9)
    scene.scale(4)
    assert scene.taken_at is None
    scene.cluster.deployment("x", replicas=1, uid="another")
    assert scene.taken_at is None


async def test_the_number_of_a_shadow_is_for_nobody(scene):
    """Something else scales its target by right."""
    scene.shadows.add(VARIANT)
    scene.scale(1)
    assert scene.taken_at is None


async def test_the_second_write_is_told_with_the_manager(scene):
    """A single write may be that of a person. The scaler that set the number again is not the writer."""
    scene.client.owners = [
        owner("argocd-controller", subresource="", seconds_ago=1.0),
        owner("kubectl-client-side-apply", subresource="", seconds_ago=9e5),
        owner("kube-controller-manager", seconds_ago=0.0),
    ]
    assert isinstance(await scene.put_back(), After)
    assert scene.writers.trouble(KEY) == UNTROUBLED
    await scene.put_back()
    trouble = scene.writers.trouble(KEY)
    assert trouble.reason == "ReplicasRewritten"
    assert trouble.message == (
        "argocd-controller has put spec.replicas below the number 2 times within an hour, last to 1: leave the "
        "replicas out of what it applies"
    )
    assert KEY in scene.revisited


@pytest.mark.parametrize("entries", [[], [{"manager": "kube-controller-manager", "operation": "Update"}]])
async def test_without_a_manager_it_is_another_writer(scene, entries):
    """The API server notes no managers for the scale of custom resources."""
    scene.client.owners = entries
    await scene.put_back(2)
    assert scene.writers.trouble(KEY).message.startswith("another writer has put")


async def test_a_managers_name_is_cut_and_printable(scene):
    """It is text of somebody else."""
    scene.client.owners = [owner("evil\x1b[31m" * 99, subresource="")]
    await scene.put_back(2)
    message = scene.writers.trouble(KEY).message
    assert message.isprintable()
    assert len(message) < 300


async def test_the_trouble_ends_an_hour_after_the_last_write(scene):
    """The key comes back by then, and the status is looked at again."""
    await scene.put_back(2)
    await scene.clock.advance(KEPT_SECONDS)
    assert scene.writers.trouble(KEY) == UNTROUBLED
    scene.revisited.clear()
    assert await scene.writers.reconcile(KEY) == Done()
    assert scene.revisited == [KEY]
    assert scene.taken_at is None


async def test_a_target_or_a_variant_that_goes_is_forgotten(scene):
    """There is nothing to tell any more."""
    scene.client.exists = False
    assert await scene.put_back() == Done()
    scene.ledger.drop(VARIANT)
    assert scene.taken_at is None
    assert await scene.writers.reconcile(KEY) == Done()
