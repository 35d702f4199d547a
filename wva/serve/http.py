"""A listening server that no client can block: HTTP/1.1 behind limits on time, bytes and connections.

aiohttp reads the requests. The listener limits connections and handshakes. This module adds the limits that aiohttp
does not have: on the time of a request and an answer, and on the bytes before a request is complete. A connection whose
request is being answered keeps its place. A part of the connections is kept for one page. If all others are busy, a
request for another page is answered at once with 503, so requests that take long cannot keep the scraper out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self, TypeAlias, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError

from wva.instruments import Instruments
from wva.serve.addresses import Address
from wva.serve.listener import Listener, ListenerLimits, ServedConnection, TlsSource
from wva.slices import Slices

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_SHUTDOWN_SECONDS: Final = 1.0
_HEADERS: Final = {
    "Server": "wva",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""On every answer: it names no version, no cache keeps it, no browser guesses its type, and no other site shows it."""
_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
"""What a browser may do with an answer that has no policy of its own."""
_RETRY_SECONDS: Final = 5
_NO_LOG: Final = logging.Logger("aiohttp", level=logging.CRITICAL + 1)  # noqa: LOG001 - no configuration switches it on
"""Drops the lines of aiohttp. Each would carry a traceback, and a client may cause any number of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(ListenerLimits):
    """The limits for the clients of a server. ``request_seconds`` and ``idle_seconds`` are those of the Go controller.

    A request may take ``request_seconds`` and ``request_bytes``, from the first byte, or from the opening, until it is
    complete. ``idle_seconds`` may pass between two requests. ``line_bytes`` limits the request line, ``field_bytes``
    one header, and ``headers`` their number.
    """

    others: int = 96
    """How many connections may be busy with requests for other pages than the one that the rest is kept for."""
    request_seconds: float = 32.0
    request_bytes: int = 64 * 1024
    idle_seconds: float = 90.0
    answer_seconds: float = 30.0
    write_seconds: float = 30.0
    stream_seconds: float = 3600.0
    line_bytes: int = 8 * 1024
    field_bytes: int = 16 * 1024
    headers: int = 64


class EventStream(web.StreamResponse):
    """An answer of server-sent events, which goes on until the client leaves or ``stream_seconds`` are over."""

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        """Send ``events`` as they come. They are closed at the end."""
        super().__init__(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        self.events = events


class Connection(web.RequestHandler, ServedConnection):
    """A connection with its limits. aiohttp's class reads the requests and writes the answers."""

    def __init__(
        self, requests: web.Server, limits: Limits, *, closed: Callable[[str], None], refused: Callable[[int], None]
    ) -> None:
        """Wait for the transport. aiohttp hands each request to ``requests``.

        ``closed`` is called with the cause when this side ends the connection. ``refused`` is called with the status
        of each answer to a request that aiohttp cannot parse.
        """
        super().__init__(
            requests,
            loop=asyncio.get_running_loop(),
            access_log=_NO_LOG,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=0,  # the body of a GET is not read to its end
            max_line_size=limits.line_bytes,
            max_field_size=limits.field_bytes,
            max_headers=limits.headers,
            logger=_NO_LOG,
        )
        self.ended = asyncio.Event()
        self.streaming: asyncio.Timeout | None = None
        self.last_used_at = self._loop.time()
        self._limits = limits
        self._closed = closed
        self._refused = refused
        self._timer: asyncio.TimerHandle | None = None
        self._received_bytes = 0

    @contextmanager
    def request(self) -> Iterator[None]:
        """Mark the time in which a complete request is being answered."""
        self._disarm()
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
            self.last_used_at = self._loop.time()
            self._received_bytes = 0

    async def hold(self) -> None:
        """Return when the connection has ended."""
        await self.ended.wait()

    def abort(self, cause: str = "") -> None:
        """Close at once. What was not sent yet is lost."""
        if self.transport is not None:
            if cause:
                self._closed(cause)
            self.transport.abort()
        self._disarm()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer: the first request has to come in time."""
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Count the bytes that come outside of an answer, and read them."""
        if self.ended.is_set():
            return
        if not self.busy:
            self._received_bytes += len(data)
            if self._received_bytes > self._limits.request_bytes:
                self.abort("oversize")
                return
            self._arm()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timer and a stream of events, and tell that the connection has ended."""
        self._disarm()
        if self.streaming is not None and not self.streaming.expired():
            self.streaming.reschedule(self._loop.time())
        self.ended.set()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to a request that failed in aiohttp, and count one that it cannot parse."""
        if isinstance(exc, HttpProcessingError):
            self._refused(status)
        return super().handle_error(request, status, exc, message)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._limits.request_seconds, self.abort, "slow")

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(Listener[Connection]):
    """One listening server; use as ``async with``."""

    def __init__(
        self,
        handler: Handler,
        address: Address,
        *,
        name: str,
        instruments: Instruments,
        tls: TlsSource | None = None,
        limits: Limits | None = None,
        kept_for: str = "",
    ) -> None:
        """Prepare; nothing listens before ``__aenter__``. ``tls`` is called for each connection.

        ``kept_for`` is the path for which some of the connections are kept; empty if all pages are alike.
        """
        limits = limits or Limits()
        super().__init__(self._connection, address, name=name, instruments=instruments, tls=tls, limits=limits)
        self._handler = handler
        self._answers = instruments.endpoint_requests
        self._allowed = limits
        self._kept_for = kept_for
        self._others = 0
        self._slices = Slices()
        """Shared by all requests: a hundred clients that ask at the same moment do not hold the loop together."""

    async def __aenter__(self) -> Self:
        """Listen. Raises AddressError when the address is taken or not ours."""
        self._requests = web.Server(self._answer)
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        """Stop accepting, let running requests end, close."""
        self.stop()
        self._requests.pre_shutdown()
        await self._requests.shutdown(_SHUTDOWN_SECONDS)
        await super().__aexit__()

    def _connection(self) -> Connection:
        return Connection(self._requests, self._allowed, closed=self.closed, refused=self._count)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        if connection.transport is None or connection.transport.is_closing():
            raise ConnectionResetError
        for_other_page = bool(self._kept_for) and request.path != self._kept_for
        full = for_other_page and self._others >= self._allowed.others
        self._others += for_other_page
        try:
            with connection.request():
                await self._slices.rest()
                response = _busy() if full else await self._handled(request)
                response.headers.update(_HEADERS)
                response.headers.setdefault("Content-Security-Policy", _POLICY)
                self._count(response.status)
                await self._send(request, response, connection)
                connection.useful = connection.useful or response.status < HTTPStatus.BAD_REQUEST
        finally:
            self._others -= for_other_page
        return response

    async def _handled(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the answer of the handler, or why there is none."""
        try:
            async with asyncio.timeout(self._allowed.answer_seconds):
                return await self._handler(request)
        except TimeoutError:
            return web.Response(status=HTTPStatus.GATEWAY_TIMEOUT, text="no answer in time\n")
        except Exception:
            self._logger.exception("request_failed", server=self._name)
            return web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, text="internal error\n")

    async def _send(self, request: web.BaseRequest, response: web.StreamResponse, connection: Connection) -> None:
        """Send an answer. Raises ConnectionResetError for a client that does not read."""
        try:
            async with asyncio.timeout(self._allowed.write_seconds):
                await response.prepare(request)
            if isinstance(response, EventStream) and request.method != "HEAD":
                await self._send_events(response, connection)
            async with asyncio.timeout(self._allowed.write_seconds):
                await response.write_eof()
        except TimeoutError:
            connection.abort("slow")
            raise ConnectionResetError from None

    async def _send_events(self, response: EventStream, connection: Connection) -> None:
        """Send events until the client leaves or the stream has lasted long enough.

        Raises TimeoutError for a client that does not read.
        """
        async with aclosing(response.events) as events:
            try:
                async with asyncio.timeout(self._allowed.stream_seconds) as connection.streaming:
                    async for event in events:
                        async with asyncio.timeout(self._allowed.write_seconds):
                            await response.write(event)
            except TimeoutError:
                if connection.streaming is None or not connection.streaming.expired():
                    raise
            finally:
                connection.streaming = None

    def _count(self, status: int) -> None:
        self._answers.labels(server=self._name, code=str(int(status))).inc()


def _busy() -> web.Response:
    text = "too many requests for other pages are being answered\n"
    return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=text, headers={"Retry-After": str(_RETRY_SECONDS)})
