"""The work queue between watches and reconcilers: keys in, keys out, each key with at most one worker at a time.

``QueueCore`` holds the rules and knows no clock and no event loop: time is an argument, so a state machine can test it.
``WorkQueue`` puts it on an injected ``Clock``: delays pass as that clock passes.

The rules are those of client-go's queue. A key is *queued* (waits for a worker), *processing* (a worker has it) or
unknown; a key added while it is being processed is remembered as *dirty* and queued again by ``done``. Hence adding a
key many times costs one reconcile, no two workers ever hold one key, and a change that arrives during a reconcile is
not lost. Beside that stands at most one *delayed* entry per key, at the earliest time that a caller asked for. Adding a
key at once does not remove its delayed entry: one reconcile too many is harmless, a forgotten timer is not.

Two priorities: what the first list of a watch brings is ``low``, so that a real change overtakes start-up noise.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from wva.clock import Clock
from wva.instruments import Instruments

K = TypeVar("K", bound=Hashable)

BACKOFF_BASE_SECONDS: Final = 0.005  # client-go's defaults: 5 ms, doubled by every failure, at most 1000 s
BACKOFF_CAP_SECONDS: Final = 1000.0
_SHORTEST_WAIT_SECONDS: Final = 0.001  # timers are coarser than clocks: a shorter wait may return at once, for ever
_MAX_DOUBLINGS: Final = 18  # 5 ms * 2^18 is above the cap; more would only make big numbers


class QueueShutDown(Exception):  # noqa: N818 - it is the regular end of a queue, not an error
    """The queue hands out no more keys."""


def backoff_seconds(failures: int) -> float:
    """Return the delay before the retry after ``failures`` earlier failures of the same key."""
    return min(BACKOFF_BASE_SECONDS * 2.0 ** min(failures, _MAX_DOUBLINGS), BACKOFF_CAP_SECONDS)


class QueueCore(Generic[K]):
    """The rules without a clock. ``now`` is any time in seconds that never goes back."""

    def __init__(self) -> None:
        """Start empty."""
        # Dicts keep insertion order and let a key leave the middle when its priority rises.
        self._high: dict[K, None] = {}
        self._low: dict[K, None] = {}
        self._processing: set[K] = set()
        self._dirty: dict[K, bool] = {}  # being processed and added again; the value tells whether with low priority
        self._due: dict[K, float] = {}
        self._timeline: list[tuple[float, int, K]] = []  # heap; an entry that disagrees with _due has been superseded
        self._sequence = itertools.count()
        self._failures: dict[K, int] = {}

    def add(self, key: K, *, low: bool = False) -> bool:
        """Queue ``key`` now; tell whether that was news (it was neither queued nor dirty)."""
        if key in self._processing:
            fresh = key not in self._dirty
            self._dirty[key] = low and self._dirty.get(key, True)
            return fresh
        if key in self._high:
            return False
        if low:
            fresh = key not in self._low
            self._low.setdefault(key)
            return fresh
        fresh = key not in self._low
        self._low.pop(key, None)
        self._high[key] = None
        return fresh

    def add_after(self, key: K, seconds: float, now: float) -> None:
        """Queue ``key`` in ``seconds``, or when it is due already, if that is earlier."""
        if seconds <= 0:
            self.add(key)
            return
        due = now + seconds
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._timeline, (due, next(self._sequence), key))

    def add_rate_limited(self, key: K, now: float) -> float:
        """Count a failure of ``key`` and queue it after its backoff, which is returned in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = backoff_seconds(failures)
        self.add_after(key, delay, now)
        return delay

    def forget(self, key: K) -> None:
        """Start the backoff of ``key`` afresh; what is queued or delayed stays."""
        self._failures.pop(key, None)

    def retries(self, key: K) -> int:
        """Return the failures of ``key`` since it was last forgotten."""
        return self._failures.get(key, 0)

    def take(self, now: float) -> K | None:
        """Hand out the next key, or None. The caller owes a ``done`` for it."""
        self._promote(now)
        for waiting in (self._high, self._low):
            for key in waiting:
                del waiting[key]
                self._processing.add(key)
                return key
        return None

    def done(self, key: K) -> None:
        """Give ``key`` back; it is queued again if it was added meanwhile. KeyError if it was not being processed."""
        self._processing.remove(key)
        low = self._dirty.pop(key, None)
        if low is not None:
            self.add(key, low=low)

    def ready(self, now: float) -> int:
        """Return how many keys wait for a worker; what is due counts."""
        self._promote(now)
        return len(self._high) + len(self._low)

    @property
    def processing(self) -> int:
        """How many keys are with a worker."""
        return len(self._processing)

    @property
    def next_due(self) -> float | None:
        """The time of the earliest delayed key."""
        self._drop_superseded()
        return self._timeline[0][0] if self._timeline else None

    def _promote(self, now: float) -> None:
        while (due := self.next_due) is not None and due <= now:
            _, _, key = heapq.heappop(self._timeline)
            del self._due[key]
            self.add(key)

    def _drop_superseded(self) -> None:
        while self._timeline and self._due.get(self._timeline[0][2]) != self._timeline[0][0]:
            heapq.heappop(self._timeline)


class WorkQueue(Generic[K]):
    """A ``QueueCore`` that can be waited for. Not thread-safe: everything happens on one event loop."""

    def __init__(self, name: str, *, clock: Clock, instruments: Instruments) -> None:
        """Create an empty queue; ``name`` is the label of its metrics."""
        self.name = name
        self._clock = clock
        self._core: QueueCore[K] = QueueCore()
        self._shut_down = False
        self._changed = asyncio.Event()
        self._depth = instruments.queue_depth.labels(queue=name)
        self._adds = instruments.queue_adds.labels(queue=name)
        self._retries = instruments.queue_retries.labels(queue=name)
        self._depth.set(0)

    def add(self, key: K, *, low: bool = False) -> None:
        """Queue ``key`` now. After ``shut_down`` this and the other adds do nothing."""
        if self._shut_down:
            return
        if self._core.add(key, low=low):
            self._adds.inc()
        self._notify()

    def add_all(self, keys: Iterable[K]) -> None:
        """Queue keys now, and wake the workers once: a fleet has thousands."""
        if self._shut_down:
            return
        self._adds.inc(sum([self._core.add(key) for key in keys]))
        self._notify()

    def add_after(self, key: K, seconds: float) -> None:
        """Queue ``key`` in ``seconds`` of the clock; an earlier time already asked for stays."""
        if self._shut_down:
            return
        self._core.add_after(key, seconds, self._clock.monotonic())
        self._adds.inc()
        self._notify()

    def add_rate_limited(self, key: K) -> None:
        """Queue ``key`` after a backoff that doubles with every call until ``forget``."""
        if self._shut_down:
            return
        self._core.add_rate_limited(key, self._clock.monotonic())
        self._retries.inc()
        self._notify()

    def forget(self, key: K) -> None:
        """Reset the backoff of ``key``."""
        self._core.forget(key)

    def done(self, key: K) -> None:
        """Give back a key that ``get`` returned. KeyError if it did not."""
        self._core.done(key)
        self._notify()

    def retries(self, key: K) -> int:
        """Return the failures of ``key`` since it was last forgotten."""
        return self._core.retries(key)

    async def get(self) -> K:
        """Wait for the next key; the caller owes ``done``. Raises QueueShutDown."""
        while not self._shut_down:
            now = self._clock.monotonic()
            key = self._core.take(now)
            if key is not None:
                self._depth.set(self._core.ready(now))
                return key
            due = self._core.next_due
            await self._clock.wait(self._changed, None if due is None else max(due - now, _SHORTEST_WAIT_SECONDS))
        raise QueueShutDown(self.name)

    def shut_down(self) -> None:
        """Accept nothing more and wake every worker.

        Keys still queued are not handed out: reconciliation starts from the state of the world, so the next process
        finds them again, and a process that stops must not start new work.
        """
        self._shut_down = True
        self._notify()

    def __len__(self) -> int:
        """Return how many keys wait for a worker; neither those in work nor those delayed."""
        return self._core.ready(self._clock.monotonic())

    @property
    def idle(self) -> bool:
        """Whether nothing will happen here before the clock moves or a caller adds a key."""
        return not len(self) and not self._core.processing

    @property
    def next_due(self) -> float | None:
        """The clock's monotonic time at which the earliest delayed key becomes ready."""
        return self._core.next_due

    def _notify(self) -> None:
        # A set event is replaced, never cleared: a worker that waits on the old one cannot miss it.
        self._depth.set(len(self))
        self._changed.set()
        self._changed = asyncio.Event()
