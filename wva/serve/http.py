"""A listening server that no client can block: HTTP/1.1 behind limits on time, bytes and connections.

It gets an address, a handler and, for HTTPS, the place of the certificate in force. It sends the answers of the
handler. aiohttp parses the requests. This module adds the limits that the parser does not have: on the number of
connections; on the time of a handshake, a request, an answer and a pause between requests; and on the bytes before a
request is complete. When all connections are taken, a new one replaces one without a pending request. Connections that
never had a request go first, so a client that only holds connections open cannot keep the scraper out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Self, TypeAlias, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError

from wva import log
from wva.instruments import Instruments
from wva.serve.address import Address

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.Response]]
TlsSource: TypeAlias = Callable[[], ssl.SSLContext]

_SHUTDOWN_SECONDS: Final = 1.0
_ACCEPT_PAUSE_SECONDS: Final = 1.0
_HEADERS: Final = {"Server": "wva", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""On every answer: it names no version, no cache keeps it, and no browser guesses its type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a server grants its peers; the times of ``request`` and ``idle`` are those of the Go controller.

    ``request_seconds``: from the first byte, or from the opening, to a complete request. ``request_bytes``: what may
    come meanwhile. ``idle_seconds``: between two requests. ``line_bytes``, ``field_bytes``, ``headers``: the request
    line, one header, their number.
    """

    connections: int = 128
    handshake_seconds: float = 10.0
    goodbye_seconds: float = 1.0
    request_seconds: float = 32.0
    request_bytes: int = 64 * 1024
    idle_seconds: float = 90.0
    answer_seconds: float = 30.0
    write_seconds: float = 30.0
    line_bytes: int = 8 * 1024
    field_bytes: int = 16 * 1024
    headers: int = 64


class Connection(asyncio.Protocol):
    """Stands between the transport and aiohttp's protocol ``inner``."""

    def __init__(self, inner: web.RequestHandler, limits: Limits, *, closed: Callable[[str], None]) -> None:
        """Wait for the transport. ``closed`` is told the cause when this side ends the connection."""
        self.inner = inner
        self.ended = asyncio.Event()
        self.busy = False
        self.useful = False
        self._limits = limits
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received_bytes = 0
        self.last_used_at = self._loop.time()

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
        """Close at once; what was not sent yet is lost."""
        if self._transport is not None and not self.ended.is_set():
            if cause:
                self._closed(cause)
            self._transport.abort()
        self._disarm()

    # --- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: a request has to come in time."""
        self._transport = cast("asyncio.Transport", transport)
        self.inner.connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Count what comes outside of an answer and pass it on."""
        if self.ended.is_set():
            return
        if not self.busy:
            self._received_bytes += len(data)
            if self._received_bytes > self._limits.request_bytes:
                self.abort("oversize")
                return
            self._arm()
        self.inner.data_received(data)

    def eof_received(self) -> None:
        """Pass on that the peer sends no more; the transport closes."""
        self.inner.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the peer does not read."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that it reads again."""
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._disarm()
        self.ended.set()
        self.inner.connection_lost(exc)

    # --- time --------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(self._limits.request_seconds, self.abort, "slow")

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _ParserLog(logging.Logger):
    """Counts what aiohttp refuses by itself; its logger is the only place where it says so.

    The lines themselves are dropped: each would carry a traceback, and a client may send any number of them.
    """

    def __init__(self, refused: Callable[[], None]) -> None:
        super().__init__("wva.serve")
        self._refused = refused

    def exception(self, msg: object, *args: object, exc_info: Any = None, **more: Any) -> None:
        """Count it if it is about a request that could not be parsed."""
        del msg, args, more
        if isinstance(exc_info, HttpProcessingError):
            self._refused()

    def debug(self, msg: object, *args: object, exc_info: Any = None, **more: Any) -> None:
        """Count it: what is no HTTP at all comes this way."""
        self.exception(msg, *args, exc_info=exc_info, **more)


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
        """Prepare; nothing listens before ``__aenter__``. ``tls`` is asked anew for each connection."""
        self._handler = handler
        self._address = address
        self._name = name
        self._instruments = instruments
        self._tls = tls
        self._limits = limits or Limits()
        self._logger = log.get("serve")
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._by_protocol: dict[object, Connection] = {}
        self._stack = AsyncExitStack()
        self.port = address.port

    async def __aenter__(self) -> Self:
        """Listen. Raises AddressError when the address is taken or not ours."""
        sockets = await self._address.bind(self._name, backlog=self._limits.connections)
        async with AsyncExitStack() as stack:
            for listening in sockets:
                stack.callback(listening.close)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            limits = self._limits
            protocols = web.Server(
                self._answer,
                access_log=None,
                keepalive_timeout=limits.idle_seconds,
                lingering_time=0,  # the body of a GET is not read to its end
                max_line_size=limits.line_bytes,
                max_field_size=limits.field_bytes,
                max_headers=limits.headers,
                logger=_ParserLog(lambda: self._count(HTTPStatus.BAD_REQUEST)),
            )
            accepting = [group.create_task(self._accept(listening, group, protocols)) for listening in sockets]
            stack.push_async_callback(self._stop, accepting, protocols)
            self._stack = stack.pop_all()
        self.port = int(sockets[0].getsockname()[1])
        self._logger.info("server_started", server=self._name, port=self.port, tls=self._tls is not None)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop accepting, let running requests end, close."""
        await self._stack.aclose()

    @property
    def open_connections(self) -> int:
        """How many connections there are, those in their handshake included."""
        return len(self._connections)

    async def _stop(self, accepting: list[asyncio.Task[None]], protocols: web.Server) -> None:
        for task in accepting:
            task.cancel()
        protocols.pre_shutdown()
        await protocols.shutdown(_SHUTDOWN_SECONDS)
        for task in list(self._connections.values()):
            task.cancel()

    # --- connections -------------------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket, group: asyncio.TaskGroup, protocols: web.Server) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except ConnectionAbortedError:  # gone before it was accepted
                continue
            except OSError as error:  # no file descriptors left; those that wait in the kernel go on waiting
                self._logger.warning("accept_failed", server=self._name, error=error.strerror)
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            if len(self._connections) >= self._limits.connections:
                # The connection that is missed least makes room; one with a running request stays.
                waiting = [connection for connection in self._connections if not connection.busy]
                if not waiting:
                    self._closed("refused")
                    accepted.close()
                    continue
                self._closed("evicted")
                victim = min(waiting, key=lambda connection: (connection.useful, connection.last_used_at))
                self._connections.pop(victim).cancel()
            connection = Connection(protocols(), self._limits, closed=self._closed)
            self._connections[connection] = group.create_task(self._serve(connection, accepted))
            self._gauge()

    async def _serve(self, connection: Connection, accepted: socket.socket) -> None:
        """Hold one connection from its handshake to its end."""
        limits = self._limits
        seconds = {"ssl_handshake_timeout": limits.handshake_seconds, "ssl_shutdown_timeout": limits.goodbye_seconds}
        self._by_protocol[connection.inner] = connection
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
            self._logger.exception("connection_failed", server=self._name)  # it alone: the process goes on
        finally:
            connection.abort()
            accepted.close()
            self._by_protocol.pop(connection.inner, None)
            self._connections.pop(connection, None)
            self._gauge()

    def _closed(self, cause: str) -> None:
        self._instruments.endpoint_connections_closed.labels(server=self._name, cause=cause).inc()

    def _gauge(self) -> None:
        self._instruments.endpoint_connections.labels(server=self._name).set(len(self._connections))

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = self._by_protocol.get(request.protocol)
        if connection is None:  # closed while the request was on its way to here
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
                    await response.write_eof()
            except TimeoutError:
                connection.abort("slow")
                raise ConnectionResetError from None
            connection.useful = connection.useful or response.status < HTTPStatus.BAD_REQUEST
        return response

    def _count(self, status: int) -> None:
        self._instruments.endpoint_requests.labels(server=self._name, code=str(int(status))).inc()
