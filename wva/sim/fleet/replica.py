"""One pod of the fleet: its engines and whether it takes requests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import NamedTuple

from wva.sim.fleet.engine import Engine
from wva.sim.fleet.parameters import EngineParameters


class ModelKey(NamedTuple):
    """A served model: what a gateway pool stands for."""

    namespace: str
    model_id: str


class PodKey(NamedTuple):
    """A pod's identity."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """One Deployment that serves a model on one accelerator type.

    Attributes:
        namespace: of the Deployment.
        deployment: its name; the fleet's name of the variant.
        model_id: served model, the label ``model_name``.
        accelerator: for people; the parameters decide what happens.
        parameters: of each engine.
        data_parallel_size: engines per pod; each shows its own series, ``engine="0"`` and so on.

    """

    namespace: str
    deployment: str
    model_id: str
    accelerator: str
    parameters: EngineParameters
    data_parallel_size: int = 1

    @property
    def model(self) -> ModelKey:
        """The model served."""
        return ModelKey(self.namespace, self.model_id)


class ReplicaState(StrEnum):
    """Life of a replica as the gateway sees it."""

    STARTING = "starting"
    """Known, but its ready time lies ahead."""
    READY = "ready"
    DRAINING = "draining"
    """Terminating: finishes what runs, takes nothing new."""


class Replica:
    """A pod with its engines. The pool that owns it moves it from state to state."""

    def __init__(self, variant: VariantSpec, *, pod: str, start_seconds: float) -> None:
        """Start with idle engines; requests come once the pool makes it ready."""
        self.variant = variant
        self.pod = PodKey(variant.namespace, pod)
        self.state = ReplicaState.STARTING
        self.due_seconds = inf
        """When the state ends by itself: starting becomes ready, draining becomes gone. Ready does not end."""
        self.engines = tuple(
            Engine(variant.parameters, start_seconds=start_seconds) for _ in range(variant.data_parallel_size)
        )

    @property
    def running(self) -> int:
        """Sequences admitted by all its engines."""
        return sum(engine.running for engine in self.engines)

    @property
    def waiting(self) -> int:
        """Requests queued in all its engines."""
        return sum(engine.waiting for engine in self.engines)

    @property
    def unfinished(self) -> int:
        """Requests queued or running."""
        return self.running + self.waiting

    def advance(self, until_seconds: float) -> None:
        """Let time pass in all engines."""
        for engine in self.engines:
            engine.advance(until_seconds)
