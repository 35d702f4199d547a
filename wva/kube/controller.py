"""Workers take keys from the queue and call ``reconcile``; its result or failure says when the key comes back.

``reconcile`` returns ``Done`` (reconcile on the next change) or ``After(seconds)`` (reconcile by then), or raises an
exception (try again with backoff; logged here, once, with the key). A server that asks for a longer pause gets it, up
to two minutes, and the pauses are spread, so that keys that failed together do not come back together. A reconcile that
takes longer than its time-out is cancelled and tried again. A cancellation because the process stops passes through.
Workers start when every cache that they read has synced, because a reconcile with half a cache would undo work that the
other half explains.

The time-out runs on the event loop, not on the injected clock: it guards against hanging sockets, which live in real
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from random import Random
from typing import Final, Generic, TypeAlias

from structlog.contextvars import bound_contextvars

from wva import log
from wva.clock import Clock
from wva.instruments import Instruments
from wva.kube.backoff import MAX_RETRY_AFTER_SECONDS
from wva.kube.errors import ApiError, WriteRefused
from wva.kube.workqueue import K, WorkQueue
from wva.slices import Slices

JITTER: Final = 0.2
"""A pause after a failure is longer by up to this part of it."""
SYNC_COMPLAINT_SECONDS: Final = 120.0  # controller-runtime gives up after 2 minutes; we say so and keep waiting

_log = log.get("kube.controller")


@dataclass(frozen=True, slots=True)
class Done:
    """Reconcile the key again only when something changes."""


@dataclass(frozen=True, slots=True)
class After:
    """Reconcile the key again after ``seconds`` of the clock, or earlier."""

    seconds: float


Result: TypeAlias = Done | After


@dataclass(slots=True)
class Controller(Generic[K]):
    """``workers`` tasks that take keys from ``queue`` and ``reconcile`` them, each at most ``timeout_seconds``.

    ``random`` spreads the pauses after failures; without it they are exact.
    """

    name: str
    queue: WorkQueue[K]
    reconcile: Callable[[K], Awaitable[Result]]
    _: KW_ONLY
    clock: Clock
    instruments: Instruments
    workers: int = 1
    timeout_seconds: float = 60.0
    random: Random | None = None

    async def run(self, wait_for: Sequence[asyncio.Event] = ()) -> None:
        """Wait until every event of ``wait_for`` is set (the caches have synced), then work until cancelled.

        Cancelling stops the reconciles in progress where they are.
        """
        for event in wait_for:
            while not await self.clock.wait(event, SYNC_COMPLAINT_SECONDS):
                missing = sum(not synced.is_set() for synced in wait_for)
                _log.warning("caches_not_synced", controller=self.name, missing=missing)
        _log.info("controller_started", controller=self.name, workers=self.workers)
        async with asyncio.TaskGroup() as group:
            slices = Slices()
            for number in range(self.workers):
                group.create_task(self._work(slices), name=f"{self.name}-worker-{number}")

    async def _work(self, slices: Slices) -> None:
        """Reconcile keys until cancelled. All workers share one slice."""
        # A cancelled reconcile may raise an ordinary error from its clean-up; the flag still shows the cancellation.
        task = asyncio.current_task()
        while task is None or not task.cancelling():
            key = await self.queue.get()
            try:
                with bound_contextvars(controller=self.name, key=str(key)):
                    await self._process(key)
            except BaseException:
                # When one worker fails, all workers are cancelled and start again. No key must be lost.
                self.queue.add(key)
                raise
            finally:
                self.queue.done(key)
            # A reconcile without a write never awaits, and thousands of keys may be queued, so let other tasks run.
            await slices.rest()

    async def _process(self, key: K) -> None:
        """Reconcile one key; log and count how that went, and say when the key comes back."""
        outcome, result, asked_seconds = "error", None, 0.0
        started = self.clock.monotonic()
        limit = asyncio.timeout(self.timeout_seconds)
        try:
            async with limit:
                result = await self.reconcile(key)
            outcome = "success"
        except WriteRefused as refusal:
            # This is no fault of the key: this process does not hold the lease, and the leader does the work.
            _log.debug("reconcile_refused", error=str(refusal))
            outcome = ""
        except ApiError as error:
            asked_seconds = min(error.retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS)
            _log.warning("reconcile_failed", error=str(error), retries=self.queue.retries(key))
        except Exception as error:  # noqa: BLE001 - one key's fault must not end the worker
            if isinstance(error, TimeoutError) and limit.expired():
                _log.warning("reconcile_timed_out", timeout_seconds=self.timeout_seconds)
                outcome = "timeout"
            else:
                _log.exception("reconcile_failed", error=str(error), retries=self.queue.retries(key))
        finally:
            self.instruments.reconcile_duration.labels(controller=self.name).observe(self.clock.monotonic() - started)
        if outcome:
            self.instruments.reconciles.labels(controller=self.name, result=outcome).inc()
        if result is None:
            spread = 1.0 if self.random is None else 1.0 + self.random.uniform(0.0, JITTER)
            self.queue.add_rate_limited(key, at_least_seconds=asked_seconds, spread=spread)
            return
        self.queue.forget(key)
        if isinstance(result, After):
            self.queue.add_after(key, result.seconds)
