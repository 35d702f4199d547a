"""Clocks for tests: one with the time of the event loop (for looptime), and one that a test advances."""

from __future__ import annotations

import asyncio

from wva.clock import SystemClock

WALL_START = 1_700_000_000.0


class LoopClock(SystemClock):
    """The time of the running loop. Under looptime, waiting takes no real time."""

    def now(self) -> float:
        """Return a wall-clock time."""
        return WALL_START + self.monotonic()

    def monotonic(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()


class ManualClock:
    """A clock that only ``advance`` moves. The loop's time does not matter to it."""

    def __init__(self) -> None:
        """Start at 1000 s."""
        self._seconds = 1000.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def now(self) -> float:
        """Return a wall-clock time."""
        return WALL_START + self._seconds

    def monotonic(self) -> float:
        """Return the current time of this clock."""
        return self._seconds

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has advanced by ``seconds``."""
        await self._alarm(seconds).wait()

    async def wait(self, event: asyncio.Event, timeout_seconds: float | None) -> bool:
        """Return when the event is set, or when the clock has advanced by ``timeout_seconds``."""
        alarm = asyncio.Event() if timeout_seconds is None else self._alarm(timeout_seconds)
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(alarm.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return event.is_set()

    async def advance(self, seconds: float) -> None:
        """Advance the time from alarm to alarm, and let all tasks run after each of them."""
        end = self._seconds + seconds
        await settle()
        while due := [when for when, alarm in self._sleepers if when <= end and not alarm.is_set()]:
            self._seconds = max(self._seconds, min(due))
            for when, alarm in self._sleepers:
                if when <= self._seconds:
                    alarm.set()
            await settle()
        self._seconds = end
        await settle()

    def _alarm(self, seconds: float) -> asyncio.Event:
        alarm = asyncio.Event()
        self._sleepers.append((self._seconds + seconds, alarm))
        return alarm


async def settle() -> None:
    """Let every task run until it waits for time or input."""
    for _ in range(20):
        await asyncio.sleep(0)
