"""The cache of reviews: it is bounded, its answers expire, and waiting clients share one review."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.serve.gate import ReviewCache


class NumberedReviews:
    """Answers with the number of the call. It can be blocked, and can fail."""

    def __init__(self):
        """Answer at once."""
        self.count = 0
        self.turn = None
        self.error = None
        self.called = asyncio.Event()

    async def __call__(self):
        """Return an answer that is valid for ten seconds."""
        self.count += 1
        self.called.set()
        number = self.count
        if self.turn is not None:
            await self.turn.wait()
        if self.error is not None:
            raise self.error
        return number, 10.0


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 5)), max_size=60), st.integers(1, 4))
def test_it_never_grows_and_never_serves_what_is_over(steps, capacity):
    """An answer is at most ten seconds old, and at most ``capacity`` answers are kept."""

    async def play():
        now = [0.0]
        born, asked = {}, []
        cache = ReviewCache(capacity=capacity, monotonic=lambda: now[0])
        for key, pause in steps:
            now[0] += pause

            async def ask(key=key):
                born[key] = now[0]
                asked.append(key)
                return now[0], 10.0

            asked.clear()
            value, known = await cache.get(key, ask)
            assert value == born[key]
            assert now[0] - value < 10
            assert known is not bool(asked)
            assert len(cache._answers) <= capacity

    asyncio.run(play())


async def test_the_one_unused_longest_goes_first():
    """When the cache is full, it drops the answer that was not used for longest."""
    cache = ReviewCache(capacity=2, monotonic=lambda: 0.0)
    ask = NumberedReviews()
    for key in ("a", "b", "a", "c", "a"):
        await cache.get(key, ask)
    assert ask.count == 3
    await cache.get("b", ask)
    assert ask.count == 4


async def test_a_failure_reaches_all_who_wait_and_is_forgotten():
    """All waiting clients get the same error. The next client causes a new review."""
    cache = ReviewCache(capacity=2, monotonic=lambda: 0.0)
    ask = NumberedReviews()
    ask.turn, ask.error = asyncio.Event(), ValueError("no")
    tasks = [asyncio.create_task(cache.get("a", ask)) for _ in range(5)]
    await asyncio.sleep(0)
    ask.turn.set()
    assert [type(result) for result in await asyncio.gather(*tasks, return_exceptions=True)] == [ValueError] * 5
    assert ask.count == 1
    ask.error = None
    assert await cache.get("a", ask) == (2, False)


async def test_when_the_asking_one_goes_away_another_asks():
    """If the client that runs the review is cancelled, a waiting client starts a new one."""
    cache = ReviewCache(capacity=2, monotonic=lambda: 0.0)
    ask = NumberedReviews()
    ask.turn = asyncio.Event()
    first, second, third = [asyncio.create_task(cache.get("a", ask)) for _ in range(3)]
    await ask.called.wait()
    ask.called.clear()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await ask.called.wait()
    ask.turn.set()
    assert {value for value, _ in await asyncio.gather(second, third)} == {2}
    assert ask.count == 2


async def test_one_who_waits_may_go_away():
    """If a waiting client is cancelled, the review goes on for the others."""
    cache = ReviewCache(capacity=2, monotonic=lambda: 0.0)
    ask = NumberedReviews()
    ask.turn = asyncio.Event()
    first, second = [asyncio.create_task(cache.get("a", ask)) for _ in range(2)]
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    ask.turn.set()
    assert await first == (1, False)
    assert second.cancelled()
