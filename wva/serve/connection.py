"""One connection of a server: passes bytes to the HTTP parser, counts them and watches the time.

The parser answers a request when it is complete; how long that may take and how much may come before is decided here.
Timers are the event loop's: a socket lives in real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a server grants its peers; the times of ``request`` and ``idle`` are those of the original.

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
