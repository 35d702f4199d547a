"""The kinds of Kubernetes, and of its gateways, that WVA reads: only the fields that some code uses."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from wva.api.meta import ObjectMeta, WholeMeta, parse_time


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


class TemplateSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a pod template.

    ``containers_left_out`` is no field of Kubernetes: how many containers a cache has left out.
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


CONFIG_ENABLED_LABEL: Final = "wva.llmd.ai/config-enabled"
"""``true``: ConfigMaps of the namespace count also while there is no VariantAutoscaling in it."""
EXCLUDE_ANNOTATION: Final = "wva.llmd.ai/exclude"
"""``true``: its variants are left alone and its ConfigMaps do not count, even with the label."""

_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def is_namespace(text: str) -> bool:
    """Tell whether a text can be the name of a namespace (RFC 1123 label)."""
    return _NAME.fullmatch(text) is not None


class Namespace(msgspec.Struct, frozen=True, rename="camel"):
    """A Namespace."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def excluded(self) -> bool:
        """Whether the namespace wants to be left alone."""
        return self.metadata.annotations.get(EXCLUDE_ANNOTATION) == "true"

    @property
    def config_enabled(self) -> bool:
        """Whether the namespace asks for its ConfigMaps to count."""
        return self.metadata.labels.get(CONFIG_ENABLED_LABEL) == "true"


class UserInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The identity of a client; ``extra`` has what the authenticator adds, and authorizers may read it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class TokenReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The answer about a token. ``audiences`` are those it is good for."""

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
    kind: str = ""


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """``spec.selector`` of v1."""

    match_labels: dict[str, str] = {}


class InferencePoolSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of v1."""

    selector: LabelSelector = LabelSelector()
    endpoint_picker_ref: PickerReference | None = None


class InferencePool(msgspec.Struct, frozen=True, rename="camel"):
    """An InferencePool of inference.networking.k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: InferencePoolSpec = InferencePoolSpec()

    @property
    def match_labels(self) -> dict[str, str]:
        """The labels of the pods behind the pool."""
        return self.spec.selector.match_labels

    @property
    def picker(self) -> str:
        """The name of the endpoint picker's Service; empty when the pool names none."""
        reference = self.spec.endpoint_picker_ref
        return reference.name if reference is not None else ""


class InferencePoolAlphaSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of v1alpha2: the selector is a plain map."""

    selector: dict[str, str] = {}
    extension_ref: PickerReference | None = None


class InferencePoolAlpha(msgspec.Struct, frozen=True, rename="camel"):
    """An InferencePool of inference.networking.x-k8s.io/v1alpha2."""

    metadata: ObjectMeta = ObjectMeta()
    spec: InferencePoolAlphaSpec = InferencePoolAlphaSpec()

    @property
    def match_labels(self) -> dict[str, str]:
        """The labels of the pods behind the pool."""
        return self.spec.selector

    @property
    def picker(self) -> str:
        """The name of the endpoint picker's Service; empty when the pool names none."""
        reference = self.spec.extension_ref
        return reference.name if reference is not None else ""
