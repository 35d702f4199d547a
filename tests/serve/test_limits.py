"""The limits of a server: no client can block it, fill its memory, or take all its connections."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.serve.doubles import exchange, ok, rest, serving, until
from wva.instruments import Instruments
from wva.serve.http import EventStream, Limits

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Guest:
    """A server with its metrics, and raw connections to it."""

    def __init__(self, server, instruments):
        """Take a server that listens."""
        self.server = server
        self._instruments = instruments

    def closed(self, cause):
        """Return how many connections the server ended for a cause."""
        labels = {"server": "metrics", "cause": cause}
        return self._instruments.registry.get_sample_value("wva_endpoint_connections_closed_total", labels) or 0

    def answered(self, code):
        """Return how many requests were answered with a status."""
        labels = {"server": "metrics", "code": code}
        return self._instruments.registry.get_sample_value("wva_endpoint_requests_total", labels) or 0

    def open(self):
        """Return how many connections the metric shows."""
        return self._instruments.registry.get_sample_value("wva_endpoint_connections", {"server": "metrics"})

    async def connect(self):
        """Open a connection."""
        return await asyncio.open_connection("127.0.0.1", self.server.port)

    async def is_up(self):
        """Whether an ordinary request is answered."""
        return (await exchange(self.server.port, LAST)).startswith(b"HTTP/1.1 200")


@asynccontextmanager
async def visited(handler=ok, **limits):
    """Run a server with these limits. At the end it must still answer, and no connection may be left."""
    instruments = Instruments(CollectorRegistry())
    async with serving(handler, instruments=instruments, limits=Limits(**limits)) as server:
        guest = Guest(server, instruments)
        yield guest
        if handler is ok:
            assert await guest.is_up()
        await until(lambda: server.open_connections == 0)
        assert guest.open() == 0


async def answer(reader):
    """Read one answer with its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Half: "])
async def test_half_a_request_is_not_waited_for(sent):
    """The server closes a connection that sends an incomplete request, or nothing, within the time limit."""
    async with visited(request_seconds=0.05) as guest:
        assert await exchange(guest.server.port, sent) == b""
        assert guest.closed("slow") == 1


async def test_a_trickle_does_not_extend_the_time():
    """The time of a request begins with the request, and further bytes do not extend it."""
    async with visited(request_seconds=0.2) as guest:
        reader, writer = await guest.connect()
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        ended = asyncio.create_task(rest(reader))
        while not ended.done():
            writer.write(b"a")
            await asyncio.wait({ended}, timeout=0.01)
        assert await ended == b""
        assert guest.closed("slow") == 1
        writer.close()


async def test_the_second_request_has_the_same_time():
    """The time limit holds for each request of a connection."""
    async with visited(request_seconds=0.1) as guest:
        reader, writer = await guest.connect()
        writer.write(REQUEST)
        assert b"200 OK" in await answer(reader)
        writer.write(b"GET /met")
        assert await rest(reader) == b""
        assert guest.closed("slow") == 1
        writer.close()


async def test_a_pause_between_requests_ends():
    """The server closes an idle keep-alive connection, and does not count it as slow."""
    async with visited(idle_seconds=0.1) as guest:
        reader, writer = await guest.connect()
        writer.write(REQUEST)
        assert (await rest(reader)).startswith(b"HTTP/1.1 200")
        assert guest.closed("slow") == 0
        writer.close()


async def test_within_the_pause_a_connection_is_used_again():
    """A client can send several requests over one connection."""
    async with visited() as guest:
        reader, writer = await guest.connect()
        for _ in range(3):
            writer.write(REQUEST)
            assert b"200 OK" in await answer(reader)
        assert guest.server.open_connections == 1
        writer.close()


async def test_who_does_not_read_is_cut_off():
    """The server closes the connection of a client that does not read its answer."""
    page = b"x" * 20_000_000

    async def large(_):
        return web.Response(body=page)

    async with visited(large, write_seconds=0.1) as guest:
        _, writer = await guest.connect()
        writer.write(REQUEST)
        await until(lambda: guest.closed("slow") == 1)
        await until(lambda: guest.server.open_connections == 0)
        writer.close()


class Events:
    """Events without end, each after a pause."""

    def __init__(self, event, *, every_seconds):
        """Begin when the server asks for the first one."""
        self.event, self.every_seconds = event, every_seconds
        self.begun = self.closed = False

    async def answer(self, request):
        """Answer with the events, or without them."""
        return EventStream(self._events()) if request.path == "/metrics" else web.Response(text="ok")

    async def _events(self):
        self.begun = True
        try:
            while True:
                yield self.event
                await asyncio.sleep(self.every_seconds)
        finally:
            self.closed = True


OK = b"GET /ok HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def streamed(events, visit, **limits):
    """Visit a server of events, which still answers others at the end and holds no connection."""
    instruments = Instruments(CollectorRegistry())
    async with serving(events.answer, instruments=instruments, limits=Limits(**limits)) as server:
        guest = Guest(server, instruments)
        await visit(guest)
        assert (await exchange(server.port, OK)).startswith(b"HTTP/1.1 200")
        await until(lambda: server.open_connections == 0)


async def test_who_does_not_read_events_is_cut_off():
    """The events of a slow client are not kept for it, beyond what its connection holds."""
    events = Events(b"x" * 1_000_000, every_seconds=0)

    async def visit(guest):
        _, writer = await guest.connect()
        writer.write(REQUEST)
        await until(lambda: guest.closed("slow") == 1)
        await until(lambda: events.closed)
        writer.close()

    await streamed(events, visit, write_seconds=0.1)


async def test_events_end_when_their_client_leaves():
    """The server does not wait for the next event to notice it."""
    events = Events(b"x", every_seconds=3600)

    async def visit(guest):
        reader, writer = await guest.connect()
        writer.write(REQUEST)
        assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
        await until(lambda: events.begun)
        assert not events.closed
        writer.close()
        await until(lambda: events.closed)
        assert guest.closed("slow") == 0

    await streamed(events, visit)


async def test_events_end_after_their_time():
    """Then the client asks again, and its right is reviewed again."""
    events = Events(b"x", every_seconds=3600)

    async def visit(guest):
        assert b"\r\n0\r\n\r\n" in await exchange(guest.server.port, LAST)
        assert events.closed
        assert guest.closed("slow") == 0

    await streamed(events, visit, stream_seconds=0.1)


async def test_head_of_events_is_answered_without_them():
    """No event is asked for."""
    events = Events(b"x", every_seconds=3600)

    async def visit(guest):
        head = await exchange(guest.server.port, LAST.replace(b"GET", b"HEAD"))
        assert b"text/event-stream" in head
        assert not events.begun

    await streamed(events, visit)


async def test_an_answer_that_takes_too_long_is_504():
    """A handler that exceeds the time for an answer is cancelled, and the client gets 504."""

    async def never(_):
        await asyncio.Event().wait()

    async with visited(never, answer_seconds=0.05) as guest:
        assert (await exchange(guest.server.port, LAST)).startswith(b"HTTP/1.1 504")


async def test_an_error_of_a_page_is_500_and_one_log_line():
    """The text of the exception is in no answer."""

    async def broken(_):
        raise ValueError("inner secrets")

    async with visited(broken) as guest:
        with capture_logs() as lines:
            received = await exchange(guest.server.port, LAST)
        assert received.startswith(b"HTTP/1.1 500")
        assert b"inner" not in received
        assert [line["event"] for line in lines] == ["request_failed"]


# --- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
        b"a" * 1_000_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"a" * 17_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 70 + b"\r\n",
    ],
    ids=["line", "header", "headers", "rubbish", "long-header", "long-line", "many-headers"],
)
async def test_too_much_is_refused(sent):
    """The server answers 400 or closes the connection. It never answers 200."""
    async with visited() as guest:
        received = await exchange(guest.server.port, sent)
        assert received == b"" or received.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
        assert guest.closed("oversize") + guest.answered("400") >= 1
        assert guest.answered("200") == 0


async def test_a_large_token_fits():
    """A token of 12 KiB is accepted. Identity providers can put many groups into a token."""
    async with visited() as guest:
        sent = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"a" * 12_288 + b"\r\nConnection: close\r\n\r\n"
        assert (await exchange(guest.server.port, sent)).startswith(b"HTTP/1.1 200")


async def test_a_body_is_not_read():
    """The server answers before the body is complete, and closes the connection."""
    async with visited() as guest:
        head = b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
        received = await exchange(guest.server.port, head + b"x" * 100)
        assert received.startswith(b"HTTP/1.1 200")


async def test_a_body_without_end_is_not_waited_for():
    """The server answers and closes the connection while the client still sends chunks."""
    async with visited() as guest:
        reader, writer = await guest.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        ended = asyncio.create_task(rest(reader))
        while not ended.done():
            writer.write(b"4\r\nwxyz\r\n")
            await asyncio.wait({ended}, timeout=0.001)
        assert (await ended).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_pipelined_requests_are_answered_in_order():
    """The server answers 201 requests that were sent at once, in their order."""
    seen = []

    async def numbered(request):
        seen.append(request.path)
        return web.Response(text=request.path)

    async with visited(numbered) as guest:
        sent = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(200)) + LAST
        received = await exchange(guest.server.port, sent)
        assert received.count(b"HTTP/1.1 200") == 201
    assert seen == [*(f"/{number}" for number in range(200)), "/metrics"]


async def test_an_upgrade_is_not_done():
    """The server answers a request for an upgrade like any other, and does not switch the protocol."""
    async with visited(request_seconds=0.1) as guest:
        sent = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + b"\x81\x05hello" * 50
        assert (await exchange(guest.server.port, sent)).startswith(b"HTTP/1.1 200")


async def test_rubbish_leaves_no_log_line():
    """Malformed requests are counted and not logged, so clients cannot fill the disk with log lines."""
    async with visited() as guest:
        with capture_logs() as lines:
            for sent in (b"\x16\x03\x01\x00\xff", b"NONSENSE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
                await exchange(guest.server.port, sent + b"\r\n\r\n")
        assert lines == []
        assert guest.answered("400") == 3


# --- number ----------------------------------------------------------------------------------------------------------


async def test_at_the_limit_an_idle_connection_makes_room():
    """The oldest connection without a request is closed first, even if others have been idle for longer."""
    async with visited(connections=3) as guest:
        useful_reader, useful = await guest.connect()
        useful.write(REQUEST)
        await answer(useful_reader)
        first_reader, first = await guest.connect()
        second_reader, second = await guest.connect()
        await until(lambda: guest.server.open_connections == 3)
        assert await guest.is_up()
        assert await rest(first_reader) == b""
        assert guest.closed("evicted") == 1
        for reader, writer in ((useful_reader, useful), (second_reader, second)):
            writer.write(REQUEST)
            assert b"200 OK" in await answer(reader)
        for writer in (useful, first, second):
            writer.close()


async def test_among_the_useful_the_one_unused_longest_makes_room():
    """Among connections that had a request, the one that was not used for longest is closed."""
    async with visited(connections=2) as guest:
        peers = [await guest.connect() for _ in range(2)]
        for number in (0, 1, 0):
            reader, writer = peers[number]
            writer.write(REQUEST)
            assert b"200 OK" in await answer(reader)
        assert await guest.is_up()
        assert await rest(peers[1][0]) == b""
        peers[0][1].write(REQUEST)
        assert b"200 OK" in await answer(peers[0][0])
        for _, writer in peers:
            writer.close()


async def test_when_all_are_busy_a_new_one_is_refused():
    """A running request is never cut off to make room."""
    turn = asyncio.Event()

    async def waiting(_):
        await turn.wait()
        return web.Response(text="ok")

    async with visited(waiting, connections=2) as guest:
        busy = [asyncio.create_task(exchange(guest.server.port, LAST)) for _ in range(2)]
        await until(lambda: sum(connection.busy for connection in guest.server._connections) == 2)
        assert await exchange(guest.server.port, LAST) == b""
        assert guest.closed("refused") == 1
        turn.set()
        assert all(received.startswith(b"HTTP/1.1 200") for received in await asyncio.gather(*busy))


async def test_a_flood_of_connections_stays_within_the_limit():
    """An ordinary request is answered during the flood."""
    async with visited(connections=8) as guest:
        held = []
        most = 0
        for number in range(100):
            held.append(await guest.connect())
            most = max(most, guest.server.open_connections)
            if number % 25 == 0:
                assert await guest.is_up()
        assert most <= 8
        for _, writer in held:
            writer.close()


async def test_running_out_of_file_descriptors_is_waited_out(monkeypatch):
    """The server pauses, and then accepts again. It logs each pause once."""
    async with visited() as guest:
        loop = asyncio.get_running_loop()
        genuine, failures = loop.sock_accept, [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()]

        async def accept(listening):
            if failures:
                raise failures.pop(0)
            return await genuine(listening)

        monkeypatch.setattr(loop, "sock_accept", accept)
        monkeypatch.setattr("wva.serve.listener._ACCEPT_PAUSE_SECONDS", 0.01)
        with capture_logs() as lines:
            assert await guest.is_up()
            assert await guest.is_up()
        assert [line["event"] for line in lines] == ["accept_failed"]
        assert failures == []


async def test_closing_does_not_wait_for_those_who_hold_on():
    """When the server stops, idle connections and incomplete requests end with it."""
    loop = asyncio.get_running_loop()
    async with serving() as server:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        held[0][1].write(b"GET / HT")
        held[1][1].write(REQUEST)
        await answer(held[1][0])
        started = loop.time()
    assert loop.time() - started < 10
    for reader, writer in held:
        assert await rest(reader) == b""
        writer.close()
    assert server.open_connections == 0


async def test_a_peer_that_resets_is_forgotten():
    """No connection is left after a reset, whether or not a request was sent."""
    async with visited() as guest:
        for sent in (b"", b"GET / HT", REQUEST):
            peer = socket.create_connection(("127.0.0.1", guest.server.port))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            peer.sendall(sent)
            peer.close()


async def test_all_headers_together_have_a_limit():
    """Headers that are small one by one are refused if they are too large together."""
    async with visited() as guest:
        sent = (
            b"GET / HTTP/1.1\r\nHost: x\r\n"
            + b"".join(b"X%d: %s\r\n" % (n, b"a" * 10_000) for n in range(10))
            + b"\r\n"
        )
        assert await exchange(guest.server.port, sent) == b""
        assert guest.closed("oversize") == 1


async def test_the_limit_is_for_one_request():
    """The bytes of all requests of a connection together may exceed the limit."""
    async with visited() as guest:
        reader, writer = await guest.connect()
        for _ in range(20):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"a" * 10_000 + b"\r\n\r\n")
            assert b"200 OK" in await answer(reader)
        writer.close()


async def test_some_connections_are_kept_for_one_page():
    """Other pages that take long are refused beyond the rest at once, and the one page is answered."""
    release, instruments = asyncio.Event(), Instruments(CollectorRegistry())

    async def handler(request):
        if request.path != "/metrics":
            await release.wait()
        return web.Response(text="ok")

    limits = Limits(connections=16, others=4)
    async with serving(handler, instruments=instruments, limits=limits, kept_for="/metrics") as server:
        guest = Guest(server, instruments)
        slow = [asyncio.create_task(exchange(server.port, LAST.replace(b"metrics", b"slow"))) for _ in range(8)]
        await until(lambda: guest.answered("503") == 4)
        assert await guest.is_up()
        refused = await exchange(server.port, LAST.replace(b"metrics", b"slow"))
        assert b"503" in refused.partition(b"\r\n")[0]
        assert b"Retry-After: 5" in refused
        release.set()
        answers = [answer.partition(b"\r\n")[0] for answer in await asyncio.gather(*slow)]
        assert sorted(answers) == [b"HTTP/1.1 200 OK"] * 4 + [b"HTTP/1.1 503 Service Unavailable"] * 4
        assert (await exchange(server.port, LAST.replace(b"metrics", b"slow"))).startswith(b"HTTP/1.1 200")
