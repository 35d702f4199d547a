"""Anonymous peers attack the port that KEDA asks. KEDA gets its number, and the controller decides on time."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager

import pytest
from grpclib.client import Channel
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError, StreamTerminatedError

from tests.app.stage import VARIANTS, until
from tests.attack.harness import Attack, Says, survive
from tests.serve.keda import Client, ref
from wva.actuation import ACTUATION_ANNOTATION

SECONDS = 3.0
"""How long the peer attacks in each row."""
ANSWER_SECONDS = 10.0
"""How long KEDA may wait for a number, connecting included, while the peer keeps a core busy."""
QUIET_ANSWER_SECONDS = 2.0
"""The same while the peer only holds connections open."""
PUSH = {"KEDA_PUSH_BIND_ADDRESS": "127.0.0.1:0"}


def asks_for_push(world):
    """Let KEDA apply the tenant's number."""
    world.patch(VARIANTS, "bad", {"metadata": {"annotations": {ACTUATION_ANNOTATION: "keda-push"}}})


@asynccontextmanager
async def peer(world, attack, *, connections, seconds):
    """Let a peer attack for some seconds; it has ended after the body."""
    words = [sys.executable, "-m", "tests.attack.push_peer"]
    words += [str(world.app._push.port), attack, str(connections), str(seconds)]
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
    """Asks for the tenant's number: ``slowest`` is the longest time from a question to a number, in seconds."""

    def __init__(self, world):
        """Ask this world's controller."""
        self._world = world
        self.slowest = 0.0
        self.numbers = set()

    async def ask(self):
        """Ask over a new connection until there is a number."""
        began = time.monotonic()
        while True:
            channel = Channel("127.0.0.1", self._world.app._push.port, codec=ProtoCodec())
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


def row(attack, *, connections=4, answer_seconds=ANSWER_SECONDS, **more):
    """Return an attack on some connections at once, during which KEDA asks."""

    async def during(world):
        await until(lambda: world.decision_of() is not None and world.app._push.port)
        world.keda = keda = PushAsker(world)
        await keda.ask()
        async with peer(world, attack, connections=connections, seconds=SECONDS):
            await keda.ask_for(SECONDS)

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
    row("silence", connections=64, answer_seconds=QUIET_ANSWER_SECONDS),
    row("one_stream", connections=64, answer_seconds=QUIET_ANSWER_SECONDS),
    row("strange_names"),
    row("one_name"),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_keda_and_the_victim_do_not_notice(world, attack):
    """KEDA has its number in time over each new connection, and the controller does its work."""
    await survive(world, attack)
