"""How often a client may cause work: token buckets, one for each key, and a log line a minute for what was refused.

Both are bounded: of the keys that were not used for longest nothing is remembered, and a bucket that is not remembered
is full. A limit over all keys together is a bucket with one key.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

CAPACITY: Final = 1024
TELL_EVERY_SECONDS: Final = 60.0


class Throttled(Exception):  # noqa: N818 - called after what happened
    """This client has asked for too much; ``retry_after_seconds`` says when it may ask again."""

    def __init__(self, retry_after_seconds: float) -> None:
        """Keep the time."""
        super().__init__(f"again in {retry_after_seconds:.1f} s")
        self.retry_after_seconds = retry_after_seconds


class Latest(OrderedDict[K, V]):
    """The entries that were set last, at most ``capacity``."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Start empty."""
        super().__init__()
        self._capacity = capacity

    def __setitem__(self, key: K, value: V) -> None:
        """Set an entry and make it the latest; drop the oldest entry when there are too many."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._capacity:
            self.popitem(last=False)


class Buckets(Generic[K]):
    """Each key may do ``burst`` things at once and ``per_second`` in the long run."""

    def __init__(
        self, *, burst: float, per_second: float, monotonic: Callable[[], float], capacity: int = CAPACITY
    ) -> None:
        """Start with every bucket full; ``monotonic`` tells seconds."""
        self._burst = burst
        self._per_second = per_second
        self._monotonic = monotonic
        self._levels: Latest[K, tuple[float, float]] = Latest(capacity)

    def take(self, key: K) -> None:
        """Take one token from the bucket of ``key``. Raises Throttled when less than one token is left."""
        now = self._monotonic()
        level, at = self._levels.get(key, (self._burst, now))
        level = min(self._burst, level + (now - at) * self._per_second)
        enough = level >= 1.0
        self._levels[key] = (level - 1.0 if enough else level, now)
        if not enough:
            raise Throttled((1.0 - level) / self._per_second)


class Refusals:
    """Counts the refused requests of each caller, and says when to log them: at once, then at most once a minute."""

    def __init__(self, *, monotonic: Callable[[], float], capacity: int = CAPACITY) -> None:
        """Start without refused requests; ``monotonic`` tells seconds."""
        self._monotonic = monotonic
        self._told: Latest[str, tuple[float, int]] = Latest(capacity)

    def count(self, caller: str) -> int:
        """Count a refused request; return how many requests to log now, 0 if the last line is under a minute old."""
        now = self._monotonic()
        told_at, silent = self._told.get(caller, (now - TELL_EVERY_SECONDS, 0))
        due = now - told_at >= TELL_EVERY_SECONDS
        self._told[caller] = (now, 0) if due else (told_at, silent + 1)
        return silent + 1 if due else 0
