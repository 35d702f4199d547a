"""The load generator sends requests at their time, measures them as a user sees them, and counts every outcome."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.sim.emulator.conftest import JumpingClock
from wva.sim.loadgen.client import ChatClient, open_session
from wva.sim.loadgen.report import ResultTally, table
from wva.sim.loadgen.run import RunLimits, generate

GOOD = (
    'data: {"choices":[{"delta":{"content":"a "}}]}\n\n',
    'data: {"choices":[{"delta":{"content":"b c "}}]}\n\n',
    'data: {"choices":[],"usage":{"completion_tokens":3}}\n\n',
    "data: [DONE]\n\n",
)


@pytest.fixture
async def serve():
    """Return a function that starts a server with a handler and returns its URL."""
    servers = []

    async def start(handler):
        application = web.Application()
        application.add_routes([web.post("/v1/chat/completions", handler)])
        server = TestServer(application)
        await server.start_server()
        servers.append(server)
        return str(server.make_url("/v1"))

    yield start
    for server in servers:
        await server.close()


def streaming(*lines):
    """Return a handler that answers with these pieces."""

    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line.encode())
        return response

    return handler


async def one(url, **more):
    """Send one request."""
    async with open_session(token="", connections=4) as session:
        client = ChatClient(session, url=url, model="m", content_words=5)
        return await client.send(max_tokens=None, **{"timeout_seconds": 30, **more})


async def test_answer_is_measured(serve):
    """The client takes the token count from the server's usage, and measures the first piece and the gaps."""
    result = await one(await serve(streaming(*GOOD)))
    assert (result.failure, result.output_tokens) == ("", 3)
    assert 0 < result.first_token_seconds <= result.seconds
    assert result.inter_token_seconds == pytest.approx((result.seconds - result.first_token_seconds) / 2)


async def test_server_without_usage(serve):
    """Without usage from the server, the load generator counts the pieces."""
    result = await one(await serve(streaming(GOOD[0], GOOD[1], GOOD[3])))
    assert result.output_tokens == 2


async def test_body_and_token(serve):
    """The prompt has as many words as asked for, and the client sends its token as bearer token."""
    seen = {}

    async def handler(request):
        seen.update(await request.json(), authorization=request.headers.get("Authorization"))
        return await streaming(*GOOD)(request)

    async with open_session(token="t", connections=1) as session:
        client = ChatClient(session, url=await serve(handler), model="m", content_words=5)
        await client.send(max_tokens=9, timeout_seconds=30)
    assert seen["authorization"] == "Bearer t"
    assert (seen["model"], seen["max_tokens"], seen["stream"]) == ("m", 9, True)
    assert seen["messages"][0]["content"].split() == ["load"] * 5


async def silent(_):
    """Never answer."""
    await asyncio.Event().wait()


async def overloaded(_):
    """Answer that the server is overloaded."""
    return web.Response(status=503)


@pytest.mark.parametrize(
    ("handler", "failure", "seconds"),
    [
        (overloaded, "HTTP 503", 30),
        (streaming(*GOOD[:2]), "the stream ended early", 30),
        (streaming("data: {\n\n"), "DecodeError", 30),
        (silent, "timeout", 0.05),
    ],
    ids=["status", "early end", "no JSON", "silence"],
)
async def test_failures_are_results(serve, handler, failure, seconds):
    """A failed request is a result whose failure names the reason."""
    result = await one(await serve(handler), timeout_seconds=seconds)
    assert result.failure == failure
    assert result.inter_token_seconds is None


async def test_nobody_listens():
    """A refused connection is a result with a failure, too."""
    assert (await one("http://127.0.0.1:1/v1")).failure == "ClientConnectorError"


async def run_all(url, at_seconds, **limits):
    """Send a whole schedule; return the tally and the seconds of the clock it took."""
    clock, tally = JumpingClock(), ResultTally()
    async with open_session(token="", connections=16) as session:
        client = ChatClient(session, url=url, model="m", content_words=1)
        await generate(client, at_seconds, limits=RunLimits(**limits), clock=clock, tally=tally)
    return tally, clock.seconds - 100.0


async def test_every_request_of_the_schedule_is_sent(serve):
    """The load generator sends each request at its time, and waits for all answers."""
    tally, seconds = await run_all(await serve(streaming(*GOOD)), [0.5, 1.0, 7.0])
    assert (tally.sent, tally.answered, tally.not_sent) == (3, 3, 0)
    assert seconds == pytest.approx(7.0)
    report = tally.report(7.0)
    assert (report.output_tokens, report.failures) == (9, {})


async def test_slow_server_does_not_slow_the_load_down(serve):
    """The load generator waits for no answer before the next request.

    It counts requests above its limit as not sent.
    """
    tally, _ = await run_all(await serve(silent), [1.0, 2.0, 3.0], concurrency=2, timeout_seconds=0.2)
    assert tally.sent + tally.not_sent == 3
    assert tally.sent >= 2
    assert tally.report(3.0).failures == {"timeout": tally.sent}


def test_table_says_what_matters():
    """The table has counts, delays and quantiles, and dashes where nothing was measured."""
    tally = ResultTally(sent=2, not_sent=1, late_seconds=2.5)
    text = table(tally.report(10.0))
    assert "2 requests sent in 10 s, 0 answered, 1 not sent (too many on their way), 0 tokens/s" in text
    assert "time to first token     -    -    -    -" in text
    assert "up to 2.5 s late" in text


async def test_quantiles_are_nearest_rank(serve):
    """The median of one request is that request."""
    tally, _ = await run_all(await serve(streaming(*GOOD)), [0.1])
    latencies = tally.report(1.0).request
    assert latencies.p50 == latencies.p99 == latencies.mean
    assert f"{latencies.p50 * 1000:.0f} ms" in table(tally.report(1.0))
