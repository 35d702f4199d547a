"""Raw watch streams: split lines, long lines, the idle limit, closed connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from wva.api.kinds import PODS
from wva.instruments import Instruments
from wva.kube import errors, transport
from wva.kube.client import KubeClient


def script(server: Any, *chunks: bytes, hang: bool = False, pause_seconds: float = 0.0) -> asyncio.Event:
    """Answer with these chunks, then end or hang. The event is set when the request is over on the server's side."""
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for chunk in chunks:
                await response.write(chunk)
                await asyncio.sleep(pause_seconds)
            if hang:
                await asyncio.Event().wait()
        finally:
            over.set()
        return response

    server.answer = answer
    return over


async def read(client: KubeClient, *, idle_seconds: float = 5.0) -> list[bytes]:
    """Return all lines of a stream."""
    lines = client.stream(PODS, resource_version="7", timeout_seconds=300, idle_seconds=idle_seconds)
    return [line async for line in lines]


async def test_request_asks_for_a_watch_with_bookmarks(server: Any, client: KubeClient) -> None:
    """The parameters of the watch go into the query."""
    script(server)
    lines = client.stream(
        PODS,
        namespace="demo",
        resource_version="7",
        timeout_seconds=300,
        idle_seconds=5,
        label_selector="app in (a, b)",
        field_selector="spec.nodeName=n",
    )
    assert [line async for line in lines] == []
    assert server.last.path == "/api/v1/namespaces/demo/pods"
    assert server.last.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "300",
        "labelSelector": "app in (a, b)",
        "fieldSelector": "spec.nodeName=n",
    }


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\nc", b"\n"], [b"ab", b"c"]),
        ([b"a\n\n\nb\n"], [b"a", b"b"]),
        ([b"a\nrest"], [b"a", b"rest"]),
        ([b"\n"], []),
        ([], []),
    ],
)
async def test_lines_are_split_wherever_the_chunks_end(
    server: Any, client: KubeClient, chunks: list[bytes], lines: list[bytes]
) -> None:
    """Chunk borders do not matter, empty lines are dropped, and the last line needs no newline."""
    script(server, *chunks, pause_seconds=0.005)
    assert await read(client) == lines


async def test_line_of_five_mebibytes_passes(server: Any, client: KubeClient) -> None:
    """The client accepts longer lines than aiohttp, which stops at about 4 MiB."""
    long = b"x" * (5 * 1024 * 1024)
    script(server, long + b"\nshort\n")
    assert await read(client) == [long, b"short"]


async def test_of_an_endless_line_only_the_beginning_is_kept(
    server: Any, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client cuts a line at the limit (16 MiB, less in this test), and the next line is complete."""
    monkeypatch.setattr(transport, "MAX_LINE_BYTES", 1000)
    script(server, b"x" * 400_000, b"y" * 400_000, b"z\nnext\n")
    assert await read(client) == [b"x" * 1000, b"next"]


async def test_silence_beyond_the_idle_limit_raises(server: Any, client: KubeClient) -> None:
    """A stream that stalls after its first line raises StreamIdle."""
    script(server, b"a\n", hang=True)
    with pytest.raises(errors.StreamIdle, match=r"nothing for 0\.5 s"):
        await read(client, idle_seconds=0.5)


class Trickle:
    """A body whose chunks come one by one, in simulated time."""

    def __init__(self, *chunks: bytes, every_seconds: float) -> None:
        """Wait before each chunk."""
        self._chunks = iter(chunks)
        self._every_seconds = every_seconds

    async def readany(self) -> bytes:
        """Return the next chunk, empty at the end."""
        await asyncio.sleep(self._every_seconds)
        return next(self._chunks, b"")


def lines_of(content: Trickle) -> AsyncGenerator[bytes, None]:
    """Return the lines of a request that is answered with this body, with an idle limit of 70 s."""

    async def answer(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(status=200, content=content, close=lambda: None)

    async def authorize(_: dict[str, str]) -> None:
        pass

    opened = transport.Transport(
        session=SimpleNamespace(request=answer),
        host="http://server",
        authorize=authorize,
        refused=None,
        instruments=Instruments(CollectorRegistry()),
        timeout_seconds=60.0,
    )
    return opened.lines(transport.Call(verb="watch", resource="pods", path="/api/v1/pods"), 70.0)


@pytest.mark.looptime
async def test_every_chunk_renews_the_idle_limit() -> None:
    """A stream may last longer than the idle limit, even without complete lines."""
    content = Trickle(*[b"x"] * 100, b"\n", every_seconds=69.0)
    assert [line async for line in lines_of(content)] == [b"x" * 100]


@pytest.mark.looptime
async def test_idle_limit_is_kept_to_the_second() -> None:
    """The stream ends at the idle limit, not when the next data come."""
    content = Trickle(b"a\n", every_seconds=71.0)
    with pytest.raises(errors.StreamIdle, match=r"GET /api/v1/pods: Idle: nothing for 70 s"):
        await anext(lines_of(content))
    assert asyncio.get_running_loop().time() == pytest.approx(70.0, abs=0.01)


async def test_server_that_never_answers_a_watch_is_unreachable(server: Any, client: KubeClient) -> None:
    """Waiting for the headers is limited, and raises another error than a quiet stream."""

    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.answer = hang
    with pytest.raises(errors.Unreachable) as caught:
        await read(client, idle_seconds=0.1)
    assert not isinstance(caught.value, errors.StreamIdle)


async def test_lost_connection_is_unreachable(server: Any, client: KubeClient) -> None:
    """The reader gets the lines before the break, and then the error."""

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"a\n")
        await asyncio.sleep(0.02)
        assert request.transport is not None
        request.transport.abort()
        return response

    server.answer = cut
    lines = client.stream(PODS, resource_version="7", timeout_seconds=300, idle_seconds=5)
    assert await anext(lines) == b"a"
    with pytest.raises(errors.Unreachable):
        await anext(lines)


async def test_closing_the_generator_closes_the_connection(server: Any, client: KubeClient) -> None:
    """When the reader closes the generator, the connection ends at once on both sides."""
    over = script(server, b"a\n", hang=True)
    lines = client.stream(PODS, resource_version="7", timeout_seconds=300, idle_seconds=5)
    async with aclosing(lines):
        assert await anext(lines) == b"a"
    async with asyncio.timeout(5):
        await over.wait()


async def test_cancellation_passes_through_a_stream(server: Any, client: KubeClient) -> None:
    """A cancelled reader gets CancelledError, and the connection is closed."""
    over = script(server, b"a\n", hang=True)
    started = asyncio.Event()

    async def follow() -> None:
        async for _ in client.stream(PODS, resource_version="7", timeout_seconds=300, idle_seconds=5):
            started.set()

    task = asyncio.create_task(follow())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(5):
        await over.wait()
