"""The kinds that WVA reads or writes. The kinds that it scales are in ``wva.targets``.

This list knows of variants; ``resource`` and ``kube`` do not.
"""

from __future__ import annotations

from typing import Final

from wva.api import core
from wva.api.core import SubjectAccessReview
from wva.api.resource import Resource
from wva.api.scalers import HorizontalPodAutoscaler, ScaledObject
from wva.api.variantautoscaling import GROUP, KIND, PLURAL, VERSION, VariantAutoscaling

PODS: Final = Resource("", "v1", "pods", "Pod", core.Pod)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", core.ConfigMap)
EVENTS: Final = Resource("", "v1", "events", "Event", core.Event)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", core.Lease)
VARIANT_AUTOSCALINGS: Final = Resource(GROUP, VERSION, PLURAL, KIND, VariantAutoscaling)

NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", core.Namespace, namespaced=False)
NODES: Final = Resource("", "v1", "nodes", "Node", core.Node, namespaced=False)
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", core.ResourceQuota)
SERVICES: Final = Resource("", "v1", "services", "Service", core.Service)
HPAS: Final = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", HorizontalPodAutoscaler
)
SCALED_OBJECTS: Final = Resource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject", ScaledObject)
INFERENCE_POOLS: Final = Resource(
    "inference.networking.k8s.io", "v1", "inferencepools", "InferencePool", core.InferencePool
)
INFERENCE_POOLS_ALPHA: Final = Resource(
    "inference.networking.x-k8s.io", "v1alpha2", "inferencepools", "InferencePool", core.InferencePoolAlpha
)

TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", core.TokenReview, namespaced=False
)
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", SubjectAccessReview, namespaced=False
)
