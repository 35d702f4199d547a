"""Time as a dependency.

Effects take a ``Clock`` instead of reading the time, so that tests and the embedded world decide when time passes.
Decisions never see a clock: they get ``now`` as an argument. Timers that guard real sockets (idle limits, HTTP
time-outs, lease calls) do not use this module but the event loop, because a socket lives in real time.
"""

from __future__ import annotations

import asyncio
import time
from email.utils import parsedate_to_datetime
from typing import Final, Protocol

_LONGEST_DATE: Final = 64


def seconds_of_date(date: str) -> float | None:
    """Return the epoch seconds of a header ``Date``: when a server answered by its own clock. None if it is no date."""
    try:
        return parsedate_to_datetime(date[:_LONGEST_DATE]).timestamp()
    except (ValueError, OverflowError):
        return None


class Clock(Protocol):
    """Tells the time and waits. All values are seconds."""

    def now(self) -> float:
        """Return the wall-clock time in seconds since the epoch."""

    def monotonic(self) -> float:
        """Return a time that never goes back; only differences have a meaning."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of this clock; not before the next loop iteration."""

    async def wait(self, event: asyncio.Event, timeout_seconds: float | None) -> bool:
        """Wait for ``event`` at most ``timeout_seconds`` (None: without limit); tell whether it is set."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        """Return the wall-clock time in seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return the monotonic clock in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, timeout_seconds: float | None) -> bool:
        """Wait for ``event`` at most ``timeout_seconds``; tell whether it is set."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await event.wait()
        except TimeoutError:
            return event.is_set()
        return True
