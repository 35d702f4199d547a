"""What a migration looks at, what it says about it, and how the objects are read from a cluster.

The structs are apart from those in ``wva.api``, which are what the controller needs of thousands of objects, and skip
all else.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from wva.api.core import ConfigMap, EnvVar, Lease
from wva.api.meta import Key, KubeObject, ObjectMeta
from wva.api.resource import Resource
from wva.api.scalers import SCALED_OBJECT_KIND, ScaledTarget
from wva.kube.client import KubeClient
from wva.kube.errors import Forbidden, NotFound
from wva.targets import scaled_key, scaled_name

# --- What is said -----------------------------------------------------------------------------------------------------


class Severity(StrEnum):
    """How bad a finding is; the worst comes first."""

    MUST = "must"
    """It does not work, or it works on a wrong number, until it is changed."""
    SHOULD = "should"
    """It works, and will fail in a situation that comes."""
    NOTE = "note"
    """It behaves otherwise than before; nothing has to be done."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is the matter with one object. ``change`` is one command or one sentence; empty for a note."""

    severity: Severity
    kind: str
    key: Key
    problem: str
    change: str = ""

    @property
    def order(self) -> tuple[int, str, Key, str]:
        """Sort the worst first, then by object."""
        return (list(Severity).index(self.severity), self.kind, self.key, self.problem)


class Subject(NamedTuple):
    """An object that findings are about, and that kubectl commands change."""

    kind: str
    key: Key

    def must(self, problem: str, change: str) -> Finding:
        """Return a finding of what has to change."""
        return Finding(Severity.MUST, self.kind, self.key, problem, change)

    def should(self, problem: str, change: str) -> Finding:
        """Return a finding of what had better change."""
        return Finding(Severity.SHOULD, self.kind, self.key, problem, change)

    def note(self, problem: str) -> Finding:
        """Return a finding that asks for no change."""
        return Finding(Severity.NOTE, self.kind, self.key, problem)

    def kubectl(self, verb: str, *words: str) -> str:
        """Return a kubectl command on the object, quoted for a shell."""
        namespace = ("-n", self.key.namespace) if self.key.namespace else ()
        return shlex.join(("kubectl", verb, self.kind.lower(), self.key.name, *namespace, *words))

    def merge_patch(self, patch: Mapping[str, object]) -> str:
        """Return the kubectl command that merges ``patch`` into the object."""
        return self.kubectl("patch", "--type", "merge", "-p", msgspec.json.encode(patch).decode())


# --- What is looked at ------------------------------------------------------------------------------------------------


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a manifest, named as Kubernetes names it; its fields are written in camelCase there."""


class _MetricSelector(_Part, frozen=True):
    match_labels: dict[str, str] = {}


class _MetricIdentifier(_Part, frozen=True):
    name: str = ""
    selector: _MetricSelector = _MetricSelector()


class _MetricTarget(_Part, frozen=True):
    type: str = ""
    average_value: str | int | float | None = None


class MetricSource(_Part, frozen=True):
    """The source of one metric of an HPA, whichever type it has."""

    metric: _MetricIdentifier = _MetricIdentifier()
    target: _MetricTarget = _MetricTarget()


class _Metric(_Part, frozen=True):
    type: str = ""
    external: MetricSource | None = None
    pods: MetricSource | None = None
    object: MetricSource | None = None


class Trigger(_Part, frozen=True):
    """One of a ScaledObject's triggers."""

    type: str = ""
    metric_type: str = ""
    metadata: dict[str, Any] = {}


class ManifestContainer(_Part, frozen=True):
    """A container of a pod template."""

    name: str = ""
    image: str = ""
    args: list[str] = []
    env: list[EnvVar] = []


class _TemplateSpec(_Part, frozen=True):
    containers: list[ManifestContainer] = []


class _Template(_Part, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _TemplateSpec = _TemplateSpec()


class ManifestSpec(_Part, frozen=True):
    """``spec`` of any kind below; a field that the kind has not, or that was not written, has its default."""

    # of a VariantAutoscaling, which had none before 0.5, an HPA and a ScaledObject
    scale_target_ref: ScaledTarget = ScaledTarget()
    # of a VariantAutoscaling
    model_id: str = msgspec.field(name="modelID", default="")
    variant_cost: str | int | float | None = None
    # of an HPA
    min_replicas: int | None = None
    metrics: list[_Metric] = []
    # of a ScaledObject
    min_replica_count: int | None = None
    fallback: dict[str, Any] | None = None
    triggers: list[Trigger] = []
    # of a Deployment
    replicas: int | None = None
    template: _Template = _Template()


class Manifest(_Part, frozen=True):
    """An object as it is written."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ManifestSpec = ManifestSpec()

    @property
    def target(self) -> str:
        """The kind and name of its target, such as ``Deployment chat``; empty when it has none that can be scaled."""
        return "" if self.target_key is None else scaled_name(self.spec.scale_target_ref)

    @property
    def target_key(self) -> str | None:
        """What identifies this target among all; None when it has none that can be scaled."""
        return scaled_key(self.metadata.namespace, self.spec.scale_target_ref)


class ManifestVariant(Manifest, frozen=True):
    """A VariantAutoscaling of any version."""


class ManifestAutoscaler(Manifest, frozen=True):
    """A HorizontalPodAutoscaler, autoscaling/v2."""


class ManifestScaledObject(Manifest, frozen=True):
    """A KEDA ScaledObject."""


class ManifestDeployment(Manifest, frozen=True):
    """A Deployment."""


RESOURCES: Final[Mapping[str, Resource[Any]]] = {
    "variants": Resource("llmd.ai", "v1alpha1", "variantautoscalings", "VariantAutoscaling", ManifestVariant),
    "autoscalers": Resource(
        "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", ManifestAutoscaler
    ),
    "scaled_objects": Resource("keda.sh", "v1alpha1", "scaledobjects", SCALED_OBJECT_KIND, ManifestScaledObject),
    "deployments": Resource("apps", "v1", "deployments", "Deployment", ManifestDeployment),
    "config_maps": Resource("", "v1", "configmaps", "ConfigMap", ConfigMap),
    "leases": Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease),
}
"""What is read, by the field of FoundObjects that it goes to."""


def about(item: KubeObject) -> Subject:
    """Return an object as the subject of findings."""
    kind = next(resource.kind for resource in RESOURCES.values() if resource.type is type(item))
    return Subject(kind, item.metadata.key)


class FoundObjects(msgspec.Struct, kw_only=True):
    """Everything that was found.

    ``values`` are files for the chart of prometheus-adapter: name and rules. ``whole`` says that all this is a cluster:
    an object that is missing here does not exist in the cluster.
    """

    variants: list[ManifestVariant] = []
    autoscalers: list[ManifestAutoscaler] = []
    scaled_objects: list[ManifestScaledObject] = []
    deployments: list[ManifestDeployment] = []
    config_maps: list[ConfigMap] = []
    leases: list[Lease] = []
    values: list[tuple[str, list[dict[str, Any]]]] = []
    whole: bool = False

    @property
    def size(self) -> int:
        """How many objects there are."""
        return sum(len(each) for each in msgspec.structs.astuple(self) if isinstance(each, list))


async def read_cluster(client: KubeClient, namespace: str = "") -> tuple[FoundObjects, list[Finding]]:
    """Return what is in the cluster, or in one namespace of it, and what could not be read.

    A kind that is not served there, or may not be read, is left out and becomes a finding. Raises ApiError when the API
    server does not answer.
    """
    findings: list[Finding] = []
    lists: dict[str, Any] = {}
    for field, resource in RESOURCES.items():
        lists[field] = []
        problem = ""
        try:
            found = await client.list(resource, namespace=namespace)
            lists[field] = list(found.items)
            if found.undecodable:
                problem = f"{found.undecodable} objects of this kind could not be read"
        except NotFound:
            if resource.kind != SCALED_OBJECT_KIND:  # KEDA may not be installed
                problem = "is not served by this cluster: apply deploy/crd first"
        except Forbidden as error:
            problem = f"may not be listed, so it was not looked at: {error}"
        if problem:
            findings.append(Subject(resource.kind, Key("", resource.name)).should(problem, "check this kind by hand"))
    return FoundObjects(**lists, whole=not findings and not namespace), findings
