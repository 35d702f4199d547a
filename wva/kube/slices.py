"""Long work in slices: between them the event loop does what else is to be done."""

from __future__ import annotations

import asyncio
from typing import Final

SLICE_SECONDS: Final = 0.02


class Slices:
    """Counts from when the current slice has been running. ``await rest()`` between any two small pieces of work."""

    def __init__(self) -> None:
        """Begin a slice."""
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    async def rest(self) -> None:
        """Let others run if this slice has lasted long enough."""
        if self._loop.time() - self._began >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = self._loop.time()
