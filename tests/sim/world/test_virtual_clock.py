"""Virtual time passes only through advance_to, and the clock counts waiters until they run again."""

from __future__ import annotations

import asyncio

import pytest

from wva.sim.world.clock import EPOCH_SECONDS, VirtualClock


async def test_a_sleeper_wakes_when_its_time_has_come() -> None:
    """A sleeper does not wake before its time, even if the event loop runs."""
    clock = VirtualClock()
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper(10.0))
        group.create_task(sleeper(5.0))
        await asyncio.sleep(0)
        clock.advance_to(4.9)
        await asyncio.sleep(0)
        assert woken == []
        assert clock.next_due_seconds == 5.0
        clock.advance_to(12.0)
    assert woken == [12.0, 12.0]
    assert clock.now() == EPOCH_SECONDS + 12.0


async def test_a_fired_timer_counts_as_waking_until_its_waiter_runs() -> None:
    """The clock counts a waiter as waking until it runs, so that the world does not move on before it."""
    clock = VirtualClock()
    event = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(clock.wait(event, 3.0))
        await asyncio.sleep(0)
        clock.advance_to(3.0)
        assert clock.waking == 1
        assert await waiting is False
        assert clock.waking == 0


async def test_an_event_ends_the_wait_and_takes_the_timer_back() -> None:
    """A wait that ended early leaves no timer behind."""
    clock = VirtualClock()
    event = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(clock.wait(event, 3.0))
        await asyncio.sleep(0)
        event.set()
        assert await waiting is True
    assert clock.next_due_seconds is None
    assert clock.waking == 0


async def test_a_wait_without_limit_starts_no_timer() -> None:
    """A wait without a limit has no time that the clock could advance to."""
    clock = VirtualClock()
    event = asyncio.Event()
    event.set()
    assert await clock.wait(event, None) is True
    assert clock.next_due_seconds is None


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    """A cancelled sleeper leaves no timer and no count behind."""
    clock = VirtualClock()
    task = asyncio.get_running_loop().create_task(clock.sleep(7.0))
    await asyncio.sleep(0)
    assert clock.next_due_seconds == 7.0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (clock.waking, clock.next_due_seconds) == (0, None)


async def test_time_passes_before_anything_fires() -> None:
    """pass_to moves the time without waking a sleeper; fire_due then wakes sleepers in order of time."""
    clock = VirtualClock()
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper(10.0))
        group.create_task(sleeper(5.0))
        await asyncio.sleep(0)
        clock.pass_to(12.0)
        await asyncio.sleep(0)
        assert woken == []
        clock.fire_due()
    assert woken == [5.0, 10.0]


def test_time_never_goes_back() -> None:
    """The clock refuses an earlier time."""
    clock = VirtualClock()
    clock.advance_to(5.0)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance_to(4.0)
