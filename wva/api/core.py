"""Core kinds (v1) and coordination's Lease, as far as they are read."""

from __future__ import annotations

import msgspec

from wva.api.meta import Condition, ObjectMeta, WholeMeta, parse_time
from wva.api.pod_template import ResourceRequirements


class PodCondition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of ``status.conditions`` of a Pod."""

    type: str
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of a Pod."""

    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: tuple[PodCondition, ...] = ()


class PodContainer(msgspec.Struct, frozen=True, rename="camel"):
    """A container of a pod, as far as what it takes of a node; an init container that restarts always is a sidecar."""

    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""

    @property
    def sidecar(self) -> bool:
        """Whether an init container runs on beside the others."""
        return self.restart_policy == "Always"


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a Pod: where it runs and what it takes there."""

    node_name: str = ""
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A Pod as far as deciding needs it: who owns it, whether it is Ready, where it runs and what it takes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Whether the pod serves: Ready condition True and deletion not asked for."""
        if self.metadata.deleting:
            return False
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)

    @property
    def ready_since(self) -> float | None:
        """When its Ready condition turned to what it is, in seconds since the epoch; None when that is not said."""
        times = (condition.last_transition_time for condition in self.status.conditions if condition.type == "Ready")
        return parse_time(next(times, None))

    @property
    def finished(self) -> bool:
        """Whether the pod has ended and will never serve again."""
        return self.status.phase in {"Succeeded", "Failed"}


class NodeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``spec`` of a Node; ``unschedulable`` is what cordoning sets."""

    unschedulable: bool = False


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of a Node; quantities are kept as text."""

    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[PodCondition, ...] = ()


class Node(msgspec.Struct, frozen=True, rename="camel"):
    """A Node as far as an inventory of GPUs needs it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def usable(self) -> bool:
        """Whether new pods may come: Ready, neither cordoned nor going."""
        if self.spec.unschedulable or self.metadata.deleting:
            return False
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)


class ResourceQuotaStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of a ResourceQuota: what is enforced, and what counts against it; quantities are kept as text."""

    hard: dict[str, str | int | float] = {}
    used: dict[str, str | int | float] = {}


class ResourceQuota(msgspec.Struct, frozen=True, rename="camel"):
    """A ResourceQuota."""

    metadata: ObjectMeta = ObjectMeta()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class ServicePort(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of ``spec.ports`` of a Service; ``targetPort`` is a number or the name of a container port."""

    name: str = ""
    port: int = 0
    target_port: int | str = 0


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a Service."""

    selector: dict[str, str] = {}
    ports: tuple[ServicePort, ...] = ()


class Service(msgspec.Struct, frozen=True, rename="camel"):
    """A Service as far as its pods are looked for."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ConfigMap(msgspec.Struct, frozen=True, rename="camel"):
    """A ConfigMap; ``binaryData`` is not read."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class LeaseSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``spec`` of a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel"):
    """A coordination.k8s.io Lease."""

    metadata: WholeMeta = WholeMeta()
    spec: LeaseSpec = LeaseSpec()


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """A core/v1 Event as far as the recorder reads it back."""

    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 1


class ObjectReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


__all__ = [
    "Condition",
    "ConfigMap",
    "Event",
    "Lease",
    "LeaseSpec",
    "Node",
    "NodeSpec",
    "NodeStatus",
    "ObjectReference",
    "Pod",
    "PodCondition",
    "PodContainer",
    "PodSpec",
    "PodStatus",
    "ResourceQuota",
    "ResourceQuotaStatus",
    "Service",
    "ServicePort",
    "ServiceSpec",
]
