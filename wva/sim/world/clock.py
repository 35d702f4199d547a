"""Virtual time, which passes only when the world advances it.

The controller in the embedded world gets this clock instead of the machine's. Timers that guard real sockets do not go
through it. ``pass_to`` lets time pass, ``fire_due`` fires the timers: between them the world can act at a moment before
the controller does. ``waking`` counts timers that fired and whose waiters have not run yet: until it is zero the
controller is still about to do something.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

EPOCH_SECONDS: Final = 1_767_225_600.0
"""Virtual time zero: 2026-01-01T00:00:00Z, so that runs do not depend on today."""


@dataclass(order=True, slots=True)
class _Timer:
    due_seconds: float
    number: int
    fire: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)


class VirtualClock:
    """A Clock whose time is set from outside."""

    def __init__(self) -> None:
        """Start at virtual time zero."""
        self.elapsed_seconds = 0.0
        self.waking = 0
        self._timers: list[_Timer] = []
        self._numbers = 0

    def now(self) -> float:
        """Return the virtual wall-clock time in seconds since the epoch."""
        return EPOCH_SECONDS + self.elapsed_seconds

    def monotonic(self) -> float:
        """Return the virtual seconds since the start."""
        return self.elapsed_seconds

    @property
    def next_due_seconds(self) -> float | None:
        """When the next timer fires, in virtual seconds since the start; None when there is none."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0].due_seconds if self._timers else None

    async def sleep(self, seconds: float) -> None:
        """Return when virtual time has advanced by ``seconds``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._start(seconds, lambda: None if future.done() else future.set_result(None))
        try:
            await future
        finally:
            self._stop(timer)

    async def wait(self, event: asyncio.Event, timeout_seconds: float | None) -> bool:
        """Wait for ``event`` at most ``timeout_seconds`` of virtual time; tell whether it is set."""
        if timeout_seconds is None:
            await event.wait()
            return True
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(None)
        timer = self._start(timeout_seconds, lambda: limit.reschedule(loop.time()))
        try:
            async with limit:
                await event.wait()
        except TimeoutError:
            return event.is_set()
        finally:
            self._stop(timer)
        return True

    def advance_to(self, seconds: float) -> None:
        """Set virtual time (seconds since the start) and fire every timer that is due, in order of time.

        Raises ValueError when that time is in the past.
        """
        self.pass_to(seconds)
        self.fire_due()

    def pass_to(self, seconds: float) -> None:
        """Set virtual time (seconds since the start); nothing fires. Raises ValueError when it is in the past."""
        if seconds < self.elapsed_seconds:
            raise ValueError(f"virtual time cannot go back from {self.elapsed_seconds} to {seconds}")
        self.elapsed_seconds = seconds

    def fire_due(self) -> None:
        """Fire every timer that is due, in order of time."""
        while (due := self.next_due_seconds) is not None and due <= self.elapsed_seconds:
            timer = heapq.heappop(self._timers)
            timer.number = -1
            self.waking += 1
            timer.fire()

    def _start(self, seconds: float, fire: Callable[[], None]) -> _Timer:
        self._numbers += 1
        timer = _Timer(self.elapsed_seconds + max(seconds, 0.0), self._numbers, fire)
        heapq.heappush(self._timers, timer)
        return timer

    def _stop(self, timer: _Timer) -> None:
        """Cancel a timer, or note that the waiter of a fired timer is running again."""
        if timer.number == -1:
            self.waking -= 1
        else:
            timer.cancelled = True
