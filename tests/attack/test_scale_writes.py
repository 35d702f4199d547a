"""The API server refuses the writes of direct actuation to the tenant's targets, whatever their kind."""

from __future__ import annotations

import asyncio

import pytest

from tests.app.stage import until
from tests.attack.direct import ENVIRONMENT, NEIGHBOUR_IS_WRITTEN, resource_of, target, told_by_all, written
from tests.attack.harness import Attack, ExpectedCondition, Says, survive
from tests.attack.world import TENANT
from tests.rows import by_day
from wva.sim.apiserver import matching

LASTS_SECONDS = 0.8
MOST_TRIES = 12
"""Of one variant while an attack lasts: pauses that double from 5 ms on make eight in a second."""


def writes(kind):
    """Return what fits the writes to the scale of the tenant's targets."""
    resource = resource_of(kind)
    path = f"/apis/{resource.api_version}/namespaces/{TENANT}/"
    return matching(verb="patch", resource=resource.name, subresource="scale", path=path)


def refusal(name, status, *, kind="Deployment", texts=(), most=MOST_TRIES, **answer):
    """Return an attack that refuses each write for a while and then no more; ``texts`` are the answers, one each."""
    fits = writes(kind)

    def before(world):
        if kind != "Deployment":
            target(world, kind)
        written(world, kind)
        for text in texts:
            world.api.faults.answer(status, match=fits, text=text, **answer)
        world.api.faults.answer(status, times=None, match=fits, **answer)

    async def during(world):
        await asyncio.sleep(LASTS_SECONDS)
        await until(lambda: told_by_all(world, "ActuationFailed"), seconds=5)
        world.tries = sum(map(fits, world.api.requests.entries))
        world.api.faults.clear()

    shows = (
        NEIGHBOUR_IS_WRITTEN,
        Says(f"at most {most} writes were tried", lambda world: 1 <= world.tries <= most),
        ExpectedCondition("Actuated", "True", "NumberWritten"),
    )
    return Attack(f"{name}_of_a_{kind}", before=before, during=during, shows=shows, environment=ENVIRONMENT)


ATTACKS = [
    *(
        refusal(f"{status}_on_each_write", status, kind=kind)
        for kind in ("Deployment", "LeaderWorkerSet")
        for status in (409, 422, 429, 500)
    ),
    refusal("500_on_each_write", 500, kind="StatefulSet"),
    refusal("503_in_ever_new_words", 503, texts=[f"request {number} failed" for number in range(3000)]),
    refusal("429_that_asks_for_a_second", 429, most=2, retry_after_seconds=1),
    refusal("429_that_asks_for_a_thousand_years", 429, retry_after_seconds=10**10),
    refusal("429_that_asks_for_what_is_no_number", 429, retry_after_seconds="NaN"),
]


BY_DAY = (
    "500_on_each_write_of_a_StatefulSet",
    "409_on_each_write_of_a_LeaderWorkerSet",
    "429_that_asks_for_a_thousand_years_of_a_Deployment",
    "503_in_ever_new_words_of_a_Deployment",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_a_refused_write_is_told_and_tried_again_in_time(world, attack):
    """The pauses grow, a condition, an event and a metric tell the tenant, and the neighbour's number is written."""
    await survive(world, attack)
