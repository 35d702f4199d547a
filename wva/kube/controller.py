"""Workers: a key from the queue goes into ``reconcile``, its result or failure says when the key comes back.

Out of a reconcile comes ``Done`` (come back on a change), ``After(seconds)`` (look again by then) or an exception (try
again with backoff; logged here, once, with the key). A reconcile that takes longer than its time-out is cancelled and
tried again; being cancelled because the process stops is something else and passes through. Workers start when every
cache they read has synced: acting on half a cache would undo the work of the other half.

The time-out runs on the event loop, not on the injected clock: it guards against hanging sockets, which live in real
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, Generic, TypeAlias

from structlog.contextvars import bound_contextvars

from wva import log
from wva.clock import Clock
from wva.instruments import Instruments
from wva.kube.errors import ApiError, WriteRefused
from wva.kube.workqueue import K, QueueShutDown, WorkQueue
from wva.slices import Slices

SYNC_COMPLAINT_SECONDS: Final = 120.0  # controller-runtime gives up after 2 minutes; we say so and keep waiting

_log = log.get("kube.controller")


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do before something changes."""


@dataclass(frozen=True, slots=True)
class After:
    """Reconcile the key again after ``seconds`` of the clock, or earlier."""

    seconds: float


Result: TypeAlias = Done | After


@dataclass(slots=True)
class Controller(Generic[K]):
    """``workers`` tasks that take keys from ``queue`` and ``reconcile`` them, each at most ``timeout_seconds``."""

    name: str
    queue: WorkQueue[K]
    reconcile: Callable[[K], Awaitable[Result]]
    _: KW_ONLY
    clock: Clock
    instruments: Instruments
    workers: int = 1
    timeout_seconds: float = 60.0

    async def run(self, wait_for: Sequence[asyncio.Event] = ()) -> None:
        """Wait until every event of ``wait_for`` is set (the caches have synced), then work until the queue shuts down.

        After the queue's ``shut_down`` the reconciles in progress end first. Cancelling stops them where they are.
        """
        await self._wait_for_caches(wait_for)
        _log.info("controller_started", controller=self.name, workers=self.workers)
        async with asyncio.TaskGroup() as group:
            for number in range(self.workers):
                group.create_task(self._work(), name=f"{self.name}-worker-{number}")
        _log.info("controller_stopped", controller=self.name)

    async def _wait_for_caches(self, synced: Sequence[asyncio.Event]) -> None:
        for event in synced:
            while not await self.clock.wait(event, SYNC_COMPLAINT_SECONDS):
                missing = sum(not other.is_set() for other in synced)
                _log.warning("caches_not_synced", controller=self.name, missing=missing)

    async def _work(self) -> None:
        # A reconcile may answer its cancellation with an ordinary error from its clean-up; the flag still knows.
        task, slices = asyncio.current_task(), Slices()
        while task is None or not task.cancelling():
            try:
                key = await self.queue.get()
            except QueueShutDown:
                return
            try:
                with bound_contextvars(controller=self.name, key=str(key)):
                    await self._process(key)
            except BaseException:
                # All workers end and start again, and those that did not fail are cancelled. No key must be lost.
                self.queue.add(key)
                raise
            finally:
                self.queue.done(key)
            # A reconcile that has nothing to write waits for nothing, and thousands of keys may be queued.
            await slices.rest()

    async def _process(self, key: K) -> None:
        started = self.clock.monotonic()
        try:
            result = await self._attempt(key)
        finally:
            self.instruments.reconcile_duration.labels(controller=self.name).observe(self.clock.monotonic() - started)
        if result is None:
            self.queue.add_rate_limited(key)
            return
        self.queue.forget(key)
        if isinstance(result, After):
            self.queue.add_after(key, result.seconds)

    async def _attempt(self, key: K) -> Result | None:
        """Return the result, or None when there is none; then the reason has been logged and counted."""
        limit = asyncio.timeout(self.timeout_seconds)
        try:
            async with limit:
                result = await self.reconcile(key)
        except WriteRefused as refusal:
            # Not a fault of this key, so it is no error: the lease is gone or not ours yet, its holder does the work.
            _log.debug("reconcile_refused", error=str(refusal))
            return None
        except ApiError as error:
            _log.warning("reconcile_failed", error=str(error), retries=self.queue.retries(key))
            self._count("error")
            return None
        except Exception as error:  # noqa: BLE001 - one key's fault must not end the worker
            if isinstance(error, TimeoutError) and limit.expired():
                _log.warning("reconcile_timed_out", timeout_seconds=self.timeout_seconds)
                self._count("timeout")
                return None
            _log.exception("reconcile_failed", error=str(error), retries=self.queue.retries(key))
            self._count("error")
            return None
        self._count("success")
        return result

    def _count(self, result: str) -> None:
        self.instruments.reconciles.labels(controller=self.name, result=result).inc()
