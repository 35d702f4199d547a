"""A replica behind a real HTTP server, with a clock that jumps to the end of each wait."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp.test_utils import TestClient, TestServer

from wva.sim.emulator.replica import EmulatedReplica
from wva.sim.emulator.server import EmulatorServer
from wva.sim.fleet.parameters import EngineParameters

PARAMETERS = EngineParameters(
    alpha_seconds=0.01,
    beta_seconds_per_sequence=0.0,
    prefill_seconds_per_token=0.001,
    num_gpu_blocks=64,
    max_num_seqs=4,
    max_num_batched_tokens=256,
    max_model_len=512,
)


class JumpingClock:
    """A clock on which waiting takes no time: it jumps to the end of each wait after the loop has run once."""

    def __init__(self):
        """Start at 100 s."""
        self.seconds = 100.0

    def now(self):
        """Return the time."""
        return self.seconds

    def monotonic(self):
        """Return the time."""
        return self.seconds

    async def sleep(self, seconds):
        """Jump to the end of the sleep."""
        await asyncio.sleep(0)
        self.seconds += seconds

    async def wait(self, event, timeout_seconds):
        """Jump to the timeout, or wait for the event if there is no timeout."""
        if timeout_seconds is None:
            await event.wait()
        else:
            await asyncio.sleep(0)
            self.seconds += 0.0 if event.is_set() else timeout_seconds
        return event.is_set()


@pytest.fixture
def clock():
    """Return the clock."""
    return JumpingClock()


@pytest.fixture
def replica(clock):
    """Return an idle replica whose answers have 20 tokens on average."""
    return EmulatedReplica(PARAMETERS, model="org/m", clock=clock, mean_output_tokens=20, seed=1)


@pytest.fixture
async def running(replica):
    """Return the replica while its engine runs."""
    task = asyncio.create_task(replica.run())
    yield replica
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def client(clock, running):
    """Return an HTTP client of the running replica."""
    server = EmulatorServer(running, clock=clock)
    async with TestClient(TestServer(server.application())) as client:
        yield client
