"""The kinds of Kubernetes and its gateways that WVA reads, with only the fields that some code uses."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import msgspec

from wva.api.meta import ObjectMeta, WholeMeta, parse_time

Quantities: TypeAlias = dict[str, str | int | float]
"""Quantities by the name of their resource, as they are written."""


class ResourceRequirements(msgspec.Struct, frozen=True, rename="camel"):
    """Requests and limits of a container."""

    requests: Quantities = {}
    limits: Quantities = {}


class EnvVar(msgspec.Struct, frozen=True, gc=False):
    """An environment variable of a container; its value is empty when it comes from elsewhere."""

    name: str = ""
    value: str = ""


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container of a pod template.

    ``argument_bytes`` is no field of Kubernetes. It is the size of the command and args that a cache has dropped.
    """

    name: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    argument_bytes: int = 0


class TemplateSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a pod template.

    ``containers_left_out`` is no field of Kubernetes. It says how many containers a cache has dropped.
    """

    containers: tuple[Container, ...] = ()
    containers_left_out: int = 0


class PodTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """A pod template of a scale target."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TemplateSpec = TemplateSpec()


class PodCondition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of ``status.conditions`` of a Pod."""

    type: str
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


def _says_ready(conditions: tuple[PodCondition, ...]) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)


class _WaitingContainer(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""


class _EndedContainer(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    finished_at: str | None = None


class _ContainerState(msgspec.Struct, frozen=True):
    waiting: _WaitingContainer | None = None
    terminated: _EndedContainer | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet says of one container of a pod: its state now, and the one before the last restart."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: tuple[PodCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodContainer(msgspec.Struct, frozen=True, rename="camel"):
    """A container of a pod, and the resources that it takes of its node."""

    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""

    @property
    def sidecar(self) -> bool:
        """Whether this init container keeps running beside the others."""
        return self.restart_policy == "Always"


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a Pod: its node, and the resources that it takes there."""

    node_name: str = ""
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A Pod: who owns it, whether it is Ready, where it runs and what it takes of its node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def ready(self) -> bool:
        """Whether the pod serves: it is Ready, and it is not being deleted."""
        return not self.metadata.deleting and _says_ready(self.status.conditions)

    @property
    def ready_since(self) -> float | None:
        """When its Ready condition last changed, in seconds since the epoch; None if the pod does not tell."""
        times = (condition.last_transition_time for condition in self.status.conditions if condition.type == "Ready")
        return parse_time(next(times, None))

    @property
    def finished(self) -> bool:
        """Whether the pod has ended and will never serve again."""
        return self.status.phase in {"Succeeded", "Failed"}


class _NodeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    unschedulable: bool = False  # what cordoning sets


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    allocatable: Quantities = {}
    conditions: tuple[PodCondition, ...] = ()


class Node(msgspec.Struct, frozen=True, rename="camel"):
    """A Node, as an inventory of GPUs sees it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()

    @property
    def usable(self) -> bool:
        """Whether new pods may come: the node is Ready, not cordoned and not being deleted."""
        unavailable = self.spec.unschedulable or self.metadata.deleting
        return not unavailable and _says_ready(self.status.conditions)


class _ResourceQuotaStatus(msgspec.Struct, frozen=True, rename="camel"):
    hard: Quantities = {}
    used: Quantities = {}


class ResourceQuota(msgspec.Struct, frozen=True, rename="camel"):
    """A ResourceQuota: the limits (``hard``), and what counts against them (``used``)."""

    metadata: ObjectMeta = ObjectMeta()
    status: _ResourceQuotaStatus = _ResourceQuotaStatus()


class ServicePort(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of ``spec.ports`` of a Service; ``targetPort`` is a number or the name of a container port."""

    name: str = ""
    port: int = 0
    target_port: int | str = 0


class _ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    selector: dict[str, str] = {}
    ports: tuple[ServicePort, ...] = ()


class Service(msgspec.Struct, frozen=True, rename="camel"):
    """A Service: which pods are behind it, and on which ports."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _ServiceSpec = _ServiceSpec()


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
    """A core/v1 Event, with what the recorder reads back."""

    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 1


class ObjectReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


CONFIG_ENABLED_LABEL: Final = "wva.llmd.ai/config-enabled"
"""With ``true``, the ConfigMaps of a namespace count even while it has no VariantAutoscaling."""
EXCLUDE_ANNOTATION: Final = "wva.llmd.ai/exclude"
"""With ``true``, the controller leaves the variants of a namespace alone, and its ConfigMaps do not count."""

_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def is_namespace(text: str) -> bool:
    """Tell whether a text can be the name of a namespace (RFC 1123 label)."""
    return _NAME.fullmatch(text) is not None


class Namespace(msgspec.Struct, frozen=True, rename="camel"):
    """A Namespace."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def excluded(self) -> bool:
        """Whether the controller has to leave the namespace alone."""
        return self.metadata.annotations.get(EXCLUDE_ANNOTATION) == "true"

    @property
    def config_enabled(self) -> bool:
        """Whether the namespace asks for its ConfigMaps to count."""
        return self.metadata.labels.get(CONFIG_ENABLED_LABEL) == "true"


class UserInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The identity of a client; its authenticator adds ``extra``, which authorizers may read."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class TokenReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The answer about a token; the token is valid for ``audiences``."""

    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: tuple[str, ...] = ()


class TokenReview(msgspec.Struct, frozen=True, rename="camel"):
    """The review of a token."""

    metadata: ObjectMeta = ObjectMeta()
    status: TokenReviewStatus = TokenReviewStatus()


class SubjectAccessReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The answer about an action: allowed only with ``allowed`` and without ``denied``."""

    allowed: bool = False
    denied: bool = False


class SubjectAccessReview(msgspec.Struct, frozen=True, rename="camel"):
    """The review of an action."""

    metadata: ObjectMeta = ObjectMeta()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


class PickerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The Service in front of the endpoint picker, in the namespace of the pool."""

    name: str = ""


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """The labels that an object must have."""

    match_labels: dict[str, str] = {}


class _InferencePoolSpec(msgspec.Struct, frozen=True, rename="camel"):
    selector: LabelSelector = LabelSelector()
    endpoint_picker_ref: PickerReference = PickerReference()


class InferencePool(msgspec.Struct, frozen=True, rename="camel"):
    """An InferencePool of inference.networking.k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _InferencePoolSpec = _InferencePoolSpec()

    @property
    def match_labels(self) -> dict[str, str]:
        """The labels of the pods behind the pool."""
        return self.spec.selector.match_labels

    @property
    def picker(self) -> str:
        """The name of the endpoint picker's Service; empty when the pool names none."""
        return self.spec.endpoint_picker_ref.name


class _InferencePoolAlphaSpec(msgspec.Struct, frozen=True, rename="camel"):
    selector: dict[str, str] = {}
    extension_ref: PickerReference = PickerReference()


class InferencePoolAlpha(msgspec.Struct, frozen=True, rename="camel"):
    """An InferencePool of inference.networking.x-k8s.io/v1alpha2."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _InferencePoolAlphaSpec = _InferencePoolAlphaSpec()

    @property
    def match_labels(self) -> dict[str, str]:
        """The labels of the pods behind the pool. In this version the selector is a plain map."""
        return self.spec.selector

    @property
    def picker(self) -> str:
        """The name of the endpoint picker's Service; empty when the pool names none."""
        return self.spec.extension_ref.name
