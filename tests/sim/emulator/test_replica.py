"""The engine in real time sends tokens as it computes them, and frees the resources of a user who disconnects."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import pairwise

import pytest

from tests.sim.emulator.conftest import PARAMETERS


async def collect(replica, prompt, output, **more):
    """Return the token counts that the replica sends, in order."""
    async with aclosing(replica.answer(prompt, output, **more)) as progress:
        return [(stream.tokens, stream.finished) async for stream in progress]


def sample(replica, name):
    """Return the value of a series of the metrics page, by the beginning of its line."""
    return next(float(line.split()[-1]) for line in replica.page().splitlines() if line.startswith(name))


async def test_tokens_grow_until_the_answer_is_whole(running):
    """Every token comes alone, with its step; only the last one is marked as finished."""
    told = await collect(running, 16, 40)
    assert told == [*((count, False) for count in range(1, 40)), (40, True)]


async def test_each_token_comes_with_its_step(running, clock):
    """The gaps between tokens are the steps of 10 ms, up to the shortest pause of the loop."""
    async with aclosing(running.answer(16, 40)) as progress:
        times = [clock.seconds async for _ in progress]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) == 39
    assert 0.008 <= min(gaps) <= max(gaps) <= 0.012


async def test_who_wants_the_whole_answer_hears_of_its_end_only(running):
    """The engine then wakes with its events, not with every step."""
    assert await collect(running, 16, 40, each=False) == [(40, True)]


async def test_time_is_that_of_the_engine(running, clock):
    """A prompt of 16 tokens and 39 steps take 0.026 s and 0.39 s; the answer arrives up to one tick later."""
    started = clock.seconds
    await collect(running, 16, 40)
    assert 0.416 <= clock.seconds - started <= 0.416 + 0.06


async def test_idle_engine_waits_without_a_time(replica, clock):
    """An idle engine sets no timer and waits for the next request."""
    task = asyncio.create_task(replica.run())
    for _ in range(50):
        await asyncio.sleep(0)
    assert clock.seconds == 100.0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_more_requests_than_places_wait(running):
    """The metrics page shows running and waiting requests, and the replica answers all of them in the end."""
    tasks = [asyncio.create_task(collect(running, 16, 30)) for _ in range(7)]
    seen = set()
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        seen.add((sample(running, "vllm:num_requests_running"), sample(running, "vllm:num_requests_waiting")))
    assert (4.0, 3.0) in seen
    assert {task.result()[-1] for task in tasks} == {(30, True)}


@pytest.mark.parametrize("position", [0, 6], ids=["running", "waiting"])
async def test_user_who_goes_away_frees_the_engine(running, position):
    """A cancelled request leaves the engine, frees its KV cache, and counts in no finish reason."""
    tasks = [asyncio.create_task(collect(running, 16, 100)) for _ in range(7)]
    for _ in range(1000):
        await asyncio.sleep(0)
        if sample(running, "vllm:num_requests_waiting") == 3:
            break
    tasks[position].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(100):
        await asyncio.sleep(0)
    assert sample(running, 'vllm:request_success_total{engine="0",finished_reason="abort"') == 0
    assert sample(running, 'vllm:request_success_total{engine="0",finished_reason="stop"') == 6
    assert sample(running, "vllm:num_requests_running") == 0
    assert sample(running, "vllm:kv_cache_usage_perc") == 0


async def test_cut_answer_counts_as_length(running):
    """A cut answer has the finish reason ``length``, as with vLLM."""
    await collect(running, 16, 5, limited=True)
    assert sample(running, 'vllm:request_success_total{engine="0",finished_reason="length"') == 1


@pytest.mark.parametrize(
    ("limit", "prompt", "ignore_eos", "expected"),
    [
        (5, 10, False, (5, True)),
        (None, 510, False, (2, True)),
        (300, 10, True, (300, True)),
        (None, 12, True, (500, True)),
    ],
    ids=["max_tokens", "max_model_len", "ignore_eos", "ignore_eos without a limit"],
)
def test_length_is_limited(replica, limit, prompt, ignore_eos, expected):
    """The user's limit and the space in the model's context limit the length."""
    assert replica.length(limit, prompt, ignore_eos=ignore_eos) == expected


def test_lengths_are_spread_around_the_mean(replica):
    """Lengths lie between 0.5 and 1.5 times the mean, and no answer is cut."""
    drawn = [replica.length(None, 10, ignore_eos=False) for _ in range(300)]
    lengths = [length for length, _ in drawn]
    assert (min(lengths), max(lengths)) == (10, 30)
    assert not any(cut for _, cut in drawn)


def test_prompt_that_does_not_fit_is_refused(replica):
    """The engine refuses the prompt before it queues the request."""
    with pytest.raises(ValueError, match="exceeds max_model_len"):
        asyncio.run(collect(replica, PARAMETERS.max_model_len, 1))
