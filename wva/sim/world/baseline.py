"""What an HPA and a fixed fleet would have come to on the traffic of a run, played in a process beside it.

They are the policies of the scorecard (``wva.sim.rivals``) on its stage, with the scenario and the requests of the run.
A scenario that the stage cannot play is not compared.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import Final

from wva.model.records import replace
from wva.sim.rivals import run
from wva.sim.stage.result import Figures
from wva.sim.stage.scenario import Scenario
from wva.sim.stage.world import unplayable

COMPARED: Final[Mapping[str, str]] = {
    "hpa-kv": "an HPA for each variant, which aims at 70% of the KV cache",
    "static-peak": "the cheapest fixed fleet for the peak, which one has to know",
}
"""The policies by name, in words. ``docs/rivals.md`` has all about them."""
_LEAST_SECONDS: Final = 600.0
_NICENESS: Final = 10
_PATIENCE_SECONDS: Final = 120.0
"""So long a run that has ended waits for what it is compared with, in seconds of the machine."""


def comparable(scenario: Scenario, duration_seconds: float) -> bool:
    """Tell whether the stage can play what happens, and it is long enough to say something."""
    return duration_seconds >= _LEAST_SECONDS and unplayable(scenario) is None


def compared(scenario: Scenario, seed: int) -> dict[str, Figures]:
    """Play the policies one after the other and return their figures by name."""
    traffic = scenario.traffic(seed)  # made once
    scenario = replace(scenario, traffic=lambda _: traffic)
    return {name: run(scenario, name, seed).figures for name in COMPARED}


class ComparisonProcess:
    """Plays the policies in a process of its own, which ends with this one."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        """Start it; it gives way to the run."""
        context = get_context("spawn")
        self._answer, theirs = context.Pipe(duplex=False)
        words = (theirs, scenario, seed)
        self._process = context.Process(target=_answer, args=words, daemon=True)
        with _interrupts_blocked():
            self._process.start()
        theirs.close()

    @property
    def ready(self) -> bool:
        """Tell whether ``figures`` has something to return at once."""
        with suppress(OSError):
            return self._answer.poll()
        return True

    def figures(self) -> dict[str, Figures] | None:
        """Wait for the figures by name of policy; None where there are none, or Ctrl-C ends the wait."""
        with suppress(EOFError, OSError, KeyboardInterrupt):
            if self._answer.poll(_PATIENCE_SECONDS):
                found: dict[str, Figures] = self._answer.recv()
                return found
        return None


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Have what starts in a block never see Ctrl-C, from its first instruction on: the run gets it, and ends the rest.

    One that comes meanwhile is delivered at the end of the block.
    """
    resource_tracker.ensure_running()  # to start it unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _answer(answer: Connection, scenario: Scenario, seed: int) -> None:
    os.nice(_NICENESS)
    answer.send(compared(scenario, seed))
