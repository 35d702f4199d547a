"""Planned faults replace, delay or drop the answers of the server."""

import asyncio

import aiohttp
import pytest

from tests.sim.apiserver.widgets import config_map
from wva.sim.apiserver import matching

PATH = "/api/v1/namespaces/default/configmaps"


async def status(session, path=PATH, method="GET", **more):
    """Return the status of an answer."""
    async with session.request(method, path, **more) as response:
        return response.status


async def test_the_next_requests_are_refused(api, session):
    """The server refuses as many requests as planned, and serves the next. The refused ones change nothing."""
    api.faults.answer(500, times=2)
    body = {"json": {**config_map("a"), "kind": "ConfigMap"}}
    assert [await status(session, method="POST", **body) for _ in range(3)] == [500, 500, 201]
    assert len(api.store.list("configmaps")) == 1


async def test_too_many_requests_say_when_to_come_back(api, session):
    """429 has the header and the Status that clients read."""
    api.faults.answer(429, retry_after_seconds=7)
    async with session.get(PATH) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
        body = await response.json()
    assert (body["reason"], body["code"], body["details"]) == ("TooManyRequests", 429, {"retryAfterSeconds": 7})


async def test_a_proxy_answers_in_plain_text(api, session):
    """The client gets the text of the proxy, without a Status."""
    api.faults.answer(503, text="upstream connect error")
    async with session.get(PATH) as response:
        assert (response.status, response.content_type) == (503, "text/plain")
        assert await response.text() == "upstream connect error"


@pytest.mark.parametrize(("code", "reason"), [(500, "InternalError"), (503, "ServiceUnavailable"), (403, "Forbidden")])
async def test_a_fault_has_the_reason_of_its_code(api, session, code, reason):
    """The Status of a fault has the reason of its HTTP code."""
    api.faults.answer(code)
    async with session.get(PATH) as response:
        assert (await response.json())["reason"] == reason


async def test_a_fault_meets_only_what_it_matches(api, session):
    """Requests that do not match succeed, and the fault stays planned until one matches."""
    api.faults.answer(503, match=matching(verb="patch", resource="configmaps"))
    api.faults.answer(500, match=matching(path="/api/v1/namespaces/default/secrets"))
    api.faults.answer(501, match=matching(resource="widgets.test.example.com", subresource="status"))
    api.store.create("configmaps", config_map("a"))
    assert await status(session) == 200
    patch = {"data": "{}", "headers": {"Content-Type": "application/merge-patch+json"}}
    assert await status(session, f"{PATH}/a", "PATCH", **patch) == 503
    assert await status(session, f"{PATH}/a", "PATCH", **patch) == 200
    assert await status(session, "/api/v1/namespaces/default/secrets") == 500
    assert await status(session, "/apis/test.example.com/v1/namespaces/default/widgets/a") == 404
    assert await status(session, "/apis/test.example.com/v1/namespaces/default/widgets/a/status") == 501


async def test_a_dropped_connection_has_no_answer(api, session):
    """The client is disconnected and nothing is written. The next connection works."""
    api.faults.drop(times=1, match=matching(verb="create"))
    with pytest.raises(aiohttp.ClientConnectionError):
        await session.post(PATH, json={**config_map("a"), "kind": "ConfigMap"})
    assert api.store.list("configmaps") == []
    assert await status(session) == 200


async def test_a_delayed_answer_comes_late_and_right(api, session):
    """After the delay the client gets the right answer."""
    api.faults.delay(0.05)
    loop = asyncio.get_running_loop()
    start = loop.time()
    assert await status(session) == 200
    assert loop.time() - start >= 0.05


async def test_a_fault_without_end_lasts_until_it_is_cleared(api, session):
    """With ``times=None`` every request gets the fault."""
    api.faults.answer(503, times=None)
    assert [await status(session) for _ in range(5)] == [503] * 5
    api.faults.clear()
    assert await status(session) == 200


async def test_a_cache_that_lags_shows_an_old_state(api, session):
    """A lagging cache answers for version 0 and its own, and refuses later ones.

    Without a version the answer is new.
    """
    api.store.create("configmaps", config_map("a"))
    seen = api.store.version
    api.faults.lag()
    api.store.create("configmaps", config_map("b"))

    async def listed(**query):
        async with session.get(PATH, params=query) as response:
            body = await response.json()
            return response.status, [item["metadata"]["name"] for item in body.get("items", [])]

    assert await listed(resourceVersion="0") == (200, ["a"])
    assert await listed(resourceVersion=str(seen), resourceVersionMatch="NotOlderThan") == (200, ["a"])
    assert await listed(resourceVersion=str(seen + 1), resourceVersionMatch="NotOlderThan") == (504, [])
    assert await listed() == (200, ["a", "b"])
    api.faults.catch_up()
    assert await listed(resourceVersion="0") == (200, ["a", "b"])
