"""Watch streams: from changes of the store to lines on a connection.

A ``Watch`` buffers encoded lines, which are shared between all watches of a kind, and one coroutine per connection
writes the buffered lines. Bookmarks and time-outs run in the real time of the event loop, as the connection does.
A client that does not read is dropped once too many lines wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from wva.sim.apiserver.collection import ChangeType, Collection, ObjectWrite
from wva.sim.apiserver.errors import ServedError, expired
from wva.sim.apiserver.journal import Journal
from wva.sim.apiserver.objects import JsonObject
from wva.sim.apiserver.selectors import Selection

BACKLOG_LINES: Final = 200_000
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class WatchTransport(Protocol):
    """The connection under a watch."""

    def abort(self) -> None:
        """Break the connection at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """The request of a watch. ``version`` None starts with the present state as ADDED events."""

    selection: Selection
    version: int | None = None
    bookmarks: bool = False
    timeout_seconds: float
    bookmark_seconds: float


class Watch:
    """One open stream."""

    def __init__(self, journal: Journal, collection: Collection, request: WatchRequest) -> None:
        """Fill the buffer with the changes that the client missed, and follow the collection from there on."""
        self._journal = journal
        self._collection = collection
        self._request = request
        self._lines: list[bytes] = []
        self._wake = asyncio.Event()
        self._ended = False
        try:
            self._begin()
        except ServedError as error:
            self.fail(error)
        self.unsubscribe = journal.attach(collection.spec, self)

    def _begin(self) -> None:
        request, collection = self._request, self._collection
        if request.version is None:
            for record in collection.records(request.selection.namespace):
                if request.selection.matches(record.object):
                    self._lines.append(collection.event(ChangeType.ADDED, record))
            self.bookmark({INITIAL_EVENTS_END: "true"})
            return
        for change in collection.since(request.version):
            self.on_change(change)
            change.lines.clear()

    def on_change(self, change: ObjectWrite) -> None:
        """Buffer a change if the client wants to see it."""
        line = None if self._ended else self._collection.line(change, self._request.selection)
        if line is None:
            return
        self._lines.append(line)
        if len(self._lines) > BACKLOG_LINES:
            self._ended = True
        self._wake.set()

    def on_end(self) -> None:
        """End the stream after its buffered lines."""
        self._ended = True
        self._wake.set()

    def fail(self, error: ServedError) -> None:
        """Send an ERROR event and end the stream."""
        self._lines.append(_line("ERROR", error.status()))
        self.on_end()

    def bookmark(self, annotations: JsonObject | None = None) -> None:
        """Buffer a bookmark with the current version, if the client wants bookmarks."""
        if not self._request.bookmarks or self._ended:
            return
        spec = self._collection.spec
        metadata: JsonObject = {"resourceVersion": str(self._journal.version)}
        if annotations:
            metadata["annotations"] = annotations
        self._lines.append(_line("BOOKMARK", {"kind": spec.kind, "apiVersion": spec.api_version, "metadata": metadata}))
        self._wake.set()

    async def stream(self, write: Callable[[bytes], Awaitable[None]], flowing: asyncio.Event) -> None:
        """Write lines until the time-out or the end. Writes nothing while ``flowing`` is not set."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.timeout_seconds
        next_bookmark = loop.time() + self._request.bookmark_seconds
        while True:
            await flowing.wait()
            if self._lines:
                lines, self._lines = self._lines, []
                await write(b"".join(lines))
            elif self._ended:
                return
            elif loop.time() >= deadline:
                self.bookmark()
                self.on_end()
            elif loop.time() >= next_bookmark:
                next_bookmark += self._request.bookmark_seconds
                self.bookmark()
            else:
                await self._wait_until(min(deadline, next_bookmark))

    async def _wait_until(self, moment: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout_at(moment):
                await self._wake.wait()
        except TimeoutError:
            return


class Watches:
    """All open streams of a server, and the faults that affect all of them."""

    def __init__(self, journal: Journal) -> None:
        """Start without streams; none is held back."""
        self._journal = journal
        self._open: dict[Watch, WatchTransport | None] = {}
        self._flowing = asyncio.Event()
        self._flowing.set()

    def __len__(self) -> int:
        """Return the number of open streams."""
        return len(self._open)

    def open(self, collection: Collection, request: WatchRequest, transport: WatchTransport | None) -> Watch:
        """Start a watch."""
        watch = Watch(self._journal, collection, request)
        self._open[watch] = transport
        return watch

    async def run(self, watch: Watch, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Stream an open watch until it ends."""
        await watch.stream(write, self._flowing)

    def close(self, watch: Watch) -> None:
        """Forget a watch."""
        self._open.pop(watch, None)
        watch.unsubscribe()

    def end(self) -> None:
        """End all streams in good order."""
        for watch in tuple(self._open):
            watch.on_end()

    def expire(self) -> None:
        """End all streams with a 410."""
        for watch in tuple(self._open):
            watch.fail(expired("The resourceVersion for the provided watch is too old."))

    def cut(self) -> None:
        """Break the connections of all streams."""
        for watch, transport in tuple(self._open.items()):
            watch.on_end()
            if transport is not None:
                transport.abort()

    def send_bookmarks(self) -> None:
        """Send a bookmark on all streams that take them."""
        for watch in tuple(self._open):
            watch.bookmark()

    def stall(self) -> None:
        """Hold all streams back."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let all streams flow."""
        self._flowing.set()


def _line(kind: str, value: JsonObject) -> bytes:
    return msgspec.json.encode({"type": kind, "object": value}) + b"\n"
