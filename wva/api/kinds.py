"""The kinds that WVA reads or writes. This list knows of variants; ``resource`` and ``kube`` do not."""

from __future__ import annotations

from typing import Final

from wva.api.apps import Deployment, ReplicaSet
from wva.api.core import ConfigMap, Event, Lease, Pod
from wva.api.resource import Resource
from wva.api.variantautoscaling import GROUP, KIND, PLURAL, VERSION, VariantAutoscaling

PODS: Final = Resource("", "v1", "pods", "Pod", Pod)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", ConfigMap)
EVENTS: Final = Resource("", "v1", "events", "Event", Event)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", Deployment)
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet", ReplicaSet)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)
VARIANT_AUTOSCALINGS: Final = Resource(GROUP, VERSION, PLURAL, KIND, VariantAutoscaling)
