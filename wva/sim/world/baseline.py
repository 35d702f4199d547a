"""The results of an HPA and of a fixed fleet on the traffic of a run, simulated in a process beside the run.

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
    """Tell whether the stage can play the scenario, and whether the run is long enough to say something."""
    return duration_seconds >= _LEAST_SECONDS and unplayable(scenario) is None


def compared(scenario: Scenario, seed: int) -> dict[str, Figures]:
    """Play the policies one after the other and return their figures by name."""
    traffic = scenario.traffic(seed)  # made once
    scenario = replace(scenario, traffic=lambda _: traffic)
    return {name: run(scenario, name, seed).figures for name in COMPARED}


class ComparisonProcess:
    """Plays the policies in a process of its own, which ends when this process ends."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        """Start the process, at a lower priority than the run."""
        context = get_context("spawn")
        self._answer, child_end = context.Pipe(duplex=False)
        arguments = (child_end, scenario, seed)
        self._process = context.Process(target=_answer, args=arguments, daemon=True)
        with _interrupts_blocked():
            self._process.start()
        child_end.close()

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
                figures: dict[str, Figures] = self._answer.recv()
                return figures
        return None


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C for processes that start in the block, from their first instruction on: the run ends them.

    A Ctrl-C that comes meanwhile is delivered to the run at the end of the block.
    """
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _answer(answer: Connection, scenario: Scenario, seed: int) -> None:
    os.nice(_NICENESS)
    answer.send(compared(scenario, seed))
