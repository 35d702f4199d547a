"""Writes are sent only while the guard allows it, so that none is sent after the Lease's deadline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from wva.api.kinds import PODS
from wva.api.meta import Key
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.client import KubeClient

KEY = Key("demo", "a")
POD = {"metadata": {"name": "a", "namespace": "demo"}}
VERBS = ["create", "patch", "update"]


async def write(client: KubeClient, verb: str) -> None:
    """Send a write with this verb."""
    match verb:
        case "create":
            await client.create(PODS, "demo", POD)
        case "patch":
            await client.patch(PODS, KEY, POD)
        case _:
            await client.update(PODS, KEY, POD)


@pytest.mark.parametrize("verb", VERBS)
async def test_refused_write_is_not_sent(server: Any, client: KubeClient, verb: str) -> None:
    """If the guard refuses, every writing verb raises and sends nothing."""
    server.say(POD)
    with pytest.raises(errors.WriteRefused, match="not allowed to write now"):
        await write(client.with_write_guard(lambda: False), verb)
    assert server.received == []


@pytest.mark.parametrize("verb", VERBS)
async def test_allowed_write_is_sent(server: Any, client: KubeClient, verb: str) -> None:
    """If the guard allows it, the write is sent."""
    server.say(POD)
    await write(client.with_write_guard(lambda: True), verb)
    assert len(server.received) == 1


async def test_guard_is_asked_again_when_the_connection_stands(
    server: Any, client: KubeClient, instruments: Instruments
) -> None:
    """A write is stopped if the Lease ends while the connection is opened."""
    server.say(POD)
    answers = iter([True, False])
    with pytest.raises(errors.WriteRefused):
        await client.with_write_guard(lambda: next(answers)).patch(PODS, KEY, POD)
    assert server.received == []
    labels = {"verb": "patch", "resource": "pods", "code": "0"}
    assert instruments.registry.get_sample_value("wva_kubernetes_requests_total", labels) == 1


async def test_guard_is_asked_again_when_the_body_leaves(
    server: Any, client: KubeClient, instruments: Instruments
) -> None:
    """A write is stopped if the Lease ends between headers and body. The headers are sent together with the body."""
    server.say(POD)
    answers = iter([True, True, False])
    with pytest.raises(errors.WriteRefused, match=r"^PATCH "):
        await client.with_write_guard(lambda: next(answers)).patch(PODS, KEY, POD)
    assert server.received == []
    assert next(answers, "asked three times") == "asked three times"
    labels = {"verb": "patch", "resource": "pods", "code": "0"}
    assert instruments.registry.get_sample_value("wva_kubernetes_requests_total", labels) == 1


@pytest.mark.parametrize("verb", ["update", "delete"])
async def test_guard_is_asked_before_the_library_sends_again(server: Any, client: KubeClient, verb: str) -> None:
    """When the server closes a kept connection, aiohttp repeats the request, but not after the Lease has ended."""
    server.say(POD)
    await client.get(PODS, KEY)
    server.received.clear()
    allowed = [True]

    async def hang_up(request: web.Request) -> web.StreamResponse:
        allowed[0] = False
        request.transport.close()
        return web.Response()

    server.answer = hang_up
    with pytest.raises(errors.WriteRefused):
        await write(client.with_write_guard(lambda: allowed[0]), verb)
    assert len(server.received) == 1


async def test_guard_is_asked_after_waiting_for_a_free_connection(
    server: Any, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that waits for a free connection is not sent if the Lease ends meanwhile."""
    monkeypatch.setattr(client._transport.session.connector, "_limit", 1)
    arrived, release, allowed = asyncio.Event(), asyncio.Event(), [True]

    async def wait(_: web.Request) -> web.StreamResponse:
        arrived.set()
        await release.wait()
        return web.json_response(POD)

    server.answer = wait
    reading = asyncio.create_task(client.get(PODS, KEY))
    await arrived.wait()
    writing = asyncio.create_task(client.with_write_guard(lambda: allowed[0]).patch(PODS, KEY, POD))
    for _ in range(20):
        await asyncio.sleep(0)
    allowed[0] = False
    release.set()
    await reading
    with pytest.raises(errors.WriteRefused):
        await writing
    assert [request.method for request in server.received] == ["GET"]


async def test_refusal_leaves_the_connection_pool_usable(server: Any, client: KubeClient) -> None:
    """The client works after refusals at any stage of a request."""
    server.say(POD)
    for _ in range(3):
        answers = iter([True, False])
        with pytest.raises(errors.WriteRefused):
            await client.with_write_guard(lambda answers=answers: next(answers)).update(PODS, KEY, POD)
        answers = iter([True, True, False])
        with pytest.raises(errors.WriteRefused):
            await client.with_write_guard(lambda answers=answers: next(answers)).patch(PODS, KEY, POD)
    assert (await client.get(PODS, KEY)).metadata.name == "a"


async def test_reads_and_reviews_pass_the_guard(server: Any, client: KubeClient) -> None:
    """The guard does not stop reads and reviews."""
    guarded = client.with_write_guard(lambda: False)
    server.say(POD)
    await guarded.get(PODS, KEY)
    await guarded.request_json("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {})
    server.say({"metadata": {}, "items": []})
    await guarded.list(PODS)
    assert len(server.received) == 3


async def test_the_original_client_stays_unguarded(server: Any, client: KubeClient) -> None:
    """The client with the guard shares only the connection. The elector writes its Lease with the original client."""
    server.say(POD)
    client.with_write_guard(lambda: False)
    await client.update(PODS, KEY, POD)
    assert server.last.method == "PUT"
