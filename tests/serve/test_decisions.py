"""The pages about decisions: who sees which, and what they say."""

from __future__ import annotations

import asyncio
import threading

import aiohttp
import pytest

from tests.builders import NOW, policy, replica, variant
from tests.serve.doubles import Guarded, serving, until
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Recording
from wva.hindsight.recent import RecentCycles
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.serve import decisions
from wva.serve.decisions import DecisionPages
from wva.serve.http import Limits
from wva.serve.pages import metrics_handler


class Site:
    """A server with two cycles of two namespaces, and one client."""

    def __init__(self):
        """Lead."""
        self.elsewhere = ""
        self.guarded = Guarded()
        self.recent = RecentCycles()
        pages = DecisionPages(self.recent, elsewhere=lambda: self.elsewhere, interval=lambda: 15.0)
        self.handler = metrics_handler(self.guarded.instruments.registry, gate=self.guarded.gate, routers=[pages])
        self.allowed = self.guarded.reviewer.allowed
        self.url = ""

    async def fill(self):
        """Keep two cycles; the load rises in the second."""
        for number, kv in enumerate((0.2, 0.79)):
            variants = [variant("a", namespace="one"), variant("b", namespace="two")]
            pods = [replica(kv=kv, namespace="one"), replica("b-0", variant="b", namespace="two")]
            snapshot, now = Snapshot.of(variants, pods), NOW + 15 * number
            decisions = conclude(snapshot, Memory(), policy(), now).decisions
            await self.recent.keep(Recording(now, policy(), Memory(), snapshot, decisions))

    async def get(self, path, *, user="good"):
        """Return the status and the answer, as JSON if it is."""
        headers = {"Authorization": f"Bearer {user}"}
        async with aiohttp.ClientSession() as session, session.get(self.url + path, headers=headers) as response:
            json = response.content_type == "application/json"
            return response.status, await response.json() if json else await response.text()


@pytest.fixture
async def site():
    """Return a site that listens."""
    made = Site()
    await made.fill()
    async with serving(made.handler, instruments=made.guarded.instruments) as server:
        made.url = f"http://127.0.0.1:{server.port}"
        yield made


async def test_a_client_sees_the_decisions_of_its_namespace(site):
    """Who may list the VariantAutoscalings of a namespace sees their decisions, and no others."""
    site.allowed.add(("scraper", "list", "one/"))
    status, page = await site.get("/v1/decisions?namespace=one")
    assert status == 200
    assert [(each["key"]["name"], each["desired"]) for each in page["decisions"]] == [("a", 2)]
    assert page["cycles"] == [NOW, NOW + 15]
    assert (await site.get("/v1/decisions?namespace=two"))[0] == 403
    assert (await site.get("/v1/decisions"))[0] == 403


async def test_a_right_to_all_namespaces_shows_all(site):
    """Without a namespace the page has every decision."""
    site.allowed.add(("scraper", "list", "/"))
    _, page = await site.get("/v1/decisions")
    assert [each["key"]["namespace"] for each in page["decisions"]] == ["one", "two"]


async def test_the_explanation_needs_the_right_to_the_object(site):
    """Who may get the VariantAutoscaling may read why it has its number; the right to another one does not help."""
    assert (await site.get("/v1/explain/one/a", user="stranger"))[0] == 403
    site.allowed.add(("scraper", "get", "one/a"))
    status, page = await site.get("/v1/explain/one/a")
    assert (status, page["desired"], page["reason"]) == (200, 2, "ScaleUp")
    assert page["changes"]["flips"]
    status, text = await site.get("/v1/explain/two/b")
    assert (status, text) == (403, "forbidden: scraper lacks the verb get on these VariantAutoscalings\n")
    assert (await site.get("/v1/explain/one/a", user="bad"))[0] == 401


async def test_an_earlier_cycle_can_be_asked_for(site):
    """``at`` names a time; the last cycle before it answers."""
    site.allowed.add(("scraper", "get", "one/a"))
    _, page = await site.get(f"/v1/explain/one/a?at={NOW + 14}&changes=false")
    assert (page["at"], page["desired"], page["changes"]) == (NOW, 1, None)
    assert (await site.get(f"/v1/explain/one/a?at={NOW - 1}"))[0] == 404
    assert await site.get("/v1/explain/one/a?at=yesterday") == (400, "at: expected seconds since the epoch\n")


async def test_the_decisions_of_an_earlier_cycle_can_be_asked_for(site):
    """They come from the compressed cycle, those of the namespace alone."""
    site.allowed.add(("scraper", "list", "one/"))
    _, page = await site.get(f"/v1/decisions?namespace=one&at={NOW + 14}")
    assert page["at"] == NOW
    assert [(each["key"]["name"], each["desired"]) for each in page["decisions"]] == [("a", 1)]


async def test_what_would_change_an_earlier_number_is_not_told_where_models_share_gpus(site):
    """That needs all models, and only one is unpacked; the notes say so."""
    limited = replace(policy(), enable_limiter=True)
    snapshot = Snapshot.of([variant("a", namespace="one")], [replica(namespace="one", kv=0.2)])
    for number in range(2):
        now = NOW + 30 + 15 * number
        outcome = conclude(snapshot, Memory(), limited, now)
        await site.recent.keep(Recording(now, limited, Memory(), snapshot, outcome.decisions))
    site.allowed.add(("scraper", "get", "one/a"))
    _, earlier = await site.get(f"/v1/explain/one/a?at={NOW + 30}")
    _, newest = await site.get("/v1/explain/one/a")
    assert (earlier["changes"], "models share GPUs" in earlier["notes"][-1]) == (None, True)
    assert newest["changes"] is not None


async def test_who_asks_much_is_told_to_come_again(site, monkeypatch):
    """Four questions of a user may wait. Prometheus reads its page meanwhile."""
    site.allowed |= {("scraper", "get", "one/a"), ("scraper", "get", "/metrics")}
    gate = threading.Event()
    monkeypatch.setattr(decisions, "explanation", lambda _, key, **__: gate.wait(20) and {"variant": str(key)})
    asked = [asyncio.create_task(site.get(f"/v1/explain/one/a?at={NOW + number}")) for number in range(20)]
    done, waiting = await asyncio.wait(asked, timeout=1.0)
    assert {task.result() for task in done} == {(429, "too many questions about decisions wait already\n")}
    assert len(waiting) == 5
    assert (await site.get("/metrics"))[0] == 200
    gate.set()
    assert {(await task)[0] for task in waiting} == {200}


async def test_an_explanation_is_computed_once(site, monkeypatch):
    """Several people ask for the same one."""
    site.allowed.add(("scraper", "get", "one/a"))
    first = await site.get("/v1/explain/one/a")
    monkeypatch.setattr("wva.serve.decisions.explanation", None)
    assert await site.get("/v1/explain/one/a") == first


async def test_a_variant_without_a_decision_is_not_found(site):
    """The right is asked for first: who may not get the object does not learn that it is unknown."""
    assert (await site.get("/v1/explain/one/nowhere", user="stranger"))[0] == 403
    site.allowed.add(("scraper", "get", "one/nowhere"))
    assert await site.get("/v1/explain/one/nowhere") == (404, "the cycle has no decision on one/nowhere\n")


@pytest.mark.parametrize(
    "path", ["/v1/explain/one", "/v1/explain//a", "/v1/explain/one/a/b", "/v1/explain/" + "x" * 600 + "/a"]
)
async def test_a_path_that_names_no_variant_is_unknown(site, path):
    """Such a path needs the right to all paths, as any other unknown one."""
    assert (await site.get(path, user="stranger"))[0] == 403
    site.allowed.add(("scraper", "get", "/-/unknown"))
    assert (await site.get(path))[0] == 404


async def test_a_standby_names_the_leader(site):
    """It has no decisions of its own."""
    site.elsewhere = "wva-1_abc leads"
    site.allowed.add(("scraper", "get", "one/a"))
    assert await site.get("/v1/explain/one/a") == (503, "no decisions here: wva-1_abc leads\n")


async def test_an_answer_that_is_late_does_not_make_room_for_a_second_thread(site, monkeypatch):
    """The client gets 504. The explanation still runs, so the next one waits for its end."""
    site.allowed.add(("scraper", "get", "one/a"))
    running, most, gate, explanation = 0, 0, threading.Event(), decisions.explanation

    def slow(*given, **asked):
        nonlocal running, most
        running += 1
        most = max(most, running)
        gate.wait(20)
        running -= 1
        return explanation(*given, **asked)

    monkeypatch.setattr(decisions, "explanation", slow)
    async with serving(site.handler, limits=Limits(answer_seconds=0.1)) as impatient:
        site.url = f"http://127.0.0.1:{impatient.port}"
        for at in (NOW, NOW + 15, NOW):
            assert (await site.get(f"/v1/explain/one/a?at={at}&changes=false"))[0] == 504
        assert (running, most) == (1, 1)
        gate.set()
        await until(lambda: running == 0)
        status, found = await site.get(f"/v1/explain/one/a?at={NOW + 15}&changes=false")
        assert (status, found["variant"]) == (200, "one/a")
        assert most == 1
