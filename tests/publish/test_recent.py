"""The last cycles are kept in memory, bounded in number and bytes."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import NOW, policy, replica, variant
from wva.model.memory import Memory
from wva.model.snapshot import Snapshot
from wva.publish.recent import RecentCycles
from wva.publish.recordings import Recording


def cycle(number):
    """Return the recording of a cycle."""
    snapshot = Snapshot.of([variant()], [replica(kv=number / 1000)])
    return Recording(NOW + 15 * number, policy(), Memory(), snapshot)


async def test_a_cycle_comes_back_as_it_was():
    """An older cycle is decoded from its compressed form, the newest is the same object."""
    recent = RecentCycles()
    kept = [cycle(number) for number in range(3)]
    for recording in kept:
        await recent.keep(recording)
    assert recent.newest is kept[2]
    assert recent.at(NOW + 30) is kept[2]
    assert recent.at(NOW + 29) == kept[1]
    assert recent.at(NOW - 1) is None
    assert recent.times == tuple(recording.now for recording in kept)


async def test_before_the_first_cycle_there_is_none():
    """A process that has just started knows no cycle."""
    assert RecentCycles().newest is None
    assert RecentCycles().at(NOW) is None


async def test_the_number_of_cycles_is_bounded():
    """The oldest cycles go first."""
    recent = RecentCycles(most_cycles=2)
    for number in range(5):
        await recent.keep(cycle(number))
    assert recent.times == (NOW + 45, NOW + 60)


async def test_the_bytes_are_bounded_and_the_newest_stays():
    """A cycle that alone is larger than the limit is known while it is the newest."""
    recent = RecentCycles(most_bytes=10)
    await recent.keep(cycle(1))
    assert recent.times == ()
    assert recent.newest == cycle(1)


async def test_everybody_who_waits_is_told_of_the_next_cycle():
    """Who gives up leaves nothing behind, however often it waits."""
    recent = RecentCycles()
    waiting = [asyncio.create_task(recent.next()) for _ in range(3)]
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await recent.next()
    shared = recent._next
    waiting[0].cancel()
    await recent.keep(cycle(1))
    assert await asyncio.gather(*waiting[1:]) == [NOW + 15, NOW + 15]
    assert shared.done()
    assert recent._next is None
    await recent.keep(cycle(2))
