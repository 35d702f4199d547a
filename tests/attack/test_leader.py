"""A standby replaces a leader that is killed; a leader that is cut off from its Lease writes nothing more."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from copy import copy

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from tests.app.stage import DEPLOYMENTS, VARIANTS, until
from tests.attack.direct import DIRECT, replicas_of
from tests.attack.world import VICTIM, page
from tests.kube.lease_world import LeaseWorld
from tests.rows import by_day
from wva.actuation import OwnedTarget
from wva.app.election import _durations
from wva.collect.resolution import MAX_REPLICAS_ANNOTATION
from wva.config import Inputs, load
from wva.instruments import Instruments
from wva.kube.errors import Unreachable
from wva.model.variant import VariantKey
from wva.sim.apiserver import matching


@pytest.mark.parametrize("crash_seconds", by_day([100.0, 100.7, 101.9], ["101.9"]))
@pytest.mark.parametrize(("watches", "limit_seconds"), [(True, 15.0), (False, 17.5)], ids=["watching", "polling"])
def test_a_leader_that_is_killed_is_replaced(watches, limit_seconds, crash_seconds):
    """The standby leads within 15 s of the kill, or 17.5 s if it may not watch the Lease."""
    world = LeaseWorld(_durations(load(Inputs({}, {}, {})).settings))
    try:
        leader, standby = world.start(), world.start(offset=1e6)
        if watches:
            world.server.watchers.append(standby)
        world.advance(crash_seconds)
        assert leader.may_write
        assert not standby.may_write
        leader.kill()
        world.advance(limit_seconds + 0.01)
        assert standby.may_write
    finally:
        world.close()


QUICK = {
    "LEADER_ELECT": "true",
    "LEADER_ELECTION_LEASE_DURATION": "1500ms",
    "LEADER_ELECTION_RENEW_DEADLINE": "1s",
    "LEADER_ELECTION_RETRY_PERIOD": "200ms",
}
SCALES = matching(verb="patch", resource=DEPLOYMENTS, subresource="scale")


class CutOff:
    """A client whose requests do not reach the API server: the part of the network with the Lease is away."""

    def __getattr__(self, _):
        """Fail whatever is asked for."""

        async def fail(*_, **__):
            raise Unreachable(0, "", "no route to host")

        return fail


def leads(stage):
    """Tell whether a process may write now."""
    return stage.app is not None and stage.app.leadership.elector.may_write()


def direct(world):
    """Create a variant of two replicas under direct actuation; return what its pods show."""
    shown = {"usage": 0.5}
    world.workload("direct", namespace=VICTIM, replicas=2)
    world.pages[VICTIM, "direct"] = lambda _: page("org/direct", usage=shown["usage"])
    world.variant("direct", namespace=VICTIM, model="org/direct")
    world.patch(VARIANTS, "direct", DIRECT, namespace=VICTIM)
    return shown


def process(stage):
    """Return a process that has not been started."""
    environment = {"WVA_DIRECT_ACTUATION": "true", **QUICK}
    return stage.controller(interval="30ms", PROMETHEUS_BASE_URL=stage.url, **environment)


def decided(stage, number):
    """Tell whether a process has decided on this number."""
    found = stage.app.ledger.get(VariantKey(VICTIM, "direct"))
    return found is not None and not found.held and found.desired == number


def paused(world):
    """Let the process stand still for longer than its Lease when it has read the target that it is to write."""
    original = OwnedTarget.owners

    def owners(self, left=()):
        found = original(self, left)
        time.sleep(1.2)
        return found

    world.set("wva.actuation.OwnedTarget.owners", owners)


def delayed(world):
    """Let the target be read later than the Lease lasts without a renewal."""
    path = f"/apis/apps/v1/namespaces/{VICTIM}/"
    world.api.faults.delay(2.0, times=None, match=matching(verb="list", resource=DEPLOYMENTS, path=path))


@pytest.mark.parametrize("between", [paused, delayed])
async def test_a_number_that_was_decided_before_the_loss_is_not_written_after_it(world, between):
    """The process loses its Lease between the decision and the write, and ends."""
    shown = direct(world)
    await world.scrape()
    async with process(world) as task:
        await until(lambda: decided(world, 2), seconds=20)
        between(world)
        shown["usage"] = 0.99
        await world.scrape()
        await until(lambda: decided(world, 4), seconds=20)
        if between is delayed:
            world.app.leadership.elector.client = CutOff()
        async with asyncio.timeout(20):
            assert await task == 1
    assert not any(map(SCALES, world.api.requests.entries))
    assert replicas_of(world, "direct", namespace=VICTIM) == 2


class UnderWay:
    """The first write of a scale, which the network keeps back until ``arrives``, whatever becomes of its sender."""

    def __init__(self, world):
        """Keep it back."""
        self._url, self._request = world.api.url, None
        self._meet = world.api.faults.meet
        world._monkeypatch.setattr(world.api.faults, "meet", self._keep)

    async def _keep(self, info, request):
        if SCALES(info) and self._request is None:
            self._request = request.method, request.path_qs, request.content_type, await request.read()
            await asyncio.Event().wait()
        return await self._meet(info, request)

    async def arrives(self):
        """Deliver the write, and return the status of the answer."""
        method, path, content_type, body = self._request
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self._url + path, data=body, headers={"Content-Type": content_type}) as answer,
        ):
            return answer.status


async def test_of_two_leaders_the_second_has_the_last_word(world):
    """The first is cut off from the Lease, and its last write is late. It is a write for a version that has passed.

    At no time both may write.
    """
    shown = direct(world)
    second = copy(world)
    second.instruments, second.stop = Instruments(CollectorRegistry()), asyncio.Event()
    await world.scrape()
    async with process(world) as first:
        await until(lambda: decided(world, 2), seconds=20)
        async with process(second), watched(lambda: leads(world) and leads(second)) as both:
            under_way = UnderWay(world)
            shown["usage"] = 0.99
            await world.scrape()
            await until(lambda: any(map(SCALES, world.api.requests.entries)), seconds=20)
            world.app.leadership.elector.client = CutOff()
            annotations = {MAX_REPLICAS_ANNOTATION: "3"}
            world.patch(VARIANTS, "direct", {"metadata": {"annotations": annotations}}, namespace=VICTIM)
            await until(lambda: replicas_of(world, "direct", namespace=VICTIM) == 3, seconds=20)
            assert await first == 1
            assert await under_way.arrives() == 409
            assert replicas_of(world, "direct", namespace=VICTIM) == 3
            assert not both


@asynccontextmanager
async def watched(check):
    """Yield a list that gets an entry whenever a check is true during the body."""
    found = []

    async def look():
        while True:
            if check():
                found.append(True)
            await asyncio.sleep(0.002)

    task = asyncio.create_task(look())
    try:
        yield found
    finally:
        task.cancel()
