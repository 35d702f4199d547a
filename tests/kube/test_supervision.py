"""The supervisor starts failed loops again. A loop that keeps failing makes the process unhealthy."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.kube.clocks import LoopClock
from tests.tasks import running
from wva.instruments import Instruments
from wva.kube.supervision import Supervisor

pytestmark = pytest.mark.looptime


class SupervisorBench:
    """A supervisor with the loop's time, and the start times of the loop that it keeps."""

    def __init__(self):
        """Start no loop."""
        self.instruments = Instruments(CollectorRegistry())
        self.supervisor = Supervisor(clock=LoopClock(), instruments=self.instruments, random=Random(1))
        self.starts = []

    @asynccontextmanager
    async def keeping(self, run, name="watch"):
        """Keep a loop running during the body."""

        async def started():
            self.starts.append(asyncio.get_running_loop().time())
            await run()

        async with running(self.supervisor.keep(name, started)) as task:
            yield task

    def restarts(self, name="watch"):
        """Return how often the loop was started again."""
        return self.instruments.registry.get_sample_value("wva_loop_restarts_total", {"loop": name})


@pytest.fixture
def bench():
    """Return a bench."""
    return SupervisorBench()


async def fails():
    """Raise at once."""
    raise LookupError("text of a tenant")


async def ends():
    """Return at once, which is an error for a loop."""


async def runs():
    """Run until cancelled."""
    await asyncio.Event().wait()


async def thinks_it_is_cancelled():
    """Raise CancelledError, although the task was not cancelled."""
    raise asyncio.CancelledError


@pytest.mark.parametrize("run", [fails, ends, thinks_it_is_cancelled])
async def test_a_loop_that_fails_or_ends_is_started_again(bench, run):
    """The delays grow up to 30 s. Each restart is counted and logged."""
    with capture_logs() as lines:
        async with bench.keeping(run):
            await asyncio.sleep(250)
    assert bench.restarts() == len(bench.starts) > 9
    delays = [later - earlier for earlier, later in zip(bench.starts, bench.starts[1:], strict=False)]
    assert delays[0] <= 1
    assert 2 < max(delays) <= 30
    assert {line["event"] for line in lines} == {"loop_failed"}
    assert lines[0]["loop"] == "watch"


async def test_a_loop_that_runs_is_left_alone(bench):
    """It is not started again, and its counter is 0."""
    async with bench.keeping(runs):
        await asyncio.sleep(1000)
        assert bench.supervisor.unhealthy() == []
    assert (len(bench.starts), bench.restarts()) == (1, 0)


async def test_a_loop_that_does_not_come_back_makes_the_process_unhealthy(bench):
    """After five minutes the process is unhealthy.

    The reason has the name and the class of the error, but not its text.
    """
    async with bench.keeping(fails), bench.keeping(runs, "other"):
        await asyncio.sleep(299)
        assert bench.supervisor.unhealthy() == []
        await asyncio.sleep(12)
        assert bench.supervisor.unhealthy() == ["watch: fails for 311 s (LookupError)"]
    assert bench.supervisor.unhealthy() == []


async def test_a_loop_that_has_run_for_a_minute_has_come_back(bench):
    """A loop that fails later counts as a new failure."""

    async def now_and_then():
        await asyncio.sleep(70)
        raise LookupError

    async with bench.keeping(now_and_then):
        for _ in range(100):
            await asyncio.sleep(10)
            assert bench.supervisor.unhealthy() == []
    assert len(bench.starts) > 5


async def test_a_loop_that_came_back_is_healthy_without_failing_again(bench):
    """It counts as healthy after it has run for a minute."""

    async def in_the_end():
        if asyncio.get_running_loop().time() < 310:
            raise LookupError
        await runs()

    async with bench.keeping(in_the_end):
        await asyncio.sleep(345)
        assert bench.supervisor.unhealthy()
        await asyncio.sleep(60)
        assert bench.supervisor.unhealthy() == []


async def test_a_check_may_say_that_a_loop_is_stuck(bench):
    """A check reports a loop that neither fails nor goes on."""
    bench.supervisor.watch(lambda now: f"optimizer: stuck at {now:.0f}" if now > 5 else None)
    assert bench.supervisor.unhealthy() == []
    await asyncio.sleep(6)
    assert bench.supervisor.unhealthy() == ["optimizer: stuck at 6"]
