"""Long work beside the event loop, which has to serve probes, watches and the renewal of the Lease meanwhile.

Work on what may change on the loop (the caches, the ledger) is done there, in slices: ``Slices.rest`` lets the others
take their turn once a slice is used up. Pure work on values of its own goes into a thread; there the interpreter
switches to the loop every few milliseconds. Small work is done at once: it takes less time than a thread does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

R = TypeVar("R")

SLICE_SECONDS: Final = 0.01
SMALL: Final = 64
"""Variants, or things that cost about as much. Deciding on a variant with ten replicas takes half a millisecond."""


class Slices:
    """Measures how long one task has kept the loop."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        """Begin the first slice."""
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    async def rest(self) -> None:
        """Return at once, or after the turn of all others if the slice is used up."""
        if time.monotonic() >= self._end:
            await asyncio.sleep(0)
            self._end = time.monotonic() + self._seconds


async def beside(size: int, work: Callable[[], R]) -> R:
    """Return what ``work`` returns. With more than ``SMALL`` things it works in a thread.

    It must not read what the loop may change, nor change what the loop may read. Raises what ``work`` raises.
    """
    return work() if size <= SMALL else await asyncio.to_thread(work)
