"""The parts of a run: the variants, the users, their objectives, and the faults. Times are virtual seconds.

The stage plays it for the scorecard and for a backtest, and the embedded world for the demo and for tests. Each refuses
what it cannot play with an ``UnplayableError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import exp
from random import Random
from typing import Final

from wva.model.objectives import DEFAULT_OBJECTIVES, Objectives
from wva.model.records import replace
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.users import GatewaySettings
from wva.sim.stage.faults import Fault
from wva.sim.traffic.requests import Traffic

MODEL_ID: Final = "org/model"
"""The ID of a scenario's model, unless the scenario names another."""


@dataclass(frozen=True, slots=True)
class StartUp:
    """How long a new pod takes from its creation until it is Ready.

    A median with a lognormal spread (``sigma``). With ``pull_probability`` the image has to be pulled first, and that
    takes ``pull_seconds`` more.
    """

    median_seconds: float = 110.0
    sigma: float = 0.25
    pull_probability: float = 0.0
    pull_seconds: float = 0.0

    def draw(self, random: Random) -> float:
        """Return how long one pod takes, in seconds."""
        seconds = self.median_seconds * exp(self.sigma * random.gauss(0.0, 1.0))
        return seconds + (self.pull_seconds if random.random() < self.pull_probability else 0.0)


def start_up_random(seed: int) -> Random:
    """Return the source of the start-up times of a run. The pods of a run draw in order of their creation."""
    return Random(f"{seed}/start-up")


class DrawnPhases:
    """When repeated events come first. A run draws these times from its seed, so nothing is in step, as in a cluster.

    Two worlds with the same seed have the same phases, so that a difference between them is not chance.
    """

    def __init__(self, seed: int) -> None:
        """Begin to draw."""
        self._seed = seed
        self._controllers = Random(f"{seed}/controllers")

    def next_controller(self, period_seconds: float) -> float:
        """Return when the next controller acts first. With WVA, its cycles are the first and the HPAs the second."""
        return self._controllers.random() * period_seconds

    def scrapes(self, pod: str, period_seconds: float) -> float:
        """Return at which second of each period a pod is scraped, in whole seconds as in the embedded Prometheus."""
        return float(int(Random(f"{self._seed}/scrapes/{pod}").random() * period_seconds))


@dataclass(frozen=True, slots=True)
class VariantSetup:
    """One variant of the scenario's model; ``price`` is per replica and hour, and a replica has ``gpus`` GPUs.

    ``role``: what its pods compute of a request, as ``wva.model.roles`` has it; empty for all of it.
    """

    name: str
    accelerator: str
    parameters: EngineParameters
    price: float
    replicas: int = 1
    minimum: int = 1
    maximum: int = 30
    start_up: StartUp = field(default=StartUp())
    gpus: int = 1
    role: str = ""


@dataclass(frozen=True, slots=True)
class WorldObservation:
    """How the world is watched.

    ``scrape_seconds`` is the period of scrapes of each pod, at a phase of its own; ``lost_share`` of them fail.
    ``discovery_seconds``: how long Prometheus takes to notice a new pod. ``controller_scrape_seconds``: the period of
    scrapes of an autoscaler's own page. ``adapter_seconds``: how old an external metric may be when an HPA reads it.
    """

    scrape_seconds: float = 15.0
    lost_share: float = 0.0
    discovery_seconds: float = 5.0
    controller_scrape_seconds: float = 10.0
    adapter_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """The traffic of a model, the variants that may serve it, and their world; perhaps with other models beside it.

    ``traffic`` makes the requests of a seed, and a run is as long as their time. Before ``measured_from_seconds``
    nothing counts, so policies that learn start like the others. ``kind`` is what similar scenarios have in common.
    """

    name: str
    title: str
    kind: str
    variants: tuple[VariantSetup, ...]
    traffic: Callable[..., Traffic] = field(repr=False)
    objectives: Objectives = field(default=DEFAULT_OBJECTIVES)
    gateway: GatewaySettings = field(default=GatewaySettings(patience_seconds=60.0, attempts=2, retry_seconds=2.0))
    observation: WorldObservation = field(default=WorldObservation())
    interval_seconds: float = 15.0
    """Period of the WVA controller's cycles."""
    hpa_seconds: float = 15.0
    """Period of the HPA controller."""
    hpa_down_seconds: float = 60.0
    """How long the HPA that applies the number of WVA waits before it scales down."""
    drain_seconds: float = 30.0
    measured_from_seconds: float = 0.0
    faults: tuple[Fault, ...] = ()
    """What goes wrong."""
    gpus: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The GPUs of the cluster by accelerator. Without any there are no nodes, and every pod is placed at once."""
    others: tuple[Scenario, ...] = ()
    """Other models of the cluster, which share its GPUs: each has its own traffic, variants, users and faults."""
    model_id: str = MODEL_ID
    """The ID by which a controller tells this model from the others."""
    saturation: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The data of the controller's saturation ConfigMap."""

    def lasting(self, duration_seconds: float) -> Scenario:
        """Return the scenario with traffic of another duration; only where ``traffic`` takes ``duration_seconds``."""
        return replace(self, traffic=partial(self.traffic, duration_seconds=duration_seconds))

    @property
    def models(self) -> tuple[Scenario, ...]:
        """The scenario of each model by itself."""
        return (replace(self, others=()), *self.others)

    @property
    def by_role(self) -> tuple[Scenario, ...]:
        """The model with the variants of each role apart, in their order; itself where there are no roles."""
        roles = dict.fromkeys(setup.role for setup in self.variants)
        return tuple(
            replace(self, variants=tuple(setup for setup in self.variants if setup.role == role)) for role in roles
        )

    @property
    def all_variants(self) -> tuple[VariantSetup, ...]:
        """The variants of one model after the other."""
        return tuple(setup for model in self.models for setup in model.variants)

    def changed(self, change: Callable[[Scenario], Scenario]) -> Scenario:
        """Return the scenario with each of its models changed by itself."""
        first, *others = map(change, self.models)
        return replace(first, others=tuple(others))

    @property
    def afterwards_seconds(self) -> float:
        """How long after the last request a run goes on, so that what waits is served or given up."""
        return min(self.gateway.patience_seconds, 600.0) * self.gateway.attempts + 600.0
