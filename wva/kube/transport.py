"""Sends HTTP requests to the API server and returns body or lines of the answer; failures become our own errors.

The caller passes a function that adds credentials to the headers of each request. Every wait has a limit, every status
is checked, every request is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from types import SimpleNamespace
from typing import Final, TypeAlias
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from wva import __version__
from wva.clock import seconds_of_date
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.backoff import Backoff

JSON: Final = "application/json"
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Of a watch. etcd stores 1.5 MiB of an object; in JSON this may be six times as long, with escaped characters."""
MAX_BODY_BYTES: Final = 32 * 1024 * 1024
"""Of an answer; the event loop works on one for less than 50 ms. Longer lists are asked for in pages."""
MAX_REFUSAL_BYTES: Final = 64 * 1024
"""A Status is far smaller; a proxy's error page may be anything."""
READ_BUFFER_BYTES: Final = 256 * 1024
_CONNECT_SECONDS: Final = 10.0
_OK: Final = range(200, 300)

Guard: TypeAlias = Callable[[], bool]


@dataclass(slots=True, kw_only=True)
class Call:
    """One request. ``verb`` and ``resource`` are its labels in metrics, ``guard`` is asked before a write is sent."""

    verb: str
    resource: str
    path: str
    method: str = "GET"
    query: Mapping[str, str | int] | None = None
    body: bytes | None = None
    content_type: str = JSON
    guard: Guard | None = None
    refused: errors.WriteRefused | None = field(default=None, init=False)
    date: str = field(default="", init=False)
    """The header ``Date`` of the answer."""

    @property
    def answered_at(self) -> float | None:
        """When the server answered by its own clock (epoch seconds); None if it did not say so in a usable way."""
        return seconds_of_date(self.date)

    def ask(self) -> None:
        """Raise WriteRefused if the guard forbids the write; called at several steps on the way to the socket."""
        if self.guard is not None and not self.guard():
            self.refused = errors.WriteRefused(0, "WriteRefused", "not allowed to write now", attempted=self.attempted)
            raise self.refused

    @property
    def attempted(self) -> str:
        """Verb and path for the text of an error; without the query, which may be long."""
        return f"{self.method} {self.path}"


@dataclass(slots=True, kw_only=True, eq=False)
class Transport:
    """An open connection pool with credentials."""

    session: aiohttp.ClientSession
    host: str
    authorize: Callable[[dict[str, str]], Awaitable[None]]
    refused: Callable[[], None] | None
    instruments: Instruments
    timeout_seconds: float
    proxy: str | None = None
    server_hostname: str | None = None
    patience_seconds: float = 0.0
    """How long in all, from now on, reads that a busy server refuses are sent again."""
    _backoff: Backoff = field(default_factory=Backoff, init=False)

    async def send(self, call: Call) -> aiohttp.ClientResponse:
        """Send one request and return the response once its headers are there; count it.

        Raises what aiohttp raises, and WriteRefused. The caller limits the time. It asks for no compression, since
        inside a cluster bandwidth is cheaper than CPU. It follows no redirects, so that the token goes to no other
        host.
        """
        headers = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": f"wva/{__version__}"}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        query = f"?{urlencode(call.query)}" if call.query else ""
        code = "0"
        try:
            await self.authorize(headers)
            call.ask()
            response = await self.session.request(
                call.method,
                URL(f"{self.host}{call.path}{query}", encoded=True),
                data=call.body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                allow_redirects=False,
                proxy=self.proxy,
                server_hostname=self.server_hostname,
                trace_request_ctx=call,
            )
            code = str(response.status)
        except aiohttp.ClientError as error:
            # The library wraps a refusal while it writes the body, because it takes it for a failed connection.
            if call.refused is None:
                raise
            raise call.refused from error
        finally:
            self.instruments.api_requests.labels(verb=call.verb, resource=call.resource, code=code).inc()
        return response

    async def exchange(self, call: Call) -> bytes:
        """Send one request and return the body of a 2xx answer. Raises ApiError.

        As soon as the body is known to be too long, this raises TooLarge and closes the connection. If the server is
        busy, a read waits as long as ``patience_seconds`` last.
        """
        while True:
            try:
                return await self._exchange(call)
            except errors.TooManyRequests as error:
                delay = self._backoff.next(time.monotonic(), retry_after_seconds=error.retry_after_seconds)
                if call.method != "GET" or delay > self.patience_seconds:
                    raise
            self.patience_seconds -= delay
            await asyncio.sleep(delay)

    async def _exchange(self, call: Call) -> bytes:
        """Send a request once."""
        async with _within(self.timeout_seconds, call), await self.send(call) as response:
            call.date = response.headers.get("Date", "")
            if response.status not in _OK:
                raise await self._refusal(call, response)
            body = bytearray()
            if (response.content_length or 0) <= MAX_BODY_BYTES:
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > MAX_BODY_BYTES:
                        break
                else:
                    return bytes(body)
            response.close()
        message = f"more than {MAX_BODY_BYTES} bytes"
        raise errors.TooLarge(response.status, "TooLarge", message, attempted=call.attempted)

    async def lines(self, call: Call, idle_seconds: float) -> AsyncGenerator[bytes, None]:
        """Send one request and yield the lines of a 2xx answer as they come. Raises ApiError.

        ``idle_seconds`` limits the wait for the headers and for each chunk, not the whole: silence raises StreamIdle.
        A line longer than MAX_LINE_BYTES is cut. The decoder judges such a line, and a last line without newline: one
        object must not end the stream, since the next stream would bring it again.
        """
        async with _within(idle_seconds, call):
            response = await self.send(call)
        try:
            if response.status not in _OK:
                async with _within(idle_seconds, call):
                    raise await self._refusal(call, response)
            pending = bytearray()
            while True:
                try:
                    async with _within(idle_seconds, call):
                        chunk = await response.content.readany()
                except errors.Unreachable as error:
                    if error.reason != "Timeout":
                        raise
                    message = f"nothing for {idle_seconds:g} s"
                    raise errors.StreamIdle(0, "Idle", message, attempted=call.attempted) from error
                if not chunk:
                    break
                first, *rest = chunk.split(b"\n")
                pending += first[: max(0, MAX_LINE_BYTES - len(pending))]
                if not rest:
                    continue
                *whole, last = rest
                for line in (bytes(pending), *whole):
                    if line:
                        yield line
                pending = bytearray(last)
            if pending:
                yield bytes(pending)
        finally:
            # Close the connection, and do not release it: an unfinished stream must not go back to the pool.
            response.close()

    async def websocket(self, call: Call, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket with a subprotocol and return it. Raises ApiError."""
        headers = {"User-Agent": f"wva/{__version__}"}
        async with _within(self.timeout_seconds, call):
            await self.authorize(headers)
            try:
                socket = await self.session.ws_connect(
                    URL(f"{self.host}{call.path}?{urlencode(call.query or {})}", encoded=True),
                    protocols=(protocol,),
                    headers=headers,
                    proxy=self.proxy,
                    server_hostname=self.server_hostname,
                    max_msg_size=MAX_BODY_BYTES,
                )
            except aiohttp.WSServerHandshakeError as error:
                # The handshake reads no body, so there is the status alone.
                raise errors.from_status(error.status, b"", attempted=call.attempted) from None
        if socket.protocol != protocol:
            await socket.close()
            raise errors.Unreachable(0, "Protocol", f"no WebSocket with {protocol}", attempted=call.attempted)
        return socket

    async def _refusal(self, call: Call, response: aiohttp.ClientResponse) -> errors.ApiError:
        """Read as much of the body of a status outside 2xx as can matter, and return the error that it means."""
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) >= MAX_REFUSAL_BYTES:
                response.close()
                break
        text = bytes(body[:MAX_REFUSAL_BYTES])
        if response.status == HTTPStatus.UNAUTHORIZED and self.refused is not None:
            self.refused()
        # A proxy's error page may repeat the request, and errors are logged: the token that was sent is masked.
        token = response.request_info.headers.get("Authorization", "").rpartition(" ")[2].encode()
        # The other form of Retry-After, a date, is not used by API servers and means None.
        retry_after = response.headers.get("Retry-After")
        return errors.from_status(
            response.status,
            text.replace(token, b"***") if token else text,
            attempted=call.attempted,
            retry_after_seconds=None if retry_after is None else errors.RETRY_AFTER_SECONDS.find(retry_after.strip()),
        )


def guarding() -> aiohttp.TraceConfig:
    """Return the hooks that ask the write guard right before bytes go out.

    A request may have waited for a connection, or for a new one after the server had closed the first (the library
    sends PUT and DELETE once more then). Headers are only put together after the first hook; they leave with the body
    in one piece, which may be a turn of the event loop later, directly after the second hook. Without a body they
    leave directly after the first. The library closes the connection when a hook raises.
    """

    async def ask_again(_: aiohttp.ClientSession, trace: SimpleNamespace, __: object) -> None:
        if trace.trace_request_ctx is not None:  # a WebSocket writes no object
            trace.trace_request_ctx.ask()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(ask_again)
    trace.on_request_chunk_sent.append(ask_again)
    return trace


@asynccontextmanager
async def _within(seconds: float, call: Call) -> AsyncIterator[None]:
    """Limit the time of the body, and turn errors of the network into Unreachable."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        message = f"no answer within {seconds:g} s"
        raise errors.Unreachable(0, "Timeout", message, attempted=call.attempted) from error
    except (aiohttp.ClientError, OSError) as error:
        raise errors.Unreachable(0, type(error).__name__, str(error), attempted=call.attempted) from error
