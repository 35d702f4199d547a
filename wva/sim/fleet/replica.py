"""The names of models, pods and variants in the fleet, and the states of a pod."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from wva.sim.fleet.parameters import EngineParameters


class PoolKey(NamedTuple):
    """A served model: what a gateway pool stands for."""

    namespace: str
    model_id: str


class PodKey(NamedTuple):
    """A pod's identity."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class PoolVariant:
    """One Deployment that serves a model on one accelerator type.

    Attributes:
        namespace: of the Deployment.
        deployment: its name; the fleet's name of the variant.
        model_id: served model, the label ``model_name``.
        accelerator: for people; the parameters decide what happens.
        parameters: of each engine.
        data_parallel_size: engines per pod; each shows its own series, ``engine="0"`` and so on.
        role: what its pods compute of a request, as ``wva.model.roles`` has it; empty for all of it.

    """

    namespace: str
    deployment: str
    model_id: str
    accelerator: str
    parameters: EngineParameters
    data_parallel_size: int = 1
    role: str = ""

    @property
    def model(self) -> PoolKey:
        """The model served."""
        return PoolKey(self.namespace, self.model_id)


class ReplicaState(StrEnum):
    """Life of a replica as the gateway sees it."""

    STARTING = "starting"
    """Known, but its ready time lies ahead."""
    READY = "ready"
    DRAINING = "draining"
    """Terminating: finishes what it has, takes nothing new."""
