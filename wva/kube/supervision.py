"""Runs loops for as long as the process: restarts a loop that raises, and lets a probe fail for one that keeps failing.

An unexpected exception ends one loop and no other. The supervisor logs and counts it, and starts the loop again after a
delay that grows with each failure. If a loop goes on failing, or reports that it is stuck, ``unhealthy`` names it; then
``/healthz`` fails, and the kubelet restarts the container. To end a loop, cancel it. Tasks that must end the process
when they end, such as holding the lease, are not supervised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final, NoReturn, TypeAlias

from wva import log
from wva.clock import Clock
from wva.instruments import Instruments
from wva.kube.backoff import Backoff

STEADY_SECONDS: Final = 60.0
"""A loop that has run for so long counts as recovered."""
AWAY_SECONDS: Final = 300.0
"""A loop that has not recovered for so long needs a new process."""

Check: TypeAlias = Callable[[float], str | None]
"""Takes the monotonic time, and returns why a loop needs a new process; None if it does not."""

_log = log.get("kube.supervision")


class UnexpectedEnd(Exception):  # noqa: N818 - called after what happened
    """A task that should never end has ended without an error."""

    def __init__(self, name: str) -> None:
        """Name the task."""
        super().__init__(f"task {name} ended, which it should never do")


@dataclass(slots=True, eq=False)
class _State:
    """Since when a loop fails and since when it runs, in monotonic seconds. None: it does not."""

    name: str
    failing: float | None = None
    running: float | None = None
    error: str = ""

    def settle(self, now: float) -> None:
        """Forget the failures if the loop has run for long enough since."""
        if self.running is not None and now - self.running >= STEADY_SECONDS:
            self.failing = None


class Supervisor:
    """Runs the loops of one process."""

    def __init__(self, *, clock: Clock, instruments: Instruments, random: Random | None = None) -> None:
        """Supervise nothing yet. ``random`` spreads the restarts."""
        self._clock = clock
        self._restarts = instruments.loop_restarts
        self._random = random
        self._states: list[_State] = []
        self._checks: list[Check] = []

    async def keep(self, name: str, run: Callable[[], Awaitable[object]]) -> NoReturn:
        """Run a loop until this is cancelled, again and again if it fails or ends."""
        task, counter, state = asyncio.current_task(), self._restarts.labels(name), _State(name)
        self._states.append(state)
        backoff = Backoff(base_seconds=1.0, cap_seconds=30.0, random=self._random)
        try:
            while True:
                state.running = self._clock.monotonic()
                try:
                    await run()
                    error: BaseException = UnexpectedEnd(name)
                except asyncio.CancelledError as cancelled:
                    # A loop may raise this without a cancellation; then the task group would go on without the loop.
                    if task is None or task.cancelling():
                        raise
                    error = cancelled
                except Exception as failed:  # noqa: BLE001 - a failed loop is started again
                    error = failed
                now = self._clock.monotonic()
                state.settle(now)
                state.running, state.error = None, type(error).__name__
                if state.failing is None:
                    state.failing = now
                counter.inc()
                delay = backoff.next(now)
                _log.error("loop_failed", loop=name, restart_seconds=round(delay, 3), exc_info=error)
                await self._clock.sleep(delay)
        finally:
            self._states.remove(state)

    def watch(self, check: Check) -> None:
        """Add a check for a loop that may be stuck without an error; ``unhealthy`` calls it."""
        self._checks.append(check)

    def unhealthy(self) -> list[str]:
        """Return why the process should be replaced, one line for each loop, for ``/healthz``; empty when it is not."""
        now = self._clock.monotonic()
        reasons = []
        for state in self._states:
            state.settle(now)
            if state.failing is not None and now - state.failing > AWAY_SECONDS:
                reasons.append(f"{state.name}: fails for {now - state.failing:.0f} s ({state.error})")
        return reasons + [reason for check in self._checks if (reason := check(now)) is not None]
