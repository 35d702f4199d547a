"""The objects that a migration is about, as far as it reads them.

Apart from the structs in ``wva.api``: those are what the controller needs of thousands of objects, and skip all else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from wva.api.core import ConfigMap, Lease
from wva.api.meta import Key, KubeObject, ObjectMeta
from wva.api.resource import Resource
from wva.api.scalers import ScaledTarget
from wva.targets import DEPLOYMENTS, scaled_key, scaled_name


class VariantSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a VariantAutoscaling; before 0.5 it had no target."""

    scale_target_ref: ScaledTarget | None = None
    model_id: str = msgspec.field(name="modelID", default="")
    variant_cost: str | int | float | None = None


class Variant(msgspec.Struct, frozen=True, rename="camel"):
    """A VariantAutoscaling of any version."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VariantSpec = VariantSpec()

    @property
    def target(self) -> str:
        """The kind and name of what is scaled, such as ``Deployment chat``; empty when that is nothing that can be."""
        reference = self.spec.scale_target_ref
        return "" if reference is None or self.target_key is None else scaled_name(reference)

    @property
    def target_key(self) -> str | None:
        """What identifies the target among those of all scalers; None when there is none."""
        reference = self.spec.scale_target_ref
        return None if reference is None else scaled_key(self.metadata.namespace, reference)


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """A label selector."""

    match_labels: dict[str, str] = {}
    match_expressions: list[dict[str, Any]] = []


class MetricIdentifier(msgspec.Struct, frozen=True, rename="camel"):
    """``metric`` of a metric source."""

    name: str = ""
    selector: Selector = Selector()


class MetricTarget(msgspec.Struct, frozen=True, rename="camel"):
    """``target`` of a metric source."""

    type: str = ""
    average_value: str | int | float | None = None
    value: str | int | float | None = None


class MetricSource(msgspec.Struct, frozen=True, rename="camel"):
    """The source of one metric, whichever type it has."""

    metric: MetricIdentifier = MetricIdentifier()
    target: MetricTarget = MetricTarget()


class Metric(msgspec.Struct, frozen=True, rename="camel"):
    """One of ``spec.metrics``."""

    type: str = ""
    external: MetricSource | None = None
    pods: MetricSource | None = None
    object: MetricSource | None = None

    @property
    def source(self) -> MetricSource | None:
        """The source that is given, if it is one of a custom metric."""
        return self.external or self.pods or self.object


class AutoscalerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of an HPA."""

    scale_target_ref: ScaledTarget = ScaledTarget()
    min_replicas: int | None = None
    metrics: list[Metric] = []


class Autoscaler(msgspec.Struct, frozen=True, rename="camel"):
    """A HorizontalPodAutoscaler, autoscaling/v2."""

    metadata: ObjectMeta = ObjectMeta()
    spec: AutoscalerSpec = AutoscalerSpec()


class Trigger(msgspec.Struct, frozen=True, rename="camel"):
    """One of a ScaledObject's triggers."""

    type: str = ""
    metric_type: str = ""
    metadata: dict[str, Any] = {}


class ScaledSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a ScaledObject."""

    scale_target_ref: ScaledTarget = ScaledTarget()
    min_replica_count: int | None = None
    fallback: dict[str, Any] | None = None
    triggers: list[Trigger] = []


class Scaled(msgspec.Struct, frozen=True, rename="camel"):
    """A KEDA ScaledObject."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScaledSpec = ScaledSpec()


class Environment(msgspec.Struct, frozen=True, rename="camel"):
    """An environment variable."""

    name: str = ""
    value: str = ""


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container."""

    name: str = ""
    image: str = ""
    args: list[str] = []
    env: list[Environment] = []


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a pod template."""

    containers: list[Container] = []


class Template(msgspec.Struct, frozen=True, rename="camel"):
    """A pod template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class WorkloadSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a Deployment."""

    replicas: int | None = None
    template: Template = Template()


class Workload(msgspec.Struct, frozen=True, rename="camel"):
    """A Deployment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()


VARIANTS: Final = Resource("llmd.ai", "v1alpha1", "variantautoscalings", "VariantAutoscaling", Variant)
AUTOSCALERS: Final = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", Autoscaler)
SCALED_OBJECTS: Final = Resource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject", Scaled)
WORKLOADS: Final = Resource(DEPLOYMENTS.group, DEPLOYMENTS.version, DEPLOYMENTS.plural, DEPLOYMENTS.kind, Workload)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", ConfigMap)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)


class Values(msgspec.Struct, frozen=True):
    """A values file of the prometheus-adapter chart; its name is the file's."""

    metadata: ObjectMeta
    external_rules: list[dict[str, Any]]


class Inventory(msgspec.Struct, kw_only=True):
    """Everything that was found. ``whole`` says that it is a cluster: what is missing here, is missing there."""

    variants: list[Variant] = []
    autoscalers: list[Autoscaler] = []
    scaled_objects: list[Scaled] = []
    workloads: list[Workload] = []
    config_maps: list[ConfigMap] = []
    leases: list[Lease] = []
    values: list[Values] = []
    whole: bool = False

    @property
    def size(self) -> int:
        """How many objects there are."""
        return sum(1 for _ in self._objects())

    def variant(self, key: Key) -> Variant | None:
        """Return the VariantAutoscaling of this name."""
        return next((variant for variant in self.variants if variant.metadata.key == key), None)

    def _objects(self) -> Iterator[KubeObject]:
        yield from self.variants
        yield from self.autoscalers
        yield from self.scaled_objects
        yield from self.workloads
        yield from self.config_maps
        yield from self.leases
        yield from self.values
