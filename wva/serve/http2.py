"""An HTTP/2 connection of a client that nobody trusts: grpclib answers its requests, within limits.

h2 and grpclib work off whatever has arrived in one piece of the event loop, and count nothing but streams. Here a
connection is read frame by frame, in slices that take turns with other connections and leave most of the loop to
the rest of the process. A client that sends too many requests or frames without requests, does not read its answers,
or says nothing, is cut off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from grpclib.protocol import H2Protocol
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from h2.utilities import SizeLimitDict

from wva.serve.listener import ListenerLimits, ServedConnection
from wva.slices import SLICE_SECONDS

SHARE: Final = 0.25
"""How much of the event loop all connections of a server may take."""
_LONGEST_REST_SECONDS: Final = 0.25
_PREFACE_BYTES: Final = 24
_HEADER_BYTES: Final = 9
_FRAME_BYTES: Final = 16 * 1024
"""The size of frames that every peer must accept, and that nobody asked us to raise."""
_FRAMES_OF_A_REQUEST: Final = 8
"""Of a gRPC client: headers, message, a ping that measures the way, updates of windows."""
_SETTINGS_BYTES: Final = 96
"""Sixteen settings; h2 keeps each, also one that it does not know."""
_SETTINGS_FRAMES: Final = 64
"""For the whole life of a connection. A client sends one, and a few when it adapts its window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Limits(ListenerLimits):
    """What a client may do with a connection.

    ``streams`` may be open at a time. ``requests_per_second`` may follow in the long run, and ``streams`` at once.
    Each request allows a few more frames. Without requests, ``frames`` may come, and ``frames_per_second`` in the long
    run.
    The first request is due within ``first_seconds``. ``idle_seconds`` may pass without an open stream, and
    ``unread_seconds`` while the client reads nothing.
    """

    connections: int = 64
    eviction_seconds: float = 0.02
    streams: int = 5120
    requests_per_second: float = 1000.0
    frames: float = 1000.0
    frames_per_second: float = 100.0
    first_seconds: float = 10.0
    idle_seconds: float = 90.0
    unread_seconds: float = 30.0


class FrameType(IntEnum):
    """The types of RFC 9113, section 6. A frame of another type means nothing, and h2 does not see it."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flood(Exception):  # noqa: N818 - what a client does
    """A client has sent more than it may."""


class FrameAllowance:
    """Counts the frames of one connection."""

    def __init__(self, limits: Http2Limits, now: float) -> None:
        """Begin full; ``now`` is in seconds of any clock that does not go back."""
        self._limits = limits
        self._requests, self._frames = float(limits.streams), limits.frames
        self._settings = 0
        self._at = now

    def take(self, kind: int, size: int, now: float) -> None:
        """Count a frame with a content of ``size`` bytes. Raises Flood if it is one too many."""
        limits, passed, self._at = self._limits, now - self._at, now
        self._requests = min(limits.streams, self._requests + passed * limits.requests_per_second)
        if self._frames < limits.frames:
            self._frames = min(limits.frames, self._frames + passed * limits.frames_per_second)
        if kind == FrameType.HEADERS:
            self._requests -= 1
            most = limits.frames + limits.streams * _FRAMES_OF_A_REQUEST
            self._frames = min(most, self._frames + _FRAMES_OF_A_REQUEST)
        elif kind == FrameType.RST_STREAM:
            self._frames -= 1 + _FRAMES_OF_A_REQUEST  # a request that is taken back brought no right to anything
        else:
            self._frames -= 1
        self._settings += kind == FrameType.SETTINGS
        excess = size > _FRAME_BYTES or (kind == FrameType.SETTINGS and size > _SETTINGS_BYTES)
        if excess or self._settings > _SETTINGS_FRAMES or kind == FrameType.CONTINUATION:  # no gRPC client needs it
            raise Flood
        if self._requests < 0 or self._frames < 0:
            raise Flood


class ReadingTurns:
    """Lets one connection at a time read, in the order in which they ask, and the rest of the process in between."""

    def __init__(self, share: float = SHARE) -> None:
        """Take at most ``share`` of the event loop."""
        self._rest = 1 / share - 1
        self._lock = asyncio.Lock()
        self._free_at = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn. When the event loop has much to do, a turn takes longer, and the next one is later."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            await asyncio.sleep(max(0.0, self._free_at - loop.time()))
            began = time.thread_time()
            try:
                yield
            finally:
                spent = time.thread_time() - began
                self._free_at = loop.time() + min(spent * self._rest, _LONGEST_REST_SECONDS)


class Http2Connection(H2Protocol, ServedConnection):
    """A connection with its limits. grpclib's class reads the frames and writes the answers."""

    transport: asyncio.Transport

    def __init__(
        self, protocol: H2Protocol, limits: Http2Limits, turns: ReadingTurns, *, closed: Callable[[str], None]
    ) -> None:
        """Do what ``protocol`` would do, with limits. ``closed`` is called with the cause when this side ends it."""
        super().__init__(protocol.handler, protocol.config, protocol.h2_config)
        self.waiting = 0
        """How many requests wait for their client now, for a message or for a window."""
        self._limits = limits
        self._turns = turns
        self._closed = closed
        self._received = bytearray()
        self._preface_bytes = _PREFACE_BYTES
        self._requested = False
        self._streamed_at = 0.0
        self._changed = asyncio.Event()
        self._unread_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._allowance = FrameAllowance(limits, self._loop.time())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say how many streams may be open."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - tells mypy
        self.transport = transport
        super().connection_made(transport)
        state = self.connection._connection  # noqa: SLF001 - grpclib has no setting for either
        state.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: self._limits.streams})
        state._closed_streams = SizeLimitDict(size_limit=self._limits.streams)  # noqa: SLF001 - h2 remembers 65,536
        self.connection.flush()

    def data_received(self, data: bytes) -> None:
        """Keep what has come until it is read, and take no more meanwhile."""
        self._received += data
        self.transport.pause_reading()
        self._changed.set()

    def pause_writing(self) -> None:
        """Read no more either: answers would pile up."""
        super().pause_writing()
        self._unread_since = self._loop.time()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._unread_since = None
        self._changed.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the requests."""
        super().connection_lost(exc)
        self._changed.set()

    def abort(self, cause: str = "") -> None:
        """Close at once. What was not sent yet is lost."""
        transport = getattr(self, "transport", None)  # none before the end of the handshake
        if transport is not None:
            if cause:
                self._closed(cause)
            transport.abort()

    async def hold(self) -> None:
        """Read until the connection ends."""
        caller.set(self)  # the tasks of its requests begin here
        try:
            while not self.transport.is_closing():
                self._changed.clear()
                if self._unread_since is None:
                    if self._next_bytes():
                        async with self._turns.turn():
                            await self._read_slice()
                        continue
                    self.transport.resume_reading()
                due, cause = self._due()
                if due <= self._loop.time():
                    self.abort(cause)
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._changed.wait()
        except Flood:
            self.connection._connection.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)  # noqa: SLF001 - grpclib cannot say it
            self.connection.flush()
            self.abort("flood")

    def _due(self) -> tuple[float, str]:
        """Return when the connection ends if nothing happens until then, and why."""
        limits = self._limits
        if self._unread_since is not None:
            return self._unread_since + limits.unread_seconds, "slow"
        if self.processor.streams:
            self._streamed_at = self._loop.time()
            return self._streamed_at + limits.idle_seconds, "idle"
        if self._requested:
            return max(self.last_used_at, self._streamed_at) + limits.idle_seconds, "idle"
        return self.last_used_at + limits.first_seconds, "slow"

    def _next_bytes(self) -> int:
        """Return the length of what can be read next: the preface, or one frame. 0 if it is not complete."""
        received = self._received
        if self._preface_bytes:
            return min(self._preface_bytes, len(received))
        if len(received) < _HEADER_BYTES:
            return 0
        size = int.from_bytes(received[:3], "big")
        if size > _FRAME_BYTES:
            raise Flood
        return _HEADER_BYTES + size if len(received) >= _HEADER_BYTES + size else 0

    async def _read_slice(self) -> None:
        until = time.thread_time() + SLICE_SECONDS
        while self._unread_since is None and not self.transport.is_closing():
            size, now = self._next_bytes(), self._loop.time()
            if not size or time.thread_time() >= until:
                break
            data = bytes(self._received[:size])
            del self._received[:size]
            if self._preface_bytes:
                self._preface_bytes -= size
                super().data_received(data)
                continue
            kind = data[3]
            self._allowance.take(kind, size - _HEADER_BYTES, now)
            if kind <= FrameType.CONTINUATION:
                super().data_received(data)
            if kind == FrameType.HEADERS:
                self._requested, self.last_used_at = True, now
                # The task of the request begins now. grpclib never forgets a stream that is reset before its task.
                await asyncio.sleep(0)
        await asyncio.sleep(0)  # the work that the frames have caused is part of the turn


caller: ContextVar[Http2Connection] = ContextVar("caller")
"""The connection of the request that is being answered."""
