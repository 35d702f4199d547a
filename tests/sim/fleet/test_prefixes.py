"""Prompts with the same beginning share blocks of the KV cache."""

import pytest

from tests.sim.fleet.services import SMALL, service, values
from wva.model.records import replace
from wva.sim.fleet.columns import SERVED

LIKE = {"prompt": 42, "prefix": 40, "shared": 40, "group": 0, "output": 100}
"""A prompt of ten common blocks of four tokens, and one block of its own."""
ROOMY = replace(SMALL, num_gpu_blocks=400)


def used(target, row=0):
    """Return the blocks in use."""
    return round(target.kv_cache_usage(row) * target.columns.blocks[target.columns.variant[row]])


def hits(target, row=0):
    """Return the prompt tokens found in the cache since the start of an engine."""
    return target.scrape(row)[7]


def test_common_blocks_are_there_once():
    """Three sequences with a common prefix of ten blocks take twenty blocks less than three without."""
    free = replace(ROOMY, prefill_seconds_per_token=0.0)  # a hit saves no time, so both have the same steps
    separate, together = (
        service(*((at, LIKE | {"group": group}) for at in (0.0, 0.2, 0.3)), variants=(free,)) for group in (-1, 0)
    )
    for at, saved in ((0.19, 0), (0.25, 10), (0.35, 20), (0.5, 20)):
        separate.advance(at)
        together.advance(at)
        assert used(separate) - used(together) == saved
    assert hits(together) == 80


def test_hit_shortens_the_prefill():
    """The engine computes only the tokens that are not in the cache."""
    target = service((0.0, LIKE), (5.0, LIKE))
    target.advance(9.0)
    first = values(target, "first")
    assert first[0] == pytest.approx(0.01 + 42 * 0.001)
    assert first[1] - 5.0 == pytest.approx(0.01 + 2 * 0.001)


def test_new_replica_starts_cold():
    """A new replica does not have the prefixes that other replicas have computed."""
    target = service((0.0, LIKE), (5.0, LIKE))
    target.advance(4.0)
    target.terminate(0, grace_seconds=0.0)
    target.add(0, ready_at_seconds=4.0)
    target.advance(9.0)
    assert values(target, "first")[1] - 5.0 == pytest.approx(0.01 + 42 * 0.001)
    assert hits(target, 1) == 0


def test_row_that_is_used_again_starts_cold():
    """A new engine starts cold, even in the row of an engine that had the prefix."""
    target = service((0.0, LIKE), (5.0, LIKE))
    target.advance(4.0)
    target.terminate(0, grace_seconds=0.0)
    target.forget(0)
    assert target.add(0, ready_at_seconds=4.0) == 0
    target.advance(9.0)
    assert values(target, "first")[1] - 5.0 == pytest.approx(0.01 + 42 * 0.001)


def test_prefix_used_longest_ago_is_given_up_first():
    """Three prefixes of 25 blocks do not fit into 64.

    The cache drops the one that was not used for the longest time.
    """
    prefix = {"prompt": 101, "prefix": 100, "shared": 100, "output": 2}
    groups = [prefix | {"group": group} for group in (0, 1, 2, 1, 0)]
    target = service(*zip(range(0, 10, 2), groups, strict=True))
    target.advance(20.0)
    waits = [first - at for first, at in zip(values(target, "first"), values(target, "arrival"), strict=True)]
    cold, warm = waits[0], 0.01 + 0.001
    assert waits == pytest.approx([cold, cold, cold, warm, cold])
    assert cold > 0.1


def test_idle_prefix_makes_room_for_a_prompt():
    """A cache full of prefixes without users admits any prompt that fits."""
    prefix = {"prompt": 101, "prefix": 100, "shared": 100, "output": 2}
    target = service((0.0, prefix | {"group": 0}), (2.0, prefix | {"group": 1}), (4.0, {"prompt": 190, "output": 5}))
    target.advance(3.9)
    assert used(target) == 0
    assert target.columns.idle[0] == 50
    target.advance(4.01)
    assert used(target) == 48
    assert target.columns.idle[0] == 0
    target.advance(9.0)
    assert values(target, "state") == [SERVED] * 3


def test_prefix_of_which_little_is_used_gives_way():
    """A long answer takes the blocks at the unused end of its group's prefix."""
    long = {"prompt": 88, "prefix": 88, "shared": 88, "group": 0, "output": 1}
    target = service((0.0, long), (1.0, {"prompt": 102, "prefix": 12, "group": 0, "output": 98}))
    target.advance(30.0)
    assert values(target, "state") == [SERVED, SERVED]
    assert hits(target) == 12
    assert values(target, "finish")[1] < 1.0 + 3 * (0.102 + 98 * 0.01)


def test_prefix_that_gave_way_is_computed_again():
    """The unused end of a prefix makes room for another prompt. A later prompt has to compute this end again."""
    group = {"group": 0, "prefix": 60}
    target = service(
        (0.0, group | {"prompt": 60, "shared": 60, "output": 1}),
        (1.0, group | {"prompt": 24, "prefix": 20, "output": 40}),
        (1.0, {"prompt": 170, "output": 5}),
        (1.1, group | {"prompt": 88, "output": 5}),
    )
    for at in range(100, 200):
        target.advance(at / 100)
        assert used(target) <= SMALL.num_gpu_blocks
    target.advance(9.0)
    assert values(target, "state") == [SERVED] * 4
    assert hits(target) == 20 + 20


def test_longer_prompt_of_a_conversation_extends_the_prefix():
    """Each turn begins with the whole turn before, so the cache holds that part."""
    turns = [
        (5.0 * turn, {"prompt": 40 * turn, "prefix": 40 * turn - 40, "shared": 40 * turn, "group": 0})
        for turn in (1, 2, 3)
    ]
    target = service(*turns)
    target.advance(30.0)
    waits = [first - at for first, at in zip(values(target, "first"), values(target, "arrival"), strict=True)]
    assert waits == pytest.approx([0.01 + 0.04] * 3)
    assert hits(target) == 40 + 80
