"""Fetches kept answers again between cycles, so that a cycle finds young ones and an outage is seen before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from wva.clock import Clock
from wva.collect.answer_cache import CacheSettings


class BackgroundFetch:
    """Calls ``refresh`` with the time (seconds since the epoch), once per fetch interval while there is one."""

    def __init__(
        self, refresh: Callable[[float], Awaitable[None]], *, settings: Callable[[], CacheSettings], clock: Clock
    ) -> None:
        """Take what fetches; it must not raise."""
        self._refresh = refresh
        self._settings = settings
        self._clock = clock
        self._changed = asyncio.Event()

    def settings_changed(self) -> None:
        """Look at the settings again; an interval that changed counts from now."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._changed.clear()
            seconds = self._settings().background_seconds
            if not await self._clock.wait(self._changed, seconds or None):
                await self._refresh(self._clock.now())
