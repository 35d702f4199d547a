"""The HTTP client of Prometheus: requests, answers, retries and the kinds of failures.

TLS and tokens are in test_authentication.py.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from email.utils import formatdate

import pytest
from aiohttp import web

from tests.collect.doubles import NOW
from tests.prometheus.prometheus_server import status, vector
from wva.prometheus import client as module
from wva.prometheus.answers import ErrorKind, Labels, PrometheusError
from wva.prometheus.client import CLOCK_TOLERANCE_SECONDS, PrometheusClient
from wva.prometheus.settings import PrometheusSettings


@pytest.fixture
async def client(server, clock, instruments):
    """Return a client of the server."""
    settings = PrometheusSettings(server.url + "/", allow_http=True)
    async with PrometheusClient(settings, clock=clock, instruments=instruments) as opened:
        yield opened


async def _ask(client):
    return await client.query("up", name="kv_cache_usage", at=NOW)


async def _failure(client):
    with pytest.raises(PrometheusError) as caught:
        await _ask(client)
    return caught.value


async def test_a_query_is_posted_with_its_evaluation_time(client, server):
    """Query and time are in a form, because URLs are limited in length."""
    await client.query('sum(x{a="b|c"})', name="kv_cache_usage", at=1234.5678)
    (request,) = server.requests
    assert (request["method"], request["path"]) == ("POST", "/api/v1/query")
    assert request["form"] == {"query": 'sum(x{a="b|c"})', "time": "1234.568"}


async def test_an_instant_vector_is_decoded(client, server):
    """Labels and values are text."""
    server.plan = [vector(({"pod": "p", "model_name": "m"}, "NaN"), ({}, "0.5"))]
    answer = await _ask(client)
    assert [(series.metric, series.value[1]) for series in answer.series] == [
        (Labels(pod="p", model_name="m"), "NaN"),
        (Labels(), "0.5"),
    ]


async def test_warnings_are_kept(client, server):
    """A federated Prometheus warns that its answer is partial."""
    body = json.loads(vector())
    server.plan = [json.dumps(body | {"warnings": ["a store is away"]})]
    assert (await _ask(client)).warnings == ("a store is away",)


@pytest.mark.parametrize(("ahead", "told"), [(62, "ahead of"), (-62, "behind"), (58, ""), (-58, "")])
async def test_an_answer_of_another_time_is_an_error(server, clock, instruments, ahead, told):
    """It is not asked for again, and the message says whose clock differs by how much."""
    server.plan = [status(200, vector(), Date=formatdate(NOW - ahead, usegmt=True))]
    settings = PrometheusSettings(server.url, allow_http=True)
    tolerance = {"clock_tolerance_seconds": CLOCK_TOLERANCE_SECONDS}
    async with PrometheusClient(settings, clock=clock, instruments=instruments, **tolerance) as client:
        if not told:
            assert (await _ask(client)).series == ()
            return
        failure = await _failure(client)
    assert failure.kind is ErrorKind.CLOCK
    assert f" s {told} the clock of {server.url}, at most 60 s" in failure.message
    assert len(server.requests) == 1


@pytest.mark.parametrize("date", ["soon", "9" * 5_000, "Thu, 01 Jan 99999 00:00:00 GMT", ""])
async def test_an_answer_without_a_usable_date_is_believed(server, clock, instruments, date):
    """A proxy may take the header away, or write anything into it."""
    server.plan = [status(200, vector(), Date=date)]
    settings = PrometheusSettings(server.url, allow_http=True)
    async with PrometheusClient(settings, clock=clock, instruments=instruments, clock_tolerance_seconds=60.0) as client:
        assert (await _ask(client)).series == ()


async def test_a_base_url_may_have_a_path(server, clock, instruments):
    """A proxy may serve Prometheus under a path."""
    settings = PrometheusSettings(server.url + "/prometheus", allow_http=True)
    async with PrometheusClient(settings, clock=clock, instruments=instruments) as client:
        await _ask(client)
    assert server.requests[0]["path"] == "/prometheus/api/v1/query"


@pytest.mark.parametrize(
    "body",
    [
        '{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}',
        '{"status":"success","data":{"resultType":"string","result":[1,"x"]}}',
        '{"status":"success","data":{"resultType":"matrix","result":[]}}',
        '{"status":"success"}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":1},"value":[1,"2"]}]}}',
        '{"status":"success","data":{"resultType":"vector","result":{}}}',
        "<html>not Prometheus</html>",
        "",
        "[" * 100_000,
        '{"status":"success","data":{"resultType":"vector","result":' + "[" * 100_000,
        '{"status":"success","other":' + '{"a":' * 100_000,
    ],
)
async def test_an_answer_that_is_no_vector_is_malformed(client, server, body):
    """The queries of WVA ask for vectors only; the client does not retry."""
    server.plan = [body]
    assert (await _failure(client)).kind is ErrorKind.MALFORMED
    assert len(server.requests) == 1


async def test_a_bad_query_is_not_retried(client, server, clock):
    """Prometheus refuses such a query each time; the error keeps the text of the answer."""
    server.plan = [status(400, '{"status":"error","errorType":"bad_data","error":"parse error"}')]
    failure = await _failure(client)
    assert failure.kind is ErrorKind.BAD_QUERY
    assert "bad_data: parse error" in failure.message
    assert (len(server.requests), clock.pauses) == (1, [])


@pytest.mark.parametrize("code", [401, 403])
async def test_a_refused_token_is_not_retried(client, server, code):
    """The error has a kind of its own, since its remedy is a valid token."""
    server.plan = [status(code, "no")]
    assert (await _failure(client)).kind is ErrorKind.UNAUTHORIZED
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [413, 422])
async def test_a_query_that_finds_too_much_is_told_apart(client, server, clock, code):
    """The query is valid; one of its namespaces may have too many samples."""
    server.plan = [status(code, '{"status":"error","errorType":"execution","error":"too many samples"}')]
    failure = await _failure(client)
    assert (failure.kind, len(server.requests), clock.pauses) == (ErrorKind.EXECUTION, 1, [])
    assert "execution: too many samples" in failure.message


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (404, ErrorKind.REFUSED),
        (429, ErrorKind.REFUSED),
        (408, ErrorKind.SERVER),
        (500, ErrorKind.SERVER),
        (503, ErrorKind.SERVER),
    ],
)
async def test_a_server_error_is_retried_with_growing_pauses(client, server, clock, code, kind):
    """After three pauses with at most ten per cent of jitter the query fails."""
    server.plan = [status(code, "later")]
    failure = await _failure(client)
    assert failure.kind is kind
    assert len(server.requests) == 4
    for pause, base in zip(clock.pauses, (0.5, 1.0, 2.0), strict=True):
        assert base <= pause <= base * 1.1


async def test_an_error_with_status_200_is_a_server_error(client, server):
    """Some proxies change the status, so the client reads the error from the body."""
    server.plan = ['{"status":"error","errorType":"timeout","error":"query timed out"}']
    failure = await _failure(client)
    assert failure.kind is ErrorKind.SERVER
    assert "timeout: query timed out" in failure.message


async def test_proxy_variables_are_ignored(client, server, monkeypatch):
    """The client sends the token to the configured host only."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await _ask(client)
    assert len(server.requests) == 1


async def test_a_retry_that_succeeds_is_a_success(client, server, metric):
    """The query is counted once, as a success, although its first attempt failed."""
    server.plan = [status(503), vector(({}, "1"))]
    assert len((await _ask(client)).series) == 1
    assert metric("wva_prometheus_queries_total", query="kv_cache_usage", result="success") == 1
    assert metric("wva_prometheus_query_duration_seconds_count") == 1


async def test_an_outage_is_unreachable(client, server, clock, metric):
    """The client retries a refused connection, then the error names the address."""
    url = server.url
    await server.close()
    failure = await _failure(client)
    assert failure.kind is ErrorKind.UNREACHABLE
    assert url in failure.message
    assert len(clock.pauses) == 3
    assert metric("wva_prometheus_queries_total", query="kv_cache_usage", result="error") == 1


async def test_a_dropped_connection_is_retried(client, server):
    """The client retries if the connection breaks in the middle of an answer."""

    async def drop(request):
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"status"')
        request.transport.abort()
        return response

    server.plan = [drop, vector()]
    await _ask(client)
    assert len(server.requests) == 2


async def test_a_slow_answer_is_a_timeout(client, server, monkeypatch, metric):
    """The time limit is for the whole query with its retries."""
    monkeypatch.setattr(module, "QUERY_TIMEOUT_SECONDS", 1.5)
    release = asyncio.Event()

    async def hang(_):
        await release.wait()
        return web.Response(text=vector())

    server.plan = [status(500, "first"), hang]
    failure = await _failure(client)
    release.set()
    assert failure.kind is ErrorKind.TIMEOUT
    assert "within 1.5 s" in failure.message
    assert "answered 500: first" in failure.message
    assert metric("wva_prometheus_queries_total", query="kv_cache_usage", result="timeout") == 1


async def test_cancellation_is_passed_on(client, server):
    """Stopping the controller in the middle of a query is no failure of Prometheus."""
    arrived, release = asyncio.Event(), asyncio.Event()

    async def hang(_):
        arrived.set()
        await release.wait()
        return web.Response(text=vector())

    server.plan = [hang]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_ask(client))
        await arrived.wait()
        task.cancel()
    release.set()
    assert task.cancelled()


async def test_an_oversized_answer_is_refused_while_reading(client, server, monkeypatch):
    """The client stops at the size limit, also if the answer is chunked and has no length."""
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1024 * 1024)
    sent = []

    async def flood(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b" " * 1024 * 1024)
            sent.append(1)
        return response

    server.plan = [flood]
    failure = await _failure(client)
    assert failure.kind is ErrorKind.MALFORMED
    assert "larger than 1 MiB" in failure.message
    assert len(sent) < 1000


async def test_a_compressed_bomb_is_refused(client, server, monkeypatch):
    """The size limit is that of the unpacked answer."""
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1024 * 1024)
    body = gzip.compress(b" " * (20 * 1024 * 1024))

    async def bomb(_):
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    server.plan = [bomb]
    assert (await _failure(client)).kind in {ErrorKind.MALFORMED, ErrorKind.UNREACHABLE}


async def test_redirects_are_not_followed(client, server):
    """The client must not send the token to another host."""
    server.plan = [status(302, Location="http://127.0.0.1:1/")]
    failure = await _failure(client)
    assert "redirects" in failure.message
    assert len(server.requests) == 1


async def test_an_error_page_is_shortened_into_one_line(client, server):
    """The HTML page of a proxy would be too long for a condition message."""
    server.plan = [status(400, "<html>\n" + "x" * 100_000)]
    failure = await _failure(client)
    assert len(failure.message) < 500
    assert "\n" not in failure.message


async def test_use_outside_of_the_context_is_a_programming_error(server, clock, instruments):
    """The client raises RuntimeError, so that the mistake does not look like an outage."""
    client = PrometheusClient(PrometheusSettings(server.url, allow_http=True), clock=clock, instruments=instruments)
    with pytest.raises(RuntimeError, match="outside"):
        await _ask(client)


async def test_a_range_is_asked_for_and_decoded(client, server):
    """Start, end and step are in the form; labels and points arrive as text."""
    points = [[1_700_000_000.0, "1"], [1_700_000_030.0, "NaN"]]
    data = {"resultType": "matrix", "result": [{"metric": {"le": "0.5", "other": "x"}, "values": points}]}
    server.plan = [json.dumps({"status": "success", "data": data})]
    (series,) = await client.query_range(
        "up", name="history", start=NOW, end=NOW + 30, step_seconds=30, timeout_seconds=5
    )
    assert (series.metric, series.values[1]) == ({"le": "0.5", "other": "x"}, (1_700_000_030.0, "NaN"))
    (request,) = server.requests
    assert request["path"] == "/api/v1/query_range"
    assert request["form"] == {"query": "up", "start": f"{NOW:.3f}", "end": f"{NOW + 30:.3f}", "step": "30.000"}


async def test_a_vector_is_no_answer_to_a_range(client, server):
    """The client refuses a vector as the answer to a range query."""
    server.plan = [vector()]
    with pytest.raises(PrometheusError, match="answered vector instead of a matrix") as caught:
        await client.query_range("up", name="history", start=NOW, end=NOW, step_seconds=30, timeout_seconds=5)
    assert caught.value.kind is ErrorKind.MALFORMED


def _takes(*methods, code=405):
    """Return a planned answer of a server that takes these methods only."""

    async def answer(request):
        taken = request.method in methods
        return web.Response(status=200 if taken else code, text=vector() if taken else "no", content_type="text/plain")

    return answer


@pytest.mark.parametrize("code", [405, 501])
async def test_a_server_that_takes_no_post_gets_get(client, server, output, code):
    """The client remembers it, so that each further query is one request."""
    server.plan = [_takes("GET", code=code)]
    for _ in range(2):
        await client.query('sum(x{a="b|c"}) + 1', name="kv_cache_usage", at=1234.5)
    assert [request["method"] for request in server.requests] == ["POST", "GET", "GET"]
    assert server.requests[-1]["parameters"] == [("query", 'sum(x{a="b|c"}) + 1'), ("time", "1234.500")]
    assert server.requests[-1]["form"] == {}
    (line,) = [line for line in output() if line["event"] == "query_method_changed"]
    assert (line["method"], line["refused"]) == ("GET", "POST")


async def test_a_server_that_takes_no_get_any_more_gets_post(client, server):
    """A proxy in front of the server may be replaced."""
    for taken, asked in (("GET", ["POST", "GET"]), ("POST", ["GET", "POST"]), ("POST", ["POST"])):
        server.plan, server.requests = [_takes(taken)], []
        await _ask(client)
        assert [request["method"] for request in server.requests] == asked


async def test_a_server_that_takes_neither_method_is_asked_again_later(client, server):
    """The path may be wrong, or the proxy not ready: this is no answer about the query."""
    server.plan = [_takes()]
    failure = await _failure(client)
    assert (failure.kind, failure.message) == (ErrorKind.REFUSED, f"{server.url}/ answered 405: no")
    assert [request["method"] for request in server.requests] == ["POST", "GET"] * 4


async def test_a_query_that_is_too_long_for_get_is_told_apart(client, server):
    """The URL is bounded. A query about fewer namespaces may be short enough, so the kind is that of too much."""
    server.plan = [_takes("GET")]
    await client.query("up", name="up", at=NOW)
    with pytest.raises(PrometheusError, match=r"too long for GET: its URL would have 90,0\d\d characters") as caught:
        await client.query("x" * 90_000, name="up", at=NOW)
    assert caught.value.kind is ErrorKind.EXECUTION
    assert [request["method"] for request in server.requests] == ["POST", "GET", "POST"]
    server.plan = [_takes("POST", "GET")]
    await client.query("x" * 90_000, name="up", at=NOW)
    assert server.requests[-1]["method"] == "POST"
