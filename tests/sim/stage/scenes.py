"""Small scenarios of one or two variants, and a controller that does what a script says."""

from __future__ import annotations

import numpy as np

from wva.model.objectives import Objectives
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.users import GatewaySettings
from wva.sim.stage.scenario import Scenario, StartUp, VariantSetup, WorldObservation
from wva.sim.traffic.requests import Traffic

ENGINE = EngineParameters(
    alpha_seconds=0.02,
    beta_seconds_per_sequence=0.0002,
    prefill_seconds_per_token=0.0001,
    num_gpu_blocks=1000,
    max_num_seqs=16,
    max_num_batched_tokens=2048,
    max_model_len=4096,
)
"""With prompts of 200 and answers of 50 tokens one replica serves about ten requests per second."""

PATIENT = GatewaySettings(patience_seconds=30.0, attempts=1)
"""Users who make one attempt, and wait half a minute."""


def evenly(rate, seconds, *, prompt=200, output=50):
    """Return traffic of equal requests at equal distances."""
    count = int(rate * seconds)
    return of_times((np.arange(count) + 0.5) / rate if count else np.empty(0), seconds, prompt=prompt, output=output)


def of_times(arrival, seconds, *, prompt=200, output=50):
    """Return traffic of equal requests at some times."""
    count = len(arrival)
    alone, nothing = np.full(count, -1), np.zeros(count, dtype=np.int64)
    return Traffic(
        seconds,
        np.asarray(arrival, dtype=np.float64),
        np.full(count, prompt),
        np.full(count, output),
        alone,
        nothing,
        nothing,
        np.random.default_rng(1).random(count),
    )


def variant(name="a", *, price=10.0, **rest):
    """Return a variant whose pods are Ready after a minute."""
    return VariantSetup(name, "A100", ENGINE, price, start_up=StartUp(60.0, 0.0), **rest)


def scene(traffic, *variants, gateway=PATIENT, **rest):
    """Return a scenario with this traffic, for any seed."""
    return Scenario(
        "scene",
        "a scene",
        "test",
        variants or (variant(),),
        lambda _seed: traffic,
        objectives=Objectives(1.0, 0.1),
        gateway=gateway,
        observation=rest.pop("observation", WorldObservation()),
        **rest,
    )


class ScriptedScale:
    """A controller that sets replicas at given times: ``{seconds: {variant: replicas}}``."""

    period_seconds = 1.0

    def __init__(self, steps):
        """Take the script; no entry is done yet."""
        self._steps = dict(sorted(steps.items()))
        self.seen = []

    def act(self, stage, now_seconds):
        """Set the replicas that are due, and record the present ones."""
        for at in [at for at in self._steps if at <= now_seconds]:
            for name, replicas in self._steps.pop(at).items():
                stage.scale(name, replicas)
        self.seen.append((now_seconds, {name: view.pods for name, view in stage.variants.items()}))
