"""The clock of the controller is set an hour forward or back while it runs, alone or together with Prometheus."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import asynccontextmanager

import pytest

from tests.app.stage import VARIANTS, until
from tests.attack.direct import DIRECT
from tests.attack.world import VICTIM, page
from wva.api.meta import Key
from wva.model.variant import VariantKey

HOUR = 3600.0
KEPT = 4
"""Recordings that are kept, in place of the usual number."""


class Shifted:
    """A clock that tells the time, and so many seconds more."""

    def __init__(self):
        """Tell the time."""
        self.seconds = 0.0

    def now(self, *_):
        """Return the time in seconds since the epoch."""
        return time.time() + self.seconds


def victim(world, usage):
    """Create the victim and a variant under direct actuation, each with a past hour of this usage behind it."""
    world.victim()
    world.workload("direct", namespace=VICTIM, replicas=2)
    world.variant("direct", namespace=VICTIM, model="org/direct")
    world.patch(VARIANTS, "direct", DIRECT, namespace=VICTIM)
    shown = {"usage": usage}
    for name, model in (("d", "org/model"), ("direct", "org/direct")):
        world.pages[VICTIM, name] = lambda _, model=model: page(model, usage=shown["usage"])
    return shown


async def past(world, shown):
    """Let Prometheus have scraped the last minute and the minute an hour ago; in the last one the usage was 0.5."""
    now = time.time()
    for ago in range(int(HOUR) + 60, int(HOUR) - 30, -5):
        await world.prometheus.scraper.scrape(now - ago, due=lambda _: True)
    shown["usage"] = 0.5
    await world.scrape()


@asynccontextmanager
async def looking(world):
    """Yield the numbers of both variants, in ledger and target, that were seen during the body."""
    seen = set()

    async def look():
        while True:
            for name in ("va", "direct"):
                decision = world.app.ledger.get(VariantKey(VICTIM, name))
                seen.add((name, None if decision is None else decision.desired))
            seen.add(("target", world.api.store.get("deployments.apps", Key(VICTIM, "direct"))["spec"]["replicas"]))
            await asyncio.sleep(0.01)

    task = asyncio.create_task(look())
    try:
        yield seen
    finally:
        task.cancel()


def measured(world):
    """Tell whether the numbers of both variants are measured."""
    found = [world.app.ledger.get(VariantKey(VICTIM, name)) for name in ("va", "direct")]
    return all(decision is not None and not decision.held and decision.desired == 2 for decision in found)


@pytest.fixture
def clock(world):
    """Return the clock of the controller, which the test sets."""
    shifted = Shifted()
    world.set("wva.clock.SystemClock.now", shifted.now)
    world.set("wva.hindsight.recordings.KEPT", KEPT)
    return shifted


@asynccontextmanager
async def controller(world):
    """Run the controller until both numbers are measured, and look at them from then on."""
    environment = {"WVA_DIRECT_ACTUATION": "true", "LEADER_ELECT": "true", "RECORD_DIR": str(world.folder / "records")}
    async with world.controller(interval="30ms", PROMETHEUS_BASE_URL=world.url, **environment):
        await until(lambda: measured(world), seconds=10)
        async with looking(world) as seen:
            yield seen


async def goes_on(world, clock):
    """Wait for some cycles, and check that page, Lease and recordings are those of now."""
    done = world.cycle_count()
    await until(lambda: world.cycle_count() >= done + KEPT + 2, seconds=10)
    assert world.metric("wva_leader") == 1
    assert world.app.leadership.elector.may_write()
    assert abs(world.metric("wva_last_cycle_timestamp_seconds") - clock.now()) < 5
    assert world.metric("wva_cycles_total", result="error") == 0
    kept = sorted((world.folder / "records").glob("cycle-*.json"), key=lambda path: path.stat().st_mtime)
    assert len(kept) == KEPT
    assert all(abs(float(path.stem.removeprefix("cycle-")) - clock.now()) < 5 for path in kept)
    assert abs(world.app.views.recent.at(clock.now()).now - clock.now()) < 5


@pytest.mark.parametrize("usage", [0.99, 0.0], ids=["busy", "idle"])
@pytest.mark.parametrize(("seconds", "words"), [(HOUR, "ahead of"), (-HOUR, "behind")], ids=["forward", "back"])
async def test_a_controller_whose_clock_is_wrong_holds_its_numbers_and_says_so(world, clock, seconds, words, usage):
    """It does not take the samples of an hour ago for those of now, whatever they say. A right clock ends it."""
    await past(world, victim(world, usage))
    async with controller(world) as seen:
        clock.seconds = seconds
        await goes_on(world, clock)
        told = world.condition("MetricsAvailable", "va", VICTIM)
        assert (told["status"], told["reason"]) == ("False", "PrometheusError")
        assert re.search(f"the controller's clock is [0-9]{{4}} s {words} the clock of {world.url}", told["message"])
        await until(lambda: any("clock" in event["message"] for event in world.events("DesiredReplicasHeld")))
        clock.seconds = 0.0
        await until(lambda: measured(world), seconds=10)
        await goes_on(world, clock)
        assert seen == {("va", 2), ("direct", 2), ("target", 2)}


async def test_a_world_that_has_slept_moves_nothing(world, clock):
    """All clocks are an hour later at once, as after the machines were suspended: the first new samples end the wait.

    The idle variant may shrink from now on, and its window, which has not passed, is that of the monotonic clock.
    """
    shown = victim(world, 0.5)
    await past(world, shown)
    async with controller(world) as seen:
        clock.seconds = HOUR
        world.prometheus._now = world.prometheus._api.now = clock.now
        await goes_on(world, clock)
        await world.scrape()
        await until(lambda: measured(world), seconds=10)
        await goes_on(world, clock)
        assert seen == {("va", 2), ("direct", 2), ("target", 2)}
