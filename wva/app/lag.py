"""How late the event loop is: the time that probes, watches and the renewal of the Lease have to wait for their turn.

A task asks to be woken after a tenth of a second and looks how much later it was. If work holds the loop for a time D,
the task is late by D, less the part of the tenth that had not passed when the work began.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from wva.instruments import Instruments

PERIOD_SECONDS: Final = 0.1
"""Ten measurements a second cost less than a thousandth of a CPU."""


class LoopLag:
    """Measures one event loop. ``longest_seconds`` is the most that was seen since the start."""

    def __init__(self, instruments: Instruments, *, period_seconds: float = PERIOD_SECONDS) -> None:
        """Measure nothing yet. A shorter period sees short pieces of work more exactly, and costs more."""
        self._lag = instruments.event_loop_lag
        self._period = period_seconds
        self.longest_seconds = 0.0

    async def run(self) -> None:
        """Look until cancelled; in real time, also when the controller has another clock."""
        while True:
            due = time.monotonic() + self._period
            await asyncio.sleep(self._period)
            late = max(0.0, time.monotonic() - due)
            self._lag.observe(late)
            self.longest_seconds = max(self.longest_seconds, late)
