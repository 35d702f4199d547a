"""The last cycles are kept in memory, bounded in number and bytes."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from tests.builders import NOW, policy, replica, variant
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Recording
from wva.hindsight.recent import RecentCycles
from wva.model.memory import Memory
from wva.model.snapshot import Snapshot
from wva.model.variant import VariantKey

OWN = variant().key


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
    assert recent.at(NOW + 30).whole is recent.at().whole is kept[2]
    assert await recent.at(NOW + 29).about(OWN) == kept[1]
    assert await recent.at(NOW + 29).about(VariantKey(OWN.namespace, "gone")) is None
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


def fleet(count, namespaces):
    """Return the recording of a cycle of many variants with a pod each, in some namespaces."""
    places = [f"n{number % namespaces:02d}" for number in range(count)]
    names = [f"v{number:04d}" for number in range(count)]
    variants = [variant(name, namespace=place, model=f"m/{name}") for name, place in zip(names, places, strict=True)]
    pods = [
        replica(f"{name}-0", variant=name, namespace=place, kv=0.2) for name, place in zip(names, places, strict=True)
    ]
    snapshot = Snapshot.of(variants, pods)
    outcome = conclude(snapshot, Memory(), policy(), NOW)
    return Recording(NOW, policy(), outcome.memory, snapshot, outcome.decisions)


@pytest.mark.parametrize("namespaces", [1, 7, 40])
async def test_a_question_about_one_variant_unpacks_a_part_of_the_fleet(monkeypatch, namespaces):
    """What comes back is the variant's model as it was, and all that is of no model."""
    whole, recent = fleet(300, namespaces), RecentCycles()
    await recent.keep(whole)
    await recent.keep(cycle(1))
    sizes, unpack = [], zlib.decompress
    monkeypatch.setattr(zlib, "decompress", lambda data: sizes.append(len(text := unpack(data))) or text)
    asked = whole.snapshot.variants[150]
    found = await recent.at(NOW).about(asked.key)
    assert found == whole.grouped({asked.model: 0}, 1)[0]
    assert found.snapshot.variants == (asked,)
    assert [each.key for each in found.decisions] == [asked.key]
    assert max(sizes) < 200_000
    others = [each async for part in recent.at(NOW).of_namespace(asked.key.namespace) for each in part.decisions]
    mine = [each for each in others if each.key.namespace == asked.key.namespace]
    assert mine == [each for each in whole.decisions if each.key.namespace == asked.key.namespace]
    everything = [each async for part in recent.at(NOW).of_namespace("") for each in part.decisions]
    assert sorted(everything, key=lambda each: each.key) == sorted(whole.decisions, key=lambda each: each.key)


async def test_a_cycle_without_variants_is_kept():
    """There is nothing to ask it about."""
    recent = RecentCycles()
    await recent.keep(Recording(NOW, policy(), Memory(), Snapshot()))
    await recent.keep(cycle(1))
    assert await recent.at(NOW).about(OWN) is None
    assert [part async for part in recent.at(NOW).of_namespace("")] == []
