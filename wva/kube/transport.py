"""HTTP as the API server speaks it: one request out, its body or its lines in, failures as our own errors.

This module knows no kinds, and it does not know where credentials come from: the caller passes a function that adds
them to the headers of each request. Every wait has a limit, every status is checked, every request is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Final, TypeAlias
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from wva import __version__
from wva.instruments import Instruments
from wva.kube import errors
from wva.numbers import Whole

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
_UNAUTHORIZED: Final = 401
_RETRY_AFTER_SECONDS: Final = Whole(0, 3600)
"""A server that asks for more is not believed: the usual backoff holds."""

Guard: TypeAlias = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
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

    @property
    def attempted(self) -> str:
        """What an error says was tried; without the query, which may be long."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """An open connection pool with credentials."""

    session: aiohttp.ClientSession
    host: str
    authorize: Callable[[dict[str, str]], Awaitable[None]]
    refused: Callable[[], None]
    instruments: Instruments
    timeout_seconds: float
    proxy: str | None = None
    server_hostname: str | None = None

    async def send(self, call: Call) -> aiohttp.ClientResponse:
        """Send one request and return the response once its headers are there; count it.

        Raises what aiohttp raises, and WriteRefused. The caller limits the time. Compression is not asked for: inside
        a cluster bandwidth is cheaper than the CPU on both sides. Redirects are not followed, the token stays here.
        """
        headers = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": f"wva/{__version__}"}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        permission = _Permission(call)
        code = "0"
        try:
            await self.authorize(headers)
            permission.ask()
            response = await self._request(call, headers, permission)
            code = str(response.status)
        except aiohttp.ClientError as error:
            # A refusal while the body is written comes out wrapped: the library takes it for a failed connection.
            if permission.refused is None:
                raise
            raise permission.refused from error
        finally:
            self.instruments.api_requests.labels(verb=call.verb, resource=call.resource, code=code).inc()
        return response

    async def _request(self, call: Call, headers: Mapping[str, str], permission: _Permission) -> aiohttp.ClientResponse:
        query = f"?{urlencode(call.query)}" if call.query else ""
        return await self.session.request(
            call.method,
            URL(f"{self.host}{call.path}{query}", encoded=True),
            data=call.body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            allow_redirects=False,
            proxy=self.proxy,
            server_hostname=self.server_hostname,
            trace_request_ctx=permission,
        )

    async def exchange(self, call: Call) -> bytes:
        """Send one request and return the body of a 2xx answer. Raises ApiError."""
        with _as_unreachable(call, self.timeout_seconds):
            async with asyncio.timeout(self.timeout_seconds), await self.send(call) as response:
                body = await (_read_body(call, response) if response.status in _OK else _read_refusal(response))
        self.check(call, response, body)
        return body

    async def lines(self, call: Call, idle_seconds: float) -> AsyncGenerator[bytes, None]:
        """Send one request and yield the lines of a 2xx answer as they come. Raises ApiError.

        ``idle_seconds`` limits the wait for the headers and for each chunk, not the whole: silence raises StreamIdle.
        """
        with _as_unreachable(call, idle_seconds):
            async with asyncio.timeout(idle_seconds):
                response = await self.send(call)
        try:
            if response.status not in _OK:
                with _as_unreachable(call, idle_seconds):
                    async with asyncio.timeout(idle_seconds):
                        body = await _read_refusal(response)
                self.check(call, response, body)
            async with aclosing(split_lines(call, response.content, idle_seconds)) as lines:
                async for line in lines:
                    yield line
        finally:
            # Closing, not releasing: an unfinished stream must not go back to the pool.
            response.close()

    def check(self, call: Call, response: aiohttp.ClientResponse, body: bytes) -> None:
        """Raise the ApiError that a status outside 2xx means."""
        if response.status in _OK:
            return
        if response.status == _UNAUTHORIZED:
            self.refused()
        raise errors.from_status(
            response.status,
            _without_token(body, response),
            attempted=call.attempted,
            retry_after_seconds=_retry_after_seconds(response.headers.get("Retry-After")),
        )


def _without_token(body: bytes, response: aiohttp.ClientResponse) -> bytes:
    """Mask the token that was sent: a proxy's error page may repeat the request, and errors are logged."""
    token = response.request_info.headers.get("Authorization", "").rpartition(" ")[2].encode()
    return body.replace(token, b"***") if token else body


async def _read_body(call: Call, response: aiohttp.ClientResponse) -> bytes:
    """Read the body of an answer. Raises TooLarge, and closes the connection, as soon as it is known to be too long."""
    body = bytearray()
    if (response.content_length or 0) <= MAX_BODY_BYTES:
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                break
        else:
            return bytes(body)
    response.close()
    raise errors.TooLarge(response.status, "TooLarge", f"more than {MAX_BODY_BYTES} bytes", attempted=call.attempted)


async def _read_refusal(response: aiohttp.ClientResponse) -> bytes:
    """Read as much of the body of a refusal as can matter."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) >= MAX_REFUSAL_BYTES:
            response.close()
            break
    return bytes(body[:MAX_REFUSAL_BYTES])


@dataclass(slots=True)
class _Permission:
    """Whether a call may be sent, asked again and again on its way to the socket."""

    call: Call
    refused: errors.WriteRefused | None = field(default=None, init=False)

    def ask(self) -> None:
        """Raise WriteRefused when the call's guard says no."""
        guard = self.call.guard
        if guard is not None and not guard():
            self.refused = errors.WriteRefused(
                0, "WriteRefused", "not allowed to write now", attempted=self.call.attempted
            )
            raise self.refused


def guarding() -> aiohttp.TraceConfig:
    """Return the hooks that ask for permission right before bytes go out, on every way that leads there.

    A request may have waited for a connection, or for a new one after the server had closed the first (the library
    sends PUT and DELETE once more then). Headers are only put together after the first hook; they leave with the body
    in one piece, which may be a turn of the event loop later, directly after the second hook. Without a body they
    leave directly after the first. The library closes the connection when a hook raises.
    """
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(_ask_again)
    trace.on_request_chunk_sent.append(_ask_again)
    return trace


async def _ask_again(_: aiohttp.ClientSession, trace: SimpleNamespace, __: object) -> None:
    trace.trace_request_ctx.ask()


def _retry_after_seconds(value: str | None) -> float | None:
    """Return the header's seconds; the other form, a date, is not used by API servers and means None."""
    return None if value is None else _RETRY_AFTER_SECONDS.find(value.strip())


@contextmanager
def _as_unreachable(call: Call, timeout_seconds: float) -> Iterator[None]:
    """Turn what the network throws into Unreachable."""
    try:
        yield
    except TimeoutError as error:
        message = f"no answer within {timeout_seconds:g} s"
        raise errors.Unreachable(0, "Timeout", message, attempted=call.attempted) from error
    except (aiohttp.ClientError, OSError) as error:
        raise errors.Unreachable(0, type(error).__name__, str(error), attempted=call.attempted) from error


async def split_lines(call: Call, content: aiohttp.StreamReader, idle_seconds: float) -> AsyncGenerator[bytes, None]:
    """Split a body at newlines; of a line longer than MAX_LINE_BYTES only the beginning is yielded.

    That, and a last line without newline, is for the decoder to judge: one object must not end the stream, since the
    next one would bring it again.
    """
    pending = bytearray()
    while chunk := await _read_chunk(call, content, idle_seconds):
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


async def _read_chunk(call: Call, content: aiohttp.StreamReader, idle_seconds: float) -> bytes:
    """Return the next data, empty at the end."""
    try:
        with _as_unreachable(call, idle_seconds):
            async with asyncio.timeout(idle_seconds):
                return await content.readany()
    except errors.Unreachable as error:
        if error.reason != "Timeout":
            raise
        raise errors.StreamIdle(0, "Idle", f"nothing for {idle_seconds:g} s", attempted=call.attempted) from error
