"""Long work that does not block the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from wva.slices import SMALL, Slices, beside, forget, switch_often


def burn(seconds):
    """Use the CPU for some time."""
    limit = time.thread_time() + seconds
    while time.thread_time() < limit:
        pass


async def turns_during(work):
    """Return how often another task had its turn while ``work`` ran."""
    count = 0

    async def count_turns():
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count_turns())
    await work
    task.cancel()
    return count


async def test_tasks_that_share_a_slice_keep_the_loop_no_longer_than_one():
    """Eight tasks with a slice each would keep it for eight slices in a row."""
    shared, longest, whole, done = Slices(0.02), 0.0, 0.0, False

    async def long():
        for _ in range(20):
            burn(0.002)
            await shared.rest()

    async def watch():
        nonlocal longest, whole
        while not done:
            before, began = time.thread_time(), time.monotonic()
            await asyncio.sleep(0)
            longest, whole = max(longest, time.thread_time() - before), max(whole, time.monotonic() - began)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(long() for _ in range(8)))
    done = True
    await watching
    assert longest < 4 * 0.02
    assert whole >= 0.02  # a slice is of the clock, and another process may have had a part of it


async def test_many_that_wait_for_one_answer_do_not_hold_the_loop_together():
    """What has waited for a turn finds the slice used up again, and waits for another one."""
    shared, answer, longest = Slices(0.01), asyncio.Event(), 0.0

    async def client():
        await answer.wait()
        await shared.rest()
        burn(0.005)

    clients = asyncio.gather(*(client() for _ in range(20)))
    await asyncio.sleep(0)
    answer.set()
    while not clients.done():
        before = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - before)
    assert longest < 4 * 0.01


async def test_a_slice_of_no_time_still_lets_one_go_on_in_each_turn():
    """Work is slow then, but it ends."""
    shared = Slices(0.0)

    async def long():
        for _ in range(5):
            await shared.rest()

    async with asyncio.timeout(10):
        await asyncio.gather(*(long() for _ in range(3)))


def test_a_thread_keeps_the_interpreter_for_a_fraction_of_the_usual_5_ms():
    """How long the loop then waits is for the attacks to show, because it depends on how busy the machine is."""
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        switch_often()
        assert sys.getswitchinterval() <= 0.001
    finally:
        sys.setswitchinterval(before)


async def test_a_slice_that_is_used_up_ends_with_the_turn_of_the_others():
    """Work rests when its slice is used up, and only then."""

    async def long():
        slices = Slices(0.005)
        for _ in range(10):
            burn(0.006)
            await slices.rest()

    async def short():
        slices = Slices(60)
        for _ in range(10):
            await slices.rest()

    assert await turns_during(long()) >= 10
    assert await turns_during(short()) == 0


async def test_only_large_work_is_done_in_a_thread():
    """Small work runs in the loop's own thread. An exception of a thread is raised to the caller."""
    here = threading.get_ident()
    assert await beside(SMALL, threading.get_ident) == here
    assert await beside(SMALL + 1, threading.get_ident) != here
    with pytest.raises(ZeroDivisionError):
        await beside(SMALL + 1, lambda: 1 // 0)


async def test_the_loop_runs_while_a_thread_works():
    """Other tasks run while a thread works."""
    assert await turns_during(beside(SMALL + 1, lambda: burn(0.1))) > 5


async def test_what_is_costly_to_free_is_freed_in_slices():
    """Other tasks run while ``forget`` frees many objects."""

    class Costly:
        def __del__(self):
            burn(0.00005)

    things = [Costly() for _ in range(2000)]
    assert await turns_during(forget(things)) > 3
    assert things == []
