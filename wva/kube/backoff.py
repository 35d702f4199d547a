"""How long to wait before the next try: exponential with full jitter, so that many clients do not come back together.

Time is an argument and the source of randomness a parameter: the same calls give the same delays.
"""

from __future__ import annotations

from random import Random
from typing import Final

MAX_RETRY_AFTER_SECONDS: Final = 120.0
"""A server's Retry-After is honoured up to here; a larger one must not blind the controller for hours."""


class Backoff:
    """Delays for one thing that is tried again and again.

    The upper bound doubles with each failure from ``base_seconds`` to ``cap_seconds``; the delay is uniform below it.
    After ``reset_after_seconds`` without a failure (counted from the end of the last delay) it starts over.
    The defaults are those of client-go's reflector.
    """

    def __init__(
        self,
        *,
        base_seconds: float = 0.8,
        cap_seconds: float = 30.0,
        reset_after_seconds: float = 120.0,
        random: Random | None = None,
    ) -> None:
        """Start without failures; times are in seconds."""
        self._base_seconds = base_seconds
        self._cap_seconds = cap_seconds
        self._reset_after_seconds = reset_after_seconds
        self._random = random or Random()  # noqa: S311 - spreads load, guards no secret
        self._bound_seconds = base_seconds
        self._ready_at: float | None = None

    def next(self, now: float, *, retry_after_seconds: float | None = None) -> float:
        """Count a failure at ``now`` (monotonic seconds) and return how many seconds to wait.

        The result is at least ``retry_after_seconds`` when the server asked for it, up to MAX_RETRY_AFTER_SECONDS.
        """
        if self._ready_at is not None and now - self._ready_at > self._reset_after_seconds:
            self.reset()
        delay = self._random.uniform(0.0, self._bound_seconds)
        self._bound_seconds = min(self._bound_seconds * 2.0, self._cap_seconds)
        if retry_after_seconds is not None:
            delay = max(delay, min(retry_after_seconds, MAX_RETRY_AFTER_SECONDS))
        self._ready_at = now + delay
        return delay

    def reset(self) -> None:
        """Forget all failures."""
        self._bound_seconds, self._ready_at = self._base_seconds, None
