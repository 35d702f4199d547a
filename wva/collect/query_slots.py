"""Which query goes next: a few run at the same time, and those that every decision needs go first.

These are the essential queries. The others begin when the essential ones of the cycle have been asked. They always
leave some slots free, so that an essential query that is asked again finds one. They wait for a limited time only, so
that one slow namespace does not keep them from being asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final

CONCURRENT_QUERIES: Final = 8


class Rank(Enum):
    """How many queries of a kind run at the same time."""

    ESSENTIAL = CONCURRENT_QUERIES
    OTHER = 4
    SUSPECT = 2
    """About a namespace that has failed before: each may take as long as a query can."""


class QuerySlots:
    """The slots of one collector."""

    def __init__(self) -> None:
        """All slots are free."""
        self._all = asyncio.Semaphore(CONCURRENT_QUERIES)
        self._ranks = {rank: asyncio.Semaphore(rank.value) for rank in Rank}

    @asynccontextmanager
    async def taken(self, rank: Rank) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        async with self._ranks[rank], self._all:
            yield


class Order:
    """The order of one round of queries; times are those of the event loop."""

    def __init__(self, *, begins_latest: float) -> None:
        """Let the other queries begin at the latest at this time."""
        self._begins_latest = begins_latest
        self._running = 0
        self._asked = asyncio.Event()

    @asynccontextmanager
    async def essential(self) -> AsyncIterator[None]:
        """Keep the other queries waiting meanwhile."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._asked.set()

    def begin(self) -> None:
        """Let the other queries begin."""
        self._asked.set()

    async def turn(self) -> None:
        """Wait until the other queries may begin."""
        try:
            async with asyncio.timeout_at(self._begins_latest):
                await self._asked.wait()
        except TimeoutError:
            pass
