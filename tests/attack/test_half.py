"""Prometheus answers some of the queries of a cycle and fails on the others: one of them, or a changing half."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from aiohttp import web

from tests.app.stage import until
from tests.attack.world import VICTIM, page
from tests.rows import by_day
from wva.collect.queries import ENGINE_COUNTERS, KV_CACHE_USAGE, QUEUE_LENGTH, SCHEDULER_QUEUE
from wva.collect.request_counts import REQUEST_COUNTS

SIGNS = {
    KV_CACHE_USAGE: '"signal", "dormant"',
    QUEUE_LENGTH: "(max_over_time(vllm:num_requests_waiting{",
    ENGINE_COUNTERS: '"signal", "gap_seconds"',
    SCHEDULER_QUEUE: '"signal", "bytes"',
    REQUEST_COUNTS: '"signal", "covered"',
}
"""What only the text of this query has."""
WARNED = "a_warning_of_a_store_that_is_away"
TO_ZERO = "wva-model-scale-to-zero-config"


async def hang():
    """Answer too late."""
    await asyncio.sleep(60)


def refuses(status, text='{"status":"error","errorType":"execution","error":"no"}'):
    """Return an answer with a status."""
    return lambda: web.Response(status=status, text=text, content_type="application/json")


FAILURES = {
    "no_answer": hang,
    "422": refuses(422),
    "503": refuses(503, "<html>"),
    "half_a_json": lambda: b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"namespace":"ns"',
    "an_error_of_200": refuses(200),
    WARNED: lambda: {
        "status": "success",
        "data": {"resultType": "vector", "result": []},
        "warnings": ["a store is away"],
    },
}


class Looked:
    """The victim's numbers of each moment."""

    def __init__(self, world):
        """Have looked at none."""
        self.world, self.numbers = world, set()

    async def forever(self):
        """Look until cancelled."""
        while True:
            self.numbers.add(self.world.decision_of("va", VICTIM).desired)
            await asyncio.sleep(0.005)


@pytest.fixture
def shown(world):
    """Return what the victim's pods report; its queries are not asked again after pauses, and do not take long."""
    world.set("wva.prometheus.client._RETRY_PAUSES_SECONDS", (0.01,))
    world.set("wva.prometheus.client.QUERY_TIMEOUT_SECONDS", 0.15)
    world.victim()
    found = {"usage": 0.5, "running": 1}
    world.pages[VICTIM, "d"] = lambda _: page(**found)
    return found


async def looked_at(world, during):
    """Run the controller, then ``during``, and return the numbers from before until its end."""
    await world.scrape()
    async with world.controller(interval="30ms", PROMETHEUS_BASE_URL=world.url):
        await until(lambda: world.decision_of("va", VICTIM) and not world.decision_of("va", VICTIM).held, seconds=10)
        looked = Looked(world)
        task = asyncio.create_task(looked.forever())
        await during()
        task.cancel()
        assert world.metric("wva_cycles_total", result="error") == 0
    return looked.numbers


def told(world, type_, contains):
    """Tell whether a condition of the victim is False and its message has a text."""
    found = world.condition(type_, "va", VICTIM)
    return found is not None and found["status"] == "False" and contains in found["message"]


def fails(world, name, failure):
    """Let one query fail from now on."""
    world.meddle(lambda query, answer: FAILURES[failure]() if SIGNS[name] in query else answer)


@pytest.mark.parametrize("failure", by_day(list(FAILURES), ["no_answer", "an_error_of_200", WARNED]))
@pytest.mark.parametrize("name", [KV_CACHE_USAGE, QUEUE_LENGTH])
async def test_without_one_essential_query_nothing_moves(world, shown, name, failure):
    """The other says that the model is idle, so it would shrink; or that it is full, so it would grow."""

    async def during():
        fails(world, name, failure)
        await until(lambda: told(world, "OptimizationReady", ""), seconds=10)
        await until(lambda: world.events("DesiredReplicasHeld"), seconds=10)
        for usage, running in ((0.0, 0), (0.99, 5)):
            shown.update(usage=usage, running=running)
            await world.scrape()
            goal = world.cycle_count() + 2
            await until(lambda goal=goal: world.cycle_count() >= goal, seconds=20)

    numbers = await looked_at(world, during)
    # An answer with a warning is one, though an empty one: nothing shrinks, and what is full by the KV cache may grow.
    assert min(numbers) == 2
    assert numbers == {2} or (name == QUEUE_LENGTH and failure == WARNED)


@pytest.mark.parametrize("failure", by_day(["422", "an_error_of_200"], ["422"]))
@pytest.mark.parametrize("name", [ENGINE_COUNTERS, SCHEDULER_QUEUE])
@pytest.mark.usefixtures("shown")
async def test_without_another_query_the_number_stays_right(world, name, failure):
    """The condition names the query."""

    async def during():
        fails(world, name, failure)
        await until(lambda: told(world, "QueriesAnswered", f"query {name}: "), seconds=10)
        goal = world.cycle_count() + 2
        await until(lambda: world.cycle_count() >= goal, seconds=20)

    assert await looked_at(world, during) == {2}


@pytest.mark.parametrize("failure", ["422", WARNED])
async def test_without_the_counts_of_requests_nothing_goes_to_zero(world, shown, failure):
    """The model is idle and may go to zero."""
    shown.update(usage=0.0, running=0)
    world.config_map(TO_ZERO, {"default": "enable_scale_to_zero: true\nretention_period: 10s"})
    fails(world, REQUEST_COUNTS, failure)

    async def during():
        await until(lambda: told(world, "QueriesAnswered", f"query {REQUEST_COUNTS}: "), seconds=10)
        goal = world.cycle_count() + 2
        await until(lambda: world.cycle_count() >= goal, seconds=20)

    assert 0 not in await looked_at(world, during)


@pytest.mark.parametrize("seed", by_day(range(2), "0"))
@pytest.mark.usefixtures("shown")
async def test_a_changing_half_of_the_answers_moves_nothing(world, seed):
    """Each query fails at random, each time in another way. At a steady load the number is steady."""
    random = Random(seed)
    ways = [FAILURES[name] for name in sorted(FAILURES) if name != "no_answer"]

    async def during():
        world.meddle(lambda _, answer: random.choice(ways)() if random.random() < 0.5 else answer)
        goal = world.cycle_count() + 10
        await until(lambda: world.cycle_count() >= goal, seconds=20)

    assert await looked_at(world, during) == {2}
