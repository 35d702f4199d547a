"""What an HPA and a fixed fleet would have come to on the traffic of a run, played in a process beside it.

They are the policies of the scorecard (``wva.sim.rivals``) on its stage, with the requests, engines, prices and bounds
of the run; pods take as long to start on average. Incidents and limits on GPUs are not on the stage, so a scenario that
has them is not compared.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import Final

import numpy as np

from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.fleet.fleet import arrivals
from wva.sim.fleet.load import LoadSpec
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.replica import PoolKey
from wva.sim.fleet.service_log import ServiceLevel
from wva.sim.fleet.users import GatewaySettings
from wva.sim.rivals import run
from wva.sim.stage.result import Figures
from wva.sim.stage.scenario import Scenario, StartUp, VariantSetup, WorldObservation
from wva.sim.traffic.requests import Traffic
from wva.sim.world.scenario import MODEL_ID, NAMESPACE, WorldScenario

COMPARED: Final[Mapping[str, str]] = {
    "hpa-kv": "an HPA for each variant, which aims at 70% of the KV cache",
    "static-peak": "the cheapest fixed fleet for the peak, which one has to know",
}
"""The policies by name, in words. ``docs/rivals.md`` has all about them."""
_LEAST_SECONDS: Final = 600.0
_SPREAD: Final = 0.115
"""Standard deviation over mean of the world's start-up times, evenly between 120 and 180 s."""
_NICENESS: Final = 10
_PATIENCE_SECONDS: Final = 120.0
"""So long a run that has ended waits for what it is compared with, in seconds of the machine."""


def comparable(scenario: WorldScenario, duration_seconds: float) -> bool:
    """Tell whether the stage can play what happens, and it is long enough to say something."""
    return duration_seconds >= _LEAST_SECONDS and not scenario.incidents and not scenario.gpus


def on_stage(scenario: WorldScenario, duration_seconds: float) -> Scenario:
    """Return the scenario for the stage."""
    level = ServiceLevel()
    return Scenario(
        scenario.name,
        scenario.title,
        kind="demo",
        variants=tuple(
            VariantSetup(
                plan.name,
                plan.accelerator,
                PRESETS[plan.accelerator],
                plan.cost,
                plan.replicas,
                plan.minimum,
                plan.maximum,
                StartUp((plan.loading.least_seconds + plan.loading.most_seconds) / 2, _SPREAD),
            )
            for plan in scenario.variants
        ),
        traffic=partial(traffic, scenario.load, duration_seconds),
        objectives=Objectives(level.time_to_first_token_seconds, level.inter_token_latency_seconds),
        gateway=GatewaySettings(),
        observation=WorldObservation(scrape_seconds=scenario.scrape_seconds),
        hpa_seconds=scenario.scaler_seconds,
    )


def traffic(load: LoadSpec, duration_seconds: float, seed: int) -> Traffic:
    """Return the requests that the fleet of the world gets, as the columns of the stage."""
    process = arrivals(load, PoolKey(NAMESPACE, MODEL_ID), seed=seed)
    taken = []
    while process.next_seconds < duration_seconds:
        taken.append(process.take())
    none = np.zeros(len(taken), dtype=np.int64)
    return Traffic(
        duration_seconds=duration_seconds,
        arrival_seconds=np.array([request.arrival_seconds for request in taken], dtype=np.float64),
        prompt_tokens=np.array([request.prompt_tokens for request in taken], dtype=np.int64),
        output_tokens=np.array([request.output_tokens for request in taken], dtype=np.int64),
        group=none - 1,
        prefix_tokens=none,
        shared_tokens=none,
        draw=np.array([request.draw for request in taken], dtype=np.float64),
    )


def compared(scenario: WorldScenario, duration_seconds: float, seed: int) -> dict[str, Figures]:
    """Play the policies one after the other and return their figures by name."""
    stage = on_stage(scenario, duration_seconds)
    own = stage.traffic(seed)
    stage = replace(stage, traffic=lambda _: own)  # made once
    return {name: run(stage, name, seed).figures for name in COMPARED}


class ComparisonProcess:
    """Plays the policies in a process of its own, which ends with this one."""

    def __init__(self, scenario: WorldScenario, duration_seconds: float, seed: int) -> None:
        """Start it; it gives way to the run."""
        context = get_context("spawn")
        self._answer, theirs = context.Pipe(duplex=False)
        words = (theirs, scenario, duration_seconds, seed)
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


def _answer(answer: Connection, scenario: WorldScenario, duration_seconds: float, seed: int) -> None:
    os.nice(_NICENESS)
    answer.send(compared(scenario, duration_seconds, seed))
