"""Loops that run as long as the process: one that raises is started again, and one that stays away shows in a probe.

An exception that a loop does not foresee ends that loop and no other. It is logged, counted, and the loop is started
again after a delay that grows with each failure. A loop that goes on failing, or says of itself that it is stuck, makes
``unhealthy`` name it; then ``/healthz`` fails, and the kubelet restarts the container. To end a loop, cancel it. Tasks
whose end has to be the end of the process, such as holding the lease, are not supervised.
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
"""A loop that has run for this long has come back."""

AWAY_SECONDS: Final = 300.0
"""A loop that has not come back for this long needs a new process."""

_BASE_SECONDS: Final = 1.0
_CAP_SECONDS: Final = 30.0

Check: TypeAlias = Callable[[float], str | None]
"""Told the monotonic time, returns why a loop needs a new process; None when it does not."""

_log = log.get("kube.supervision")


class UnexpectedEnd(Exception):  # noqa: N818 - called after what happened
    """A task that should never end has ended without an error."""

    def __init__(self, name: str) -> None:
        """Name the task."""
        super().__init__(f"task {name} ended, which it should never do")


@dataclass(slots=True, eq=False)
class _State:
    """Since when a loop fails, and since when it runs; None: not at all. In monotonic seconds."""

    name: str
    failing: float | None = None
    running: float | None = None
    error: str = ""

    def settle(self, now: float) -> None:
        """Forget the failures of a loop that has run for long enough since."""
        if self.running is not None and now - self.running >= STEADY_SECONDS:
            self.failing = None


class Supervisor:
    """Runs the loops of one process."""

    def __init__(self, *, clock: Clock, instruments: Instruments, random: Random | None = None) -> None:
        """``random`` spreads the restarts."""
        self._clock = clock
        self._restarts = instruments.loop_restarts
        self._random = random
        self._states: list[_State] = []
        self._checks: list[Check] = []

    async def keep(self, name: str, run: Callable[[], Awaitable[object]]) -> NoReturn:
        """Run a loop until this is cancelled, again and again if it fails or ends."""
        counter, state = self._restarts.labels(name), _State(name)
        self._states.append(state)
        backoff = Backoff(base_seconds=_BASE_SECONDS, cap_seconds=_CAP_SECONDS, random=self._random)
        try:
            while True:
                state.running = self._clock.monotonic()
                error = await _failure(name, run)
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
        """Ask ``check`` as well, for a loop that may be stuck without an error."""
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


async def _failure(name: str, run: Callable[[], Awaitable[object]]) -> BaseException:
    """Run a loop until it fails or ends, and return its error. Raises CancelledError if this task is cancelled."""
    task = asyncio.current_task()
    try:
        await run()
    except asyncio.CancelledError as error:
        # A loop may raise this although no one has cancelled it; its task group would then go on without it.
        if task is None or task.cancelling():
            raise
        return error
    except Exception as error:  # noqa: BLE001 - this is what supervises
        return error
    return UnexpectedEnd(name)
