"""When a key is reconciled again: after its result, its failure or its timeout."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest
from prometheus_client import CollectorRegistry
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from tests.kube.clocks import LoopClock
from wva.instruments import Instruments
from wva.kube.controller import After, Controller, Done
from wva.kube.errors import TooManyRequests, Unavailable, WriteRefused
from wva.kube.workqueue import WorkQueue

pytestmark = pytest.mark.looptime


class ControllerBench:
    """A controller with a scripted reconciler: each call takes the next answer (a result, an error, or a function)."""

    def __init__(self, *answers, workers=1, timeout_seconds=60.0, random=None):
        """Build the controller. ``running`` starts it."""
        self.registry = CollectorRegistry()
        instruments = Instruments(self.registry)
        clock = LoopClock()
        self.queue = WorkQueue("bench", clock=clock, instruments=instruments)
        self.controller = Controller(
            "bench",
            self.queue,
            self.reconcile,
            workers=workers,
            timeout_seconds=timeout_seconds,
            random=random,
            clock=clock,
            instruments=instruments,
        )
        self.answers = list(answers)
        self.calls = []

    async def reconcile(self, key):
        """Return or raise the next answer. Return Done when there is none left."""
        self.calls.append((round(asyncio.get_running_loop().time(), 3), key))
        answer = self.answers.pop(0) if self.answers else Done()
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Done | After) else await answer()

    @property
    def times(self):
        """The times at which reconciles started."""
        return [time for time, _ in self.calls]

    def count(self, result):
        """Return how many reconciles had this result."""
        return self.registry.get_sample_value("wva_reconciles_total", {"controller": "bench", "result": result}) or 0

    @asynccontextmanager
    async def running(self):
        """Run the controller during the body."""
        with capture_logs([merge_contextvars]) as self.logs:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(self.controller.run())
                yield self
                running.cancel()

    def logged(self, event):
        """Return the log lines of that name."""
        return [line for line in self.logs if line["event"] == event]


async def hang():
    """Never end."""
    await asyncio.Event().wait()


async def test_done_brings_the_key_back_only_on_a_change():
    """After Done a key is reconciled only when it is added again."""
    async with ControllerBench().running() as bench:
        bench.queue.add("a")
        await asyncio.sleep(5000)
        bench.queue.add("a")
        await asyncio.sleep(1)
    assert bench.times == [0, 5000]
    assert bench.count("success") == 2


async def test_after_brings_the_key_back_in_time():
    """After(seconds) reconciles the key again after exactly that time, without back-off."""
    async with ControllerBench(After(30.0), After(60.0)).running() as bench:
        bench.queue.add("a")
        await asyncio.sleep(1000)
    assert bench.times == [0, 30, 90]
    assert bench.queue.retries("a") == 0


async def test_a_failure_is_retried_with_growing_delays():
    """Each failure in a row doubles the delay; a success resets it."""
    bench = ControllerBench(*[Unavailable(503, "", "down")] * 4, Done(), Unavailable(503, "", "down"))
    async with bench.running():
        bench.queue.add("a")
        await asyncio.sleep(1)
        assert bench.times == pytest.approx([0, 0.005, 0.015, 0.035, 0.075], abs=0.003)
        bench.queue.add("a")
        await asyncio.sleep(1)
    assert bench.times[5:] == pytest.approx([1, 1.005], abs=0.003)
    assert (bench.count("error"), bench.count("success")) == (5, 2)


@pytest.mark.parametrize(("asked", "pause"), [(7, 7), (0, 0.005), (None, 0.005), (3600, 120)])
async def test_a_server_that_asks_for_a_pause_gets_it(asked, pause):
    """It is the shortest pause, and at most two minutes."""
    async with ControllerBench(TooManyRequests(429, "", "later", asked)).running() as bench:
        bench.queue.add("a")
        await asyncio.sleep(4000)
    assert bench.times == pytest.approx([0, pause], abs=0.003)


async def test_pauses_are_spread():
    """Keys that failed together come back within a fifth of the pause, and not together."""
    bench = ControllerBench(*[TooManyRequests(429, "", "later", 60)] * 20, random=Random(1))
    async with bench.running():
        bench.queue.add_all(range(20))
        await asyncio.sleep(4000)
    back = bench.times[20:]
    assert all(60 <= time <= 72 for time in back)
    assert len(set(back)) == 20


async def test_a_failure_is_logged_once_with_its_key():
    """The line has the controller, the key and the error."""
    async with ControllerBench(Unavailable(503, "", "down")).running() as bench:
        bench.queue.add("a")
        await asyncio.sleep(1)
    (line,) = bench.logged("reconcile_failed")
    assert (line["log_level"], line["error"], line["retries"]) == ("warning", "503: down", 0)
    assert (line["controller"], line["key"]) == ("bench", "a")


async def test_a_bug_is_logged_with_its_traceback_and_ends_nothing():
    """An unexpected exception is logged with its traceback, and the worker goes on with other keys."""
    async with ControllerBench(RuntimeError("bug")).running() as bench:
        bench.queue.add("a")
        bench.queue.add("b")
        await asyncio.sleep(1)
    (line,) = bench.logged("reconcile_failed")
    assert line["exc_info"]
    assert line["log_level"] == "error"
    assert [key for _, key in bench.calls] == ["a", "b", "a"]


async def test_a_refused_write_is_no_error():
    """Without the Lease the write is retried later, and is not counted as a failure."""
    async with ControllerBench(WriteRefused(0, "", "not leading")).running() as bench:
        bench.queue.add("a")
        await asyncio.sleep(1)
    assert bench.times == pytest.approx([0, 0.005], abs=0.003)
    assert (bench.count("error"), bench.count("success")) == (0, 1)
    assert [line["log_level"] for line in bench.logged("reconcile_refused")] == ["debug"]


async def test_a_hanging_reconcile_is_cancelled_and_retried():
    """After its timeout the key is tried again, and the timeout is counted."""
    async with ControllerBench(hang, timeout_seconds=10.0).running() as bench:
        bench.queue.add("a")
        await asyncio.sleep(20)
    assert bench.times == pytest.approx([0, 10.005], abs=0.003)
    assert (bench.count("timeout"), bench.count("error"), bench.count("success")) == (1, 0, 1)
    assert bench.logged("reconcile_timed_out")


async def test_a_time_out_inside_the_reconcile_is_an_error_of_its_own():
    """A TimeoutError that the reconcile raises is counted as an error, not as a timeout."""
    async with ControllerBench(TimeoutError("query"), timeout_seconds=10.0).running() as bench:
        bench.queue.add("a")
        await asyncio.sleep(1)
    assert (bench.count("timeout"), bench.count("error")) == (0, 1)


async def test_a_change_during_a_reconcile_brings_the_key_back_at_once():
    """The second reconcile starts as soon as the first one has ended."""

    async def slow():
        await asyncio.sleep(3)
        return Done()

    async with ControllerBench(slow, workers=2).running() as bench:
        bench.queue.add("a")
        await asyncio.sleep(1)
        bench.queue.add("a")
        await asyncio.sleep(10)
    assert bench.times == [0, 3]


async def test_durations_are_measured():
    """The histogram has the duration of each reconcile."""

    async def slow():
        await asyncio.sleep(3)
        return Done()

    async with ControllerBench(slow).running() as bench:
        bench.queue.add("a")
        await asyncio.sleep(10)
    total = bench.registry.get_sample_value("wva_reconcile_duration_seconds_sum", {"controller": "bench"})
    assert total == pytest.approx(3.0)
