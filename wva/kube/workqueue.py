"""The work queue between watches and reconcilers: keys in, keys out, each key with at most one worker at a time.

The rules are those of client-go's queue. A key is *queued* (waits for a worker), *processing* (a worker has it) or
unknown; a key added while it is being processed is remembered as *dirty* and queued again by ``done``. Hence adding a
key many times costs one reconcile, no two workers ever hold one key, and a change that arrives during a reconcile is
not lost. In addition each key has at most one *delayed* entry, at the earliest time that a caller asked for. To queue a
key now does not remove its delayed entry: one reconcile too many is harmless, a lost timer is not.

There are two priorities: keys from the first list of a watch are ``low``, so that a real change overtakes them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from wva.clock import Clock
from wva.instruments import Instruments

K = TypeVar("K", bound=Hashable)

BACKOFF_BASE_SECONDS: Final = 0.005  # client-go's defaults: 5 ms, doubled by every failure, at most 1000 s
BACKOFF_CAP_SECONDS: Final = 1000.0
_SHORTEST_WAIT_SECONDS: Final = 0.001  # timers are coarser than clocks: a shorter wait may return at once, for ever
_MAX_DOUBLINGS: Final = 18  # 5 ms * 2^18 is above the cap; more doublings change nothing


def backoff_seconds(failures: int) -> float:
    """Return the delay before the retry after ``failures`` earlier failures of the same key."""
    return min(BACKOFF_BASE_SECONDS * 2.0 ** min(failures, _MAX_DOUBLINGS), BACKOFF_CAP_SECONDS)


class WorkQueue(Generic[K]):
    """A queue whose delays pass as ``clock`` passes. Not thread-safe: everything happens on one event loop."""

    def __init__(
        self, name: str, *, clock: Clock, instruments: Instruments, cap_seconds: float = BACKOFF_CAP_SECONDS
    ) -> None:
        """Create an empty queue; ``name`` is the label of its metrics, ``cap_seconds`` the longest backoff."""
        self.name = name
        self._cap_seconds = cap_seconds
        self._clock = clock
        # Dicts keep insertion order and let a key leave the middle when its priority rises.
        self._high: dict[K, None] = {}
        self._low: dict[K, None] = {}
        self._processing: set[K] = set()
        self._dirty: dict[K, bool] = {}  # being processed and added again; the value tells whether with low priority
        self._due: dict[K, float] = {}
        self._timeline: list[tuple[float, int, K]] = []  # heap; an entry that disagrees with _due has been superseded
        self._sequence = itertools.count()
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()
        self._depth = instruments.queue_depth.labels(queue=name)
        self._adds = instruments.queue_adds.labels(queue=name)
        self._retries = instruments.queue_retries.labels(queue=name)
        self._depth.set(0)

    def add(self, key: K, *, low: bool = False) -> None:
        """Queue ``key`` now."""
        self.add_all((key,), low=low)

    def add_all(self, keys: Iterable[K], *, low: bool = False) -> None:
        """Queue keys now, and wake the workers only once, since a fleet has thousands of keys."""
        self._adds.inc(sum([self._enqueue(key, low=low) for key in keys]))
        self._notify()

    def add_after(self, key: K, seconds: float) -> None:
        """Queue ``key`` in ``seconds`` of the clock; an earlier time already asked for stays."""
        self._delay(key, seconds)
        self._adds.inc()
        self._notify()

    def add_rate_limited(self, key: K, *, at_least_seconds: float = 0.0, spread: float = 1.0) -> None:
        """Queue ``key`` after a backoff that doubles with every call until ``forget``.

        The backoff is at least ``at_least_seconds``, and then it is multiplied by ``spread``.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._delay(key, max(min(backoff_seconds(failures), self._cap_seconds), at_least_seconds) * spread)
        self._retries.inc()
        self._notify()

    def forget(self, key: K) -> None:
        """Start the backoff of ``key`` afresh; what is queued or delayed stays."""
        self._failures.pop(key, None)

    def retries(self, key: K) -> int:
        """Return the failures of ``key`` since it was last forgotten."""
        return self._failures.get(key, 0)

    def backing_off(self, key: K) -> bool:
        """Tell whether ``key`` has failed and waits for its next try, which no worker has begun."""
        return key in self._failures and key in self._due and key not in self._processing

    async def get(self) -> K:
        """Wait for the next key; the caller must call ``done`` afterwards."""
        while True:
            now = self._clock.monotonic()
            self._promote(now)
            waiting = self._high or self._low
            if waiting:
                key = next(iter(waiting))
                del waiting[key]
                self._processing.add(key)
                self._depth.set(len(self._high) + len(self._low))
                return key
            due = self.next_due
            await self._clock.wait(self._changed, None if due is None else max(due - now, _SHORTEST_WAIT_SECONDS))

    def done(self, key: K) -> None:
        """Give back a key; it is queued again if it was added meanwhile. KeyError if ``get`` did not return it."""
        self._processing.remove(key)
        if key in self._dirty:
            self._enqueue(key, low=self._dirty.pop(key))
        self._notify()

    def __len__(self) -> int:
        """Return how many keys wait for a worker; due keys count, keys in work and delayed keys do not."""
        self._promote(self._clock.monotonic())
        return len(self._high) + len(self._low)

    @property
    def idle(self) -> bool:
        """Whether the queue does nothing more until the clock moves or a caller adds a key."""
        return not len(self) and not self._processing

    @property
    def next_due(self) -> float | None:
        """The clock's monotonic time at which the earliest delayed key becomes ready."""
        while self._timeline and self._due.get(self._timeline[0][2]) != self._timeline[0][0]:
            heapq.heappop(self._timeline)
        return self._timeline[0][0] if self._timeline else None

    def _enqueue(self, key: K, *, low: bool = False) -> bool:
        """Queue a key, or remember it until its worker is done; tell whether it was neither queued nor dirty."""
        if key in self._processing:
            fresh = key not in self._dirty
            self._dirty[key] = low and self._dirty.get(key, True)
            return fresh
        fresh = key not in self._high and key not in self._low
        if low and fresh:
            self._low[key] = None
        elif not low:
            self._low.pop(key, None)
            self._high.setdefault(key)
        return fresh

    def _delay(self, key: K, seconds: float) -> None:
        if seconds <= 0:
            self._enqueue(key)
            return
        due = self._clock.monotonic() + seconds
        if self._due.get(key, math.inf) > due:
            self._due[key] = due
            heapq.heappush(self._timeline, (due, next(self._sequence), key))

    def _promote(self, now: float) -> None:
        """Queue the delayed keys that are due by now."""
        while (due := self.next_due) is not None and due <= now:
            _, _, key = heapq.heappop(self._timeline)
            del self._due[key]
            self._enqueue(key)

    def _notify(self) -> None:
        # A set event is replaced, never cleared: a worker that waits on the old one cannot miss it.
        self._depth.set(len(self))
        self._changed.set()
        self._changed = asyncio.Event()
