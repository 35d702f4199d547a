"""When the workers of a controller start and stop, and how many there are."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.kube.clocks import LoopClock
from wva.instruments import Instruments
from wva.kube.controller import Controller, Done
from wva.kube.workqueue import WorkQueue

pytestmark = pytest.mark.looptime


@pytest.fixture(name="build")
def _build():
    def build(reconcile, **options):
        instruments, clock = Instruments(CollectorRegistry()), LoopClock()
        queue = WorkQueue("test", clock=clock, instruments=instruments)
        return Controller("test", queue, reconcile, clock=clock, instruments=instruments, **options)

    return build


class SlowReconciler:
    """A reconciler that takes 10 s, and records when each key started and how it ended."""

    def __init__(self):
        """Start without records."""
        self.started, self.ended = {}, {}

    async def __call__(self, key):
        """Take 10 s."""
        now = asyncio.get_running_loop().time
        self.started[key] = now()
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            self.ended[key] = "cancelled"
            raise
        self.ended[key] = now()
        return Done()


async def test_no_key_is_touched_before_every_cache_has_synced(build):
    """The workers start when the last cache has synced."""
    reconcile, first, second = SlowReconciler(), asyncio.Event(), asyncio.Event()
    controller = build(reconcile)
    controller.queue.add("a")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(controller.run([first, second]))
        first.set()
        await asyncio.sleep(5)
        assert not reconcile.started
        second.set()
        await asyncio.sleep(20)
        running.cancel()
    assert reconcile.started == {"a": 5}


async def test_caches_that_do_not_sync_are_complained_about(build):
    """A controller whose caches do not sync logs it every two minutes."""
    controller = build(SlowReconciler())
    with capture_logs() as logs:
        run = asyncio.ensure_future(controller.run([asyncio.Event(), asyncio.Event()]))
        await asyncio.sleep(250)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    complaints = [line for line in logs if line["event"] == "caches_not_synced"]
    assert [line["missing"] for line in complaints] == [2, 2]


async def test_as_many_keys_at_once_as_there_are_workers(build):
    """Two workers reconcile two keys at the same time, and the third key waits."""
    reconcile = SlowReconciler()
    controller = build(reconcile, workers=2)
    for key in "abc":
        controller.queue.add(key)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(controller.run())
        await asyncio.sleep(30)
        running.cancel()
    assert reconcile.started == {"a": 0, "b": 0, "c": 10}


async def test_cancelling_stops_reconciles_where_they_are(build):
    """The reconcile is cancelled, and its key is kept for a new start."""
    reconcile = SlowReconciler()
    controller = build(reconcile)
    controller.queue.add("a")
    run = asyncio.ensure_future(controller.run())
    await asyncio.sleep(3)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert reconcile.ended == {"a": "cancelled"}
    assert controller.queue.retries("a") == 0
    assert await controller.queue.get() == "a"


async def test_an_error_in_answer_to_a_cancellation_does_not_keep_the_worker_alive(build):
    """The worker ends although the exception of a clean-up replaces the cancellation."""

    async def reconcile(_):
        try:
            await asyncio.sleep(100)
        finally:
            raise RuntimeError("clean-up failed")

    controller = build(reconcile)
    controller.queue.add("a")
    run = asyncio.ensure_future(controller.run())
    await asyncio.sleep(1)
    run.cancel()
    with capture_logs(), pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, 5)


async def test_log_lines_of_a_reconcile_carry_controller_and_key(build):
    """Log lines have the key of their reconcile, even with several workers."""
    seen = {}

    async def reconcile(key):
        await asyncio.sleep(1)
        seen[key] = structlog.contextvars.get_contextvars()
        return Done()

    controller = build(reconcile, workers=2)
    controller.queue.add("a")
    controller.queue.add("b")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(controller.run())
        await asyncio.sleep(5)
        running.cancel()
    assert seen == {key: {"controller": "test", "key": key} for key in "ab"}


async def test_a_worker_that_fails_beside_its_reconcile_loses_no_key(build, monkeypatch):
    """The controller ends, and reconciles the key after the next start."""
    reconciled = []

    async def reconcile(key):
        reconciled.append(key)
        return Done()

    controller = build(reconcile)
    controller.queue.add("a")
    with monkeypatch.context() as patched:
        patched.setattr(Controller, "_process", broken)
        with pytest.raises(ExceptionGroup):
            await controller.run()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(controller.run())
        await asyncio.sleep(1)
        running.cancel()
    assert reconciled == ["a"]


async def test_a_worker_that_fails_takes_no_key_from_the_others(build, monkeypatch):
    """The other workers are stopped, and their keys are reconciled after the next start."""
    reconciled, process = [], Controller._process

    async def reconcile(key):
        reconciled.append(key)
        await asyncio.sleep(10)
        return Done()

    async def fails_for_b(controller, key):
        await asyncio.sleep(1)
        await (broken() if key == "b" else process(controller, key))

    controller = build(reconcile, workers=2)
    controller.queue.add("a")
    controller.queue.add("b")
    with monkeypatch.context() as patched:
        patched.setattr(Controller, "_process", fails_for_b)
        with pytest.raises(ExceptionGroup):
            await controller.run()
    reconciled.clear()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(controller.run())
        await asyncio.sleep(1)
        running.cancel()
    assert sorted(reconciled) == ["a", "b"]


async def broken(*_):
    """Raise an exception."""
    raise LookupError
