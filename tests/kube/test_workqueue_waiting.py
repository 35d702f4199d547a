"""WorkQueue: workers that wait on an injected clock, its metrics and its properties."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from tests.kube.clocks import ManualClock, settle
from wva.instruments import Instruments
from wva.kube.workqueue import WorkQueue


@pytest.fixture(name="clock")
def _clock():
    return ManualClock()


@pytest.fixture(name="registry")
def _registry():
    return CollectorRegistry()


@pytest.fixture(name="queue")
def _queue(clock, registry):
    return WorkQueue("test", clock=clock, instruments=Instruments(registry))


async def test_get_returns_what_is_queued(queue):
    """A queued key is handed out without waiting."""
    queue.add("a")
    assert await queue.get() == "a"


async def test_get_waits_for_the_next_add(queue):
    """A new key wakes a waiting worker."""
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.get())
        await settle()
        assert not waiting.done()
        queue.add("a")
    assert waiting.result() == "a"


async def test_many_keys_are_queued_at_once(queue, registry):
    """Each key is queued once and in order, all waiting workers wake, and the new keys are counted."""
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(queue.get()) for _ in range(2)]
        await settle()
        queue.add_all(["a", "b", "a", "c"])
    assert [task.result() for task in waiting] == ["a", "b"]
    assert await queue.get() == "c"
    assert len(queue) == 0
    assert registry.get_sample_value("wva_workqueue_adds_total", {"queue": "test"}) == 3


async def test_delays_pass_with_the_injected_clock(queue, clock):
    """A delayed key comes by the injected clock, not by the loop's time."""
    queue.add_after("a", 30.0)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.get())
        await clock.advance(29.9)
        assert not waiting.done()
        await clock.advance(0.1)
        assert waiting.result() == "a"


async def test_an_earlier_delay_wakes_a_worker_that_waits_for_a_later_one(queue, clock):
    """A worker that waits for a key also gets a key that is due before it."""
    queue.add_after("late", 100.0)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.get())
        await settle()
        queue.add_after("early", 1.0)
        await clock.advance(1.0)
        assert waiting.result() == "early"


async def test_a_wait_is_never_shorter_than_timers_can_measure(queue, clock):
    """A worker waits at least a millisecond. A shorter wait could return at once, again and again."""
    queue.add_after("a", 1.0)
    await clock.advance(1.0 - 1e-9)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.get())
        await clock.advance(0.0005)
        assert not waiting.done()
        await clock.advance(0.0005)
        assert waiting.result() == "a"


async def test_waiting_workers_share_the_keys(queue):
    """Each waiting worker gets a different key."""
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(queue.get()) for _ in range(3)]
        await settle()
        for key in "abc":
            queue.add(key)
    assert sorted(worker.result() for worker in workers) == ["a", "b", "c"]


async def test_done_wakes_a_worker_for_a_dirty_key(queue):
    """A worker that waits gets a key that was added during its reconcile."""
    queue.add("a")
    await queue.get()
    queue.add("a")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.get())
        await settle()
        assert not waiting.done()
        queue.done("a")
    assert waiting.result() == "a"


async def test_a_cancelled_worker_takes_no_key_with_it(queue):
    """A worker that is cancelled while it waits loses no key."""
    waiting = asyncio.ensure_future(queue.get())
    await settle()
    waiting.cancel()
    queue.add("a")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await queue.get() == "a"


async def test_idle_means_that_nothing_happens_before_the_clock_moves(queue, clock):
    """The queue is idle if no key is queued or with a worker. A delayed key does not count until it is due."""
    assert queue.idle
    queue.add("a")
    assert not queue.idle
    await queue.get()
    assert not queue.idle
    queue.done("a")
    queue.add_after("a", 5.0)
    assert queue.idle
    assert queue.next_due == clock.monotonic() + 5.0
    await clock.advance(5.0)
    assert not queue.idle
    assert len(queue) == 1


async def test_retries_back_off_until_forgotten(queue, clock):
    """Each failure of a key doubles its delay."""
    for failures, delay in enumerate((0.005, 0.01, 0.02)):
        assert queue.retries("a") == failures
        queue.add_rate_limited("a")
        assert queue.next_due == pytest.approx(clock.monotonic() + delay)
        await clock.advance(delay)
        assert await queue.get() == "a"
        queue.done("a")
    queue.forget("a")
    assert queue.retries("a") == 0


async def test_a_backoff_has_a_cap_and_a_least_and_is_spread(clock):
    """The cap is of the queue, the least of the call, and the spread multiplies the result."""
    queue = WorkQueue("test", clock=clock, instruments=Instruments(CollectorRegistry()), cap_seconds=0.01)
    for key, given, delay in (
        ("a", {}, 0.005),
        ("a", {}, 0.01),
        ("a", {}, 0.01),
        ("b", {"at_least_seconds": 7.0}, 7.0),
        ("c", {"at_least_seconds": 7.0, "spread": 1.5}, 10.5),
    ):
        queue.add_rate_limited(key, **given)
        assert queue.next_due == pytest.approx(clock.monotonic() + delay)
        await clock.advance(delay)
        assert await queue.get() == key
        queue.done(key)


async def test_a_key_backs_off_from_its_failure_to_its_next_try(queue, clock):
    """A key with a timer of another kind does not."""
    queue.add_after("b", 1.0)
    queue.add_rate_limited("a")
    assert [queue.backing_off(key) for key in "abc"] == [True, False, False]
    await clock.advance(0.005)
    assert await queue.get() == "a"
    queue.add_rate_limited("a")
    assert not queue.backing_off("a")  # a worker has it, and may have read what is old by now
    queue.done("a")
    assert queue.backing_off("a")
    queue.forget("a")
    assert not queue.backing_off("a")


async def test_metrics_count_adds_retries_and_depth(queue, clock, registry):
    """The depth is the number of waiting keys. A key that is added twice counts once."""

    def value(name):
        return registry.get_sample_value(name, {"queue": "test"})

    queue.add("a")
    queue.add("a")
    queue.add("b")
    queue.add_rate_limited("c")
    assert (value("wva_workqueue_depth"), value("wva_workqueue_adds_total")) == (2, 2)
    assert value("wva_workqueue_retries_total") == 1
    await queue.get()
    assert value("wva_workqueue_depth") == 1
    await clock.advance(1.0)
    await queue.get()
    assert value("wva_workqueue_depth") == 1
