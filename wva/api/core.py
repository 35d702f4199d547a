"""Core kinds (v1): Pod, ConfigMap, Event reference, and coordination's Lease, as far as they are read."""

from __future__ import annotations

import msgspec

from wva.api.meta import Condition, ObjectMeta


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


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A Pod as far as deciding needs it: who owns it and whether it is Ready."""

    metadata: ObjectMeta = ObjectMeta()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Whether the pod serves: Ready condition True and deletion not asked for."""
        if self.metadata.deleting:
            return False
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)

    @property
    def finished(self) -> bool:
        """Whether the pod has ended and will never serve again."""
        return self.status.phase in {"Succeeded", "Failed"}


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

    metadata: ObjectMeta = ObjectMeta()
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
    "ObjectReference",
    "Pod",
    "PodCondition",
    "PodStatus",
]
