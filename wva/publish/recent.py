"""The last cycles, kept in memory: what the explanations and the console of a running controller stand on.

The newest cycle is kept as it is. Older ones are kept as compressed recordings, about a hundred bytes for each replica,
and bounded by their bytes: a small fleet keeps an hour, a large one less. Compressing runs in a thread.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from typing import Final

import msgspec

from wva.publish.recordings import Recording

MOST_CYCLES: Final = 240
"""An hour with a cycle each 15 s."""
MOST_BYTES: Final = 32 * 1024**2
_FASTEST: Final = 1

_decoder: Final = msgspec.json.Decoder(Recording)


class RecentCycles:
    """Keeps the recordings of the last cycles."""

    def __init__(self, *, most_cycles: int = MOST_CYCLES, most_bytes: int = MOST_BYTES) -> None:
        """Start empty."""
        self._most_cycles = most_cycles
        self._most_bytes = most_bytes
        self._kept: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self.newest: Recording | None = None
        self._next: asyncio.Future[float] | None = None

    async def keep(self, recording: Recording) -> None:
        """Keep a cycle, and forget the oldest ones beyond the limits."""
        self.newest = recording
        if self._next is not None:
            self._next.set_result(recording.now)
            self._next = None
        data = await asyncio.to_thread(lambda: zlib.compress(msgspec.json.encode(recording), _FASTEST))
        self._kept.append((recording.now, data))
        self._bytes += len(data)
        while self._kept and (len(self._kept) > self._most_cycles or self._bytes > self._most_bytes):
            self._bytes -= len(self._kept.popleft()[1])

    async def next(self) -> float:
        """Wait for the next cycle, and return when it began, in seconds since the epoch."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._next)  # all who wait share it

    @property
    def times(self) -> tuple[float, ...]:
        """When each kept cycle began, in seconds since the epoch, the oldest first."""
        return tuple(now for now, _ in self._kept)

    def at(self, when: float) -> Recording | None:
        """Return the last cycle that began at ``when`` or before, in seconds since the epoch; None if none is kept."""
        if self.newest is not None and self.newest.now <= when:
            return self.newest
        data = next((data for now, data in reversed(self._kept) if now <= when), None)
        return None if data is None else _decoder.decode(zlib.decompress(data))
