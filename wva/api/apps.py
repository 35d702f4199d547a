"""apps/v1: Deployment and ReplicaSet, as far as they are read."""

from __future__ import annotations

import msgspec

from wva.api.meta import ObjectMeta
from wva.numbers import REPLICAS


class ResourceRequirements(msgspec.Struct, frozen=True, rename="camel"):
    """Requests and limits of a container; quantities are kept as text."""

    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class EnvVar(msgspec.Struct, frozen=True, gc=False):
    """An environment variable of a container; one whose value comes from elsewhere has an empty one here."""

    name: str = ""
    value: str = ""


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container of a pod template.

    ``argument_bytes`` is no field of Kubernetes: the size of command and args that a cache has left out.
    """

    name: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    argument_bytes: int = 0


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a pod template.

    ``containers_left_out`` is no field of Kubernetes: how many containers a cache has left out.
    """

    containers: tuple[Container, ...] = ()
    containers_left_out: int = 0


class PodTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """``spec.template`` of a Deployment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class DeploymentSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a Deployment; ``replicas`` absent means 1, the API server's default."""

    replicas: int | None = None
    template: PodTemplate = PodTemplate()


class DeploymentStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``status`` of a Deployment."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0


class Deployment(msgspec.Struct, frozen=True, rename="camel"):
    """An apps/v1 Deployment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()

    @property
    def spec_replicas(self) -> int:
        """The replicas asked for; what is no number of replicas counts as absent."""
        if self.spec.replicas is None:
            return 1
        replicas = REPLICAS.find(self.spec.replicas)
        return self.existing_replicas or 1 if replicas is None else replicas

    @property
    def existing_replicas(self) -> int:
        """The replicas of the status, 0 while it is empty."""
        return REPLICAS.find(self.status.replicas) or 0

    @property
    def ready_replicas(self) -> int:
        """The Ready replicas of the status."""
        return REPLICAS.find(self.status.ready_replicas) or 0

    @property
    def current_replicas(self) -> int:
        """The replicas that exist. While the status is still empty: the replicas of the spec."""
        return self.existing_replicas or self.spec_replicas


class ReplicaSet(msgspec.Struct, frozen=True, rename="camel"):
    """An apps/v1 ReplicaSet: only the link from a pod to its Deployment."""

    metadata: ObjectMeta = ObjectMeta()
