"""A listening server that no client can block: HTTP/1.1 behind limits on time, bytes and connections.

aiohttp reads the requests. This module adds the limits that aiohttp does not have: on the number of connections; on the
time of a handshake, a request and an answer; and on the bytes before a request is complete. When all connections are
taken, a new one replaces one that waits for a request. Connections that never had a request go first, so a client that
only holds connections open cannot keep the scraper out.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self, TypeAlias, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError

from wva import log
from wva.instruments import Instruments
from wva.numbers import Whole, shown

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
TlsSource: TypeAlias = Callable[[], ssl.SSLContext]

_SHUTDOWN_SECONDS: Final = 1.0
_ACCEPT_PAUSE_SECONDS: Final = 1.0
_NO_IPV6: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_PORT: Final = Whole(0, 65535)
_HEADERS: Final = {"Server": "wva", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""On every answer: it names no version, no cache keeps it, and no browser guesses its type."""
_NO_LOG: Final = logging.Logger("aiohttp", level=logging.CRITICAL + 1)  # noqa: LOG001 - no configuration switches it on
"""Drops the lines of aiohttp. Each would carry a traceback, and a client may cause any number of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits for the clients of a server. ``request_seconds`` and ``idle_seconds`` are those of the Go controller.

    A request may take ``request_seconds`` and ``request_bytes``, from the first byte, or from the opening, until it is
    complete. ``idle_seconds`` may pass between two requests. ``line_bytes`` limits the request line, ``field_bytes``
    one header, and ``headers`` their number.
    """

    connections: int = 128
    handshake_seconds: float = 10.0
    goodbye_seconds: float = 1.0
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


class AddressError(Exception):
    """A bind address that cannot be used. The message names it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; ``host`` None means every interface."""

    host: str | None
    port: int

    @staticmethod
    def parse(text: str, *, setting: str) -> Address | None:
        """Return the address of ``host:port`` or ``:port``; None for ``0`` or empty, which mean no server.

        Raises AddressError, which names ``setting``.
        """
        if text in {"", "0"}:
            return None
        host, separator, port = text.rpartition(":")
        number = _PORT.find(port) if separator and port.isdecimal() else None
        if number is None:
            raise AddressError(f"{setting}={shown(text)}: expected host:port, :port, or 0 to switch it off")
        return Address(host.strip("[]") or None, number)

    async def bind(self, name: str, *, backlog: int) -> list[socket.socket]:
        """Return listening sockets, one for each address of the host, all with the same port.

        Raises AddressError, which names the server by ``name``.
        """
        sockets: list[socket.socket] = []
        try:
            if self.host is None:
                if socket.has_dualstack_ipv6():  # then one socket serves both families
                    try:
                        return [_listening(("", self.port), socket.AF_INET6, backlog, dual=True)]
                    except OSError as error:
                        if error.errno not in _NO_IPV6:  # the kernel knows IPv6, but the machine has no such address
                            raise
                return [_listening(("", self.port), socket.AF_INET, backlog)]
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            port = self.port
            for family, *_, place in dict.fromkeys(found):
                sockets.append(_listening((str(place[0]), port), family, backlog))
                port = int(sockets[0].getsockname()[1])
        except (OSError, UnicodeError) as error:
            for listening in sockets:
                listening.close()
            if isinstance(error, OSError) and error.errno is not None and not isinstance(error, socket.gaierror):
                reason = os.strerror(error.errno)  # asyncio adds the address to its text, which is in the message below
            else:
                reason = str(getattr(error, "strerror", None) or error)
            raise AddressError(f"cannot listen on {self.host or ''}:{self.port} for {name}: {reason}") from error
        return sockets


def _listening(place: tuple[str, int], family: int, backlog: int, *, dual: bool = False) -> socket.socket:
    listening = socket.create_server(place, family=family, backlog=backlog, dualstack_ipv6=dual)
    listening.setblocking(False)
    return listening


class Connection(web.RequestHandler):
    """A connection with its limits. aiohttp's class reads the requests and writes the answers."""

    def __init__(
        self, requests: web.Server, limits: Limits, *, closed: Callable[[str], None], refused: Callable[[int], None]
    ) -> None:
        """Wait for the transport. aiohttp hands each request to ``requests``.

        ``closed`` is told the cause when this side ends the connection. ``refused`` is told the status of each
        answer to a request that aiohttp cannot parse.
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
        self.busy = False
        self.useful = False
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


class Server:
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
    ) -> None:
        """Prepare; nothing listens before ``__aenter__``. ``tls`` is called for each connection."""
        self._handler = handler
        self._address = address
        self._name = name
        self._instruments = instruments
        self._tls = tls
        self._limits = limits or Limits()
        self._logger = log.get("serve")
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._stack = AsyncExitStack()
        self.port = address.port
        instruments.endpoint_connections.labels(server=name).set_function(lambda: len(self._connections))

    async def __aenter__(self) -> Self:
        """Listen. Raises AddressError when the address is taken or not ours."""
        sockets = await self._address.bind(self._name, backlog=self._limits.connections)
        async with AsyncExitStack() as stack:
            for listening in sockets:
                stack.callback(listening.close)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            requests = web.Server(self._answer)
            accepting = [group.create_task(self._accept(listening, group, requests)) for listening in sockets]
            stack.push_async_callback(self._stop, accepting, requests)
            self._stack = stack.pop_all()
        self.port = int(sockets[0].getsockname()[1])
        self._logger.info("server_started", server=self._name, port=self.port, tls=self._tls is not None)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop accepting, let running requests end, close."""
        await self._stack.aclose()

    @property
    def open_connections(self) -> int:
        """How many connections there are, with those in their handshake."""
        return len(self._connections)

    async def _stop(self, accepting: list[asyncio.Task[None]], requests: web.Server) -> None:
        for task in accepting:
            task.cancel()
        requests.pre_shutdown()
        await requests.shutdown(_SHUTDOWN_SECONDS)
        for task in list(self._connections.values()):
            task.cancel()

    async def _accept(self, listening: socket.socket, group: asyncio.TaskGroup, requests: web.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except ConnectionAbortedError:  # the client has gone before it was accepted
                continue
            except OSError as error:  # no file descriptors are left; clients wait in the kernel
                self._logger.warning("accept_failed", server=self._name, error=error.strerror)
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            if len(self._connections) >= self._limits.connections:
                # The connection that is missed least makes room. One with a running request stays.
                waiting = [connection for connection in self._connections if not connection.busy]
                if not waiting:
                    self._closed("refused")
                    accepted.close()
                    continue
                self._closed("evicted")
                victim = min(waiting, key=lambda connection: (connection.useful, connection.last_used_at))
                self._connections.pop(victim).cancel()
            connection = Connection(requests, self._limits, closed=self._closed, refused=self._count)
            self._connections[connection] = group.create_task(self._serve(connection, accepted))

    async def _serve(self, connection: Connection, accepted: socket.socket) -> None:
        """Hold one connection from its handshake to its end."""
        limits = self._limits
        seconds = {"ssl_handshake_timeout": limits.handshake_seconds, "ssl_shutdown_timeout": limits.goodbye_seconds}
        try:
            try:
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=self._tls() if self._tls else None,
                    **(seconds if self._tls else {}),
                )
            except OSError:  # anything that a client sends instead of TLS
                self._closed("handshake")
                return
            await connection.ended.wait()
        except Exception:
            self._logger.exception("connection_failed", server=self._name)  # only this connection ends
        finally:
            connection.abort()
            accepted.close()
            self._connections.pop(connection, None)

    def _closed(self, cause: str) -> None:
        self._instruments.endpoint_connections_closed.labels(server=self._name, cause=cause).inc()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        if connection.transport is None or connection.transport.is_closing():
            raise ConnectionResetError
        with connection.request():
            try:
                async with asyncio.timeout(self._limits.answer_seconds):
                    response = await self._handler(request)
            except TimeoutError:
                response = web.Response(status=HTTPStatus.GATEWAY_TIMEOUT, text="no answer in time\n")
            except Exception:
                self._logger.exception("request_failed", server=self._name)
                response = web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, text="internal error\n")
            response.headers.update(_HEADERS)
            self._count(response.status)
            try:
                async with asyncio.timeout(self._limits.write_seconds):
                    await response.prepare(request)
                if isinstance(response, EventStream) and request.method != "HEAD":
                    await self._send_events(response, connection)
                async with asyncio.timeout(self._limits.write_seconds):
                    await response.write_eof()
            except TimeoutError:
                connection.abort("slow")
                raise ConnectionResetError from None
            connection.useful = connection.useful or response.status < HTTPStatus.BAD_REQUEST
        return response

    async def _send_events(self, response: EventStream, connection: Connection) -> None:
        """Send events until the client leaves or the stream has lasted long enough.

        Raises TimeoutError for a client that does not read.
        """
        async with aclosing(response.events) as events:
            try:
                async with asyncio.timeout(self._limits.stream_seconds) as connection.streaming:
                    async for event in events:
                        async with asyncio.timeout(self._limits.write_seconds):
                            await response.write(event)
            except TimeoutError:
                if connection.streaming is None or not connection.streaming.expired():
                    raise
            finally:
                connection.streaming = None

    def _count(self, status: int) -> None:
        self._instruments.endpoint_requests.labels(server=self._name, code=str(int(status))).inc()
