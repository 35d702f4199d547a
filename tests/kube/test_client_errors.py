"""Every failed request raises one of the client's exceptions, with a text that says what was attempted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from aiohttp import web

from wva.api.kinds import PODS
from wva.api.meta import Key
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.client import KubeClient
from wva.targets import DEPLOYMENTS

KEY = Key("demo", "a")


def status(code: int, reason: str, message: str = "scripted") -> dict[str, Any]:
    """Return a Status as API servers send it."""
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.ApiError),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (410, "Gone", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.Unavailable),
        (503, "ServiceUnavailable", errors.Unavailable),
        (504, "Timeout", errors.Unavailable),
    ],
)
async def test_status_becomes_its_class(
    server: Any, client: KubeClient, code: int, reason: str, expected: type[errors.ApiError]
) -> None:
    """The HTTP status decides, except where the reason tells two meanings of one status apart."""
    server.say(status(code, reason), status=code)
    with pytest.raises(errors.ApiError) as caught:
        await client.get(PODS, KEY)
    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.reason) == (code, reason)
    assert str(caught.value) == f"GET /api/v1/namespaces/demo/pods/a: {code} {reason}: scripted"


async def test_plain_text_of_a_load_balancer_is_an_error(server: Any, client: KubeClient) -> None:
    """A body that is no Status is in the message, shortened to one line."""
    server.say(b"upstream connect error\n" + b"x" * 1000, status=503)
    with pytest.raises(errors.Unavailable, match=r"503: upstream connect error x+\.\.\.$") as caught:
        await client.list(PODS)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("Fri, 31 Dec 2027 23:59:59 GMT", None), ("", None)])
async def test_retry_after_is_read(server: Any, client: KubeClient, header: str, seconds: float | None) -> None:
    """Seconds are used, and all other values are ignored."""
    server.say(status(429, "TooManyRequests"), status=429, headers={"Retry-After": header})
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.list(PODS)
    assert caught.value.retry_after_seconds == seconds


@pytest.mark.parametrize(("patience", "refusals", "asked"), [(5.0, 2, 3), (5.0, 99, 4), (0.0, 99, 1)])
async def test_a_read_waits_for_a_busy_server_as_long_as_its_patience_lasts(
    server: Any, kubeconfig: Any, connect: Any, monkeypatch: Any, patience: float, refusals: int, asked: int
) -> None:
    """An API server refuses reads of a kind for a second after its definition has changed. A write is sent once."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def answer(_: web.Request) -> web.StreamResponse:
        if len(server.received) > refusals:
            return web.json_response({"kind": "PodList", "metadata": {}, "items": []})
        return web.json_response(status(429, "TooManyRequests"), status=429, headers={"Retry-After": "1"})

    server.answer = answer
    monkeypatch.setattr("wva.kube.transport.asyncio.sleep", sleep)
    monkeypatch.setattr("wva.kube.backoff.Random.uniform", lambda *_: 1.5)
    kubeconfig(server.url)
    async with connect(patience_seconds=patience) as client:
        try:
            await client.list(PODS)
        except errors.TooManyRequests:
            assert refusals > asked
        assert len(server.received) == asked
        assert waits == [1.5] * (asked - 1)
        server.say(status(429, "TooManyRequests"), status=429)
        with pytest.raises(errors.TooManyRequests):
            await client.request_json("POST", "/apis", {})
        assert len(server.received) == asked + 1


@pytest.mark.parametrize("asked", [-1, 3601, 10**400, 1e308, 0.5, "7 s", [7], None])
def test_a_pause_in_the_body_is_read_as_in_the_header(asked: Any) -> None:
    """Without a header the detail counts, and one that cannot be is ignored as well."""
    body = msgspec.json.encode(status(429, "TooManyRequests") | {"details": {"retryAfterSeconds": 7}})
    assert errors.from_status(429, body, attempted="GET /").retry_after_seconds == 7
    body = json.dumps(status(429, "TooManyRequests") | {"details": {"retryAfterSeconds": asked}}).encode()
    refused = errors.from_status(429, body, attempted="GET /")
    assert refused.retry_after_seconds is None
    assert (refused.reason, refused.message) == ("TooManyRequests", "scripted")


async def test_refused_connection_is_unreachable(
    client: KubeClient, kubeconfig: Any, connect: Any, unused_port: int, instruments: Instruments
) -> None:
    """A request without an answer has status 0, and is counted with code 0."""
    kubeconfig(f"http://127.0.0.1:{unused_port}")
    async with connect() as lonely:
        with pytest.raises(errors.Unreachable, match="GET /version") as caught:
            await lonely.request_json("GET", "/version")
    assert caught.value.status == 0
    labels = {"verb": "get", "resource": "raw", "code": "0"}
    assert instruments.registry.get_sample_value("wva_kubernetes_requests_total", labels) == 1
    assert client.host != lonely.host


@pytest.fixture
def unused_port() -> int:
    """Return a port on which no process listens: 1 is reserved and needs privileges to be opened."""
    return 1


async def test_silent_server_is_unreachable(server: Any, kubeconfig: Any, connect: Any) -> None:
    """A request without an answer ends after the time limit."""

    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.answer = hang
    kubeconfig(server.url)
    async with connect(timeout_seconds=0.1) as impatient:
        with pytest.raises(errors.Unreachable, match=r"Timeout: no answer within 0\.1 s"):
            await impatient.get(PODS, KEY)


async def test_body_that_stalls_is_unreachable(server: Any, kubeconfig: Any, connect: Any) -> None:
    """The time limit includes the body."""

    async def stall(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"items":')
        await asyncio.Event().wait()
        raise AssertionError

    server.answer = stall
    kubeconfig(server.url)
    async with connect(timeout_seconds=0.1) as impatient:
        with pytest.raises(errors.Unreachable):
            await impatient.list(PODS)


async def test_connection_cut_in_the_body_is_unreachable(server: Any, client: KubeClient) -> None:
    """An incomplete body is an error."""

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"metadata":')
        assert request.transport is not None
        request.transport.abort()
        return response

    server.answer = cut
    with pytest.raises(errors.Unreachable):
        await client.list(PODS)


@pytest.mark.parametrize("body", [b"<html>login</html>", b'{"metadata":"no"}', b""])
async def test_success_with_a_foreign_body_is_undecodable(server: Any, client: KubeClient, body: bytes) -> None:
    """A 200 with another body, such as a login page, raises Undecodable."""
    server.say(body)
    with pytest.raises(errors.Undecodable):
        await client.get(DEPLOYMENTS, KEY)
    with pytest.raises(errors.Undecodable):
        await client.list(PODS)


async def test_redirects_are_not_followed(server: Any, client: KubeClient) -> None:
    """The client does not send its token to another address."""
    server.say(b"", status=302, headers={"Location": f"{server.url}/elsewhere"})
    with pytest.raises(errors.ApiError) as caught:
        await client.get(PODS, KEY)
    assert caught.value.status == 302
    assert len(server.received) == 1


async def test_object_without_name_is_never_asked_for(server: Any, client: KubeClient) -> None:
    """A GET with an empty name would list the collection, so the client refuses it."""
    with pytest.raises(ValueError, match="needs a name"):
        await client.get(PODS, Key("demo", ""))
    assert server.received == []


async def test_requests_are_counted_by_verb_resource_and_code(
    server: Any, client: KubeClient, instruments: Instruments
) -> None:
    """Each request is counted once."""
    server.say(status(404, "NotFound"), status=404)
    with pytest.raises(errors.NotFound):
        await client.get(DEPLOYMENTS, KEY)
    labels = {"verb": "get", "resource": "deployments.apps", "code": "404"}
    assert instruments.registry.get_sample_value("wva_kubernetes_requests_total", labels) == 1


async def test_error_of_a_watch_is_read_from_its_status(server: Any, client: KubeClient) -> None:
    """A watch that is answered with 403 raises like any other call and yields nothing."""
    server.say(status(403, "Forbidden"), status=403)
    lines = client.stream(PODS, resource_version="1", timeout_seconds=300, idle_seconds=5)
    with pytest.raises(errors.Forbidden):
        await anext(lines)


async def test_a_server_that_hangs_is_found_out_by_a_short_question(server: Any, client: KubeClient) -> None:
    """Any answer will do, a refusal as well; none within the time is an error."""
    server.say(status(403, "Forbidden"), status=403)
    await client.greet(5.0)

    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.answer = hang
    with pytest.raises(errors.Unreachable, match=r"GET /version: Timeout: no answer within 0\.1 s"):
        await client.greet(0.1)


async def test_a_page_for_a_browser_is_called_that(server: Any, client: KubeClient) -> None:
    """A proxy shows its login with status 200."""
    server.say(b"<html><form>login</form></html>", status=200)
    with pytest.raises(errors.Undecodable, match="a page for a browser in place of JSON"):
        await client.list(PODS)
    with pytest.raises(errors.Undecodable, match="a page for a browser in place of JSON"):
        await client.get(DEPLOYMENTS, KEY)
