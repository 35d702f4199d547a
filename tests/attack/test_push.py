"""Anonymous peers attack the port that KEDA asks. KEDA gets its number, and the controller decides on time."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import asynccontextmanager

import pytest
from grpclib.client import Channel
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError, StreamTerminatedError

from tests.app.stage import VARIANTS, until
from tests.attack.harness import Attack, Says, repeat_if_late, survive
from tests.attack.meter import waits
from tests.rows import by_day
from tests.serve.keda import Client, ref
from wva.actuation import ACTUATION_ANNOTATION

SECONDS = 1.0
"""How long the peer attacks in each row."""
ANSWER_SECONDS = 10.0
"""How long KEDA may wait for a number, connecting included, while the peer keeps a core busy."""
HELD_SECONDS = 4.0
HELD_ANSWER_SECONDS = 3.0
"""The same two while the peer only holds connections open."""
PUSH = {"KEDA_PUSH_BIND_ADDRESS": "127.0.0.1:0"}


def asks_for_push(world):
    """Let KEDA apply the tenant's number."""
    world.patch(VARIANTS, "bad", {"metadata": {"annotations": {ACTUATION_ANNOTATION: "keda-push"}}})


@asynccontextmanager
async def peer(world, attack, *, connections, seconds, more=()):
    """Let a peer attack for some seconds; it has ended after the body."""
    words = [sys.executable, "-m", "tests.attack.push_peer"]
    words += [str(world.app.reconciling.push.port), attack, str(connections), str(seconds), *more]
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    try:
        yield
        await process.communicate()
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


class PushAsker:
    """Asks for the tenant's number as KEDA does: ``slowest`` is the longest time to a number, in seconds."""

    def __init__(self, world, tls=None):
        """Ask this world's controller; ``tls`` is the context of a client."""
        self._world = world
        self._tls = tls
        self.slowest = 0.0
        self.numbers = set()

    async def ask(self):
        """Ask over a new connection until there is a number."""
        began = time.monotonic()
        while True:
            channel = Channel("127.0.0.1", self._world.app.reconciling.push.port, ssl=self._tls, codec=ProtoCodec())
            try:
                async with asyncio.timeout(10):
                    self.numbers.add(await Client(channel, None).number(ref("bad", "tenant")))
                break
            except (GRPCError, StreamTerminatedError, OSError):  # TimeoutError is an OSError
                await asyncio.sleep(0.05)
                if time.monotonic() - began > 20:
                    break
            finally:
                channel.close()
        self.slowest = max(self.slowest, time.monotonic() - began)

    async def ask_for(self, seconds):
        """Ask again and again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await self.ask()
            await asyncio.sleep(0.1)


def row(attack, *, connections=4, seconds=SECONDS, answer_seconds=ANSWER_SECONDS, **more):
    """Return an attack on some connections at once, during which KEDA asks."""

    async def during(world):
        await until(lambda: world.decision_of() is not None and world.app.reconciling.push.port)
        world.keda = keda = PushAsker(world)
        await keda.ask()
        async with peer(world, attack, connections=connections, seconds=seconds):
            await keda.ask_for(seconds)

    told = Says("KEDA's number in time", lambda world: world.keda.slowest < answer_seconds)
    return Attack(
        f"{attack}_on_{connections}", before=asks_for_push, during=during, shows=told, environment=PUSH, **more
    )


ATTACKS = [
    row("pings"),
    row("settings"),
    row("empty_data"),
    row("resets"),
    row("half_open"),
    row("half_open", connections=64),
    row("zero_window"),
    row("priorities"),
    row("unknown_frames"),
    row("continuations"),
    row("calls"),
    row("unread"),
    row("churn"),
    row("silence", connections=64, seconds=HELD_SECONDS, answer_seconds=HELD_ANSWER_SECONDS),
    row("one_stream", connections=64, seconds=HELD_SECONDS, answer_seconds=HELD_ANSWER_SECONDS),
    row("strange_names"),
    row("one_name"),
]


BY_DAY = (
    "half_open_on_64",
    "unread_on_4",
    "continuations_on_4",
    "settings_on_4",
    "zero_window_on_4",
    "churn_on_4",
    "pings_on_4",
    "silence_on_64",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_keda_and_the_victim_do_not_notice(world, attack):
    """KEDA has its number in time over each new connection, and the controller does its work."""
    await survive(world, attack)


LONG_SECONDS = float(os.environ.get("WVA_ATTACK_SECONDS", "5.5"))
"""How long a whole controller is attacked: longer than its Lease holds."""
ELECTION = {
    "LEADER_ELECT": "true",
    "LEADER_ELECTION_LEASE_DURATION": "4s",
    "LEADER_ELECTION_RENEW_DEADLINE": "3s",
    "LEADER_ELECTION_RETRY_PERIOD": "500ms",
}
INTERVAL_SECONDS = 1.0


async def decided_on_time(world, attack, *, connections=4, environment=PUSH, more=()):
    """Attack a leader for longer than its Lease holds; check that no cycle is late by more than a second."""
    environment = {**environment, **ELECTION}

    async def run(one):
        one.victim()
        one.bad()
        asks_for_push(one)
        await one.scrape()
        settings = {"PROMETHEUS_BASE_URL": one.url, **environment}
        async with one.controller(interval=f"{INTERVAL_SECONDS:g}s", **settings) as running:
            await until(lambda: one.decision_of() is not None and one.app.reconciling.push.port)
            async with peer(one, attack, connections=connections, seconds=LONG_SECONDS, more=more):
                cycles, latest = await cycles_for(one, LONG_SECONDS)
            assert not running.done()
            assert one.metric("wva_leader") == 1
        late = [f"a cycle was late by {latest:.2f} s"] if latest > 1.0 else []
        late += [f"{cycles} cycles in {LONG_SECONDS:g} s"] if cycles < LONG_SECONDS / (2 * INTERVAL_SECONDS) else []
        return [], late

    await repeat_if_late(world, attack, run)


async def cycles_for(world, seconds):
    """Return how many cycles end in this time, and by how many seconds the latest of them is late.

    Time in which this thread waited for a core does not count: other tests run beside this one.
    """
    with waits() as waited:
        clock = lambda: time.monotonic() - waited()  # noqa: E731 - read again and again
        began = last = clock()
        first = count = world.cycle_count()
        latest = 0.0
        while clock() - began < seconds:
            await asyncio.sleep(0.02)
            if world.cycle_count() > count:
                count, last = world.cycle_count(), clock()
            latest = max(latest, clock() - last - INTERVAL_SECONDS)
        return count - first, latest


FRAMES = ["pings", "empty_data", "resets", "half_open", "zero_window", "settings", "unread"]


@pytest.mark.parametrize("attack", by_day(FRAMES, ["settings"]))
async def test_cycles_are_on_time_and_the_lease_is_kept(world, attack):
    """Four connections attack a leader for longer than its Lease holds: no cycle is late by more than a second."""
    await decided_on_time(world, attack)
