"""The Kubernetes objects of the tests, as a user would write them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.controlplane.api import Body
from e2e.controlplane.kubelet import LOADING, POD_IP
from e2e.controlplane.nodes import GPU, POOL
from wva.collect.queries import TargetLabels
from wva.model.roles import ROLE_LABEL

DEPLOY = Path(__file__).parent.parent / "deploy"
CRD = DEPLOY / "crd" / "llmd.ai_variantautoscalings.yaml"
MAIN_CONFIG_MAP = "wva-variantautoscaling-config"
SATURATION_CONFIG_MAP = "wva-saturation-scaling-config"
SERVICE_ACCOUNT = "controller-manager"
SCRAPER = "scraper"
SERVICE_CLASSES_CONFIG_MAP = "service-classes-config"
INSTANCE = "wva.llmd.ai/controller-instance"
SHIPPED_NAMESPACE = "workload-variant-autoscaler-system"
MODEL = "demo/model"
POOLED = "pooled"
"""The label of the pods of all variants in roles: they are behind one pool."""
_AT_ONCE = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Percent", "value": 100, "periodSeconds": 5},
        {"type": "Pods", "value": 5, "periodSeconds": 5},
    ],
}


API_VERSIONS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1"}
TARGET_COMPONENTS = {"StatefulSet": "stateful-set-targets", "LeaderWorkerSet": "leader-worker-set-targets"}
"""The component of deploy/ with the rights for a kind of target that is not enabled by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestedVariant:
    """One variant: its target, its VariantAutoscaling and the ScaledObject that applies the number.

    ``kind`` is that of the target; a replica of a LeaderWorkerSet has ``size`` pods. ``loading`` is how long a pod
    loads its model, as its annotation says it (``never`` is possible). ``minimum`` and ``maximum`` are the bounds of
    the ScaledObject, ``gpus`` what each pod takes. ``address`` is that of all pods, in 127.0.0.0/8, where one must be
    reached. ``role`` is the value of the label of llm-d on the pods that serve; with ``role_of_workers`` it stands in
    the template of the workers of a LeaderWorkerSet alone.
    """

    name: str
    cost: float = 10.0
    accelerator: str = "H100"
    replicas: int = 1
    model: str = MODEL
    loading: str = "300ms"
    minimum: int = 1
    maximum: int = 10
    gpus: int = 1
    kind: str = "Deployment"
    size: int = 1
    address: str = ""
    role: str = ""
    role_of_workers: bool = False

    @property
    def reference(self) -> dict[str, str]:
        """Return the reference that names the target."""
        return {"apiVersion": API_VERSIONS[self.kind], "kind": self.kind, "name": self.name}


def rbac(namespace: str, *, account: str = SERVICE_ACCOUNT) -> list[Body]:
    """Return what ``deploy/rbac`` ships, for a controller in ``namespace``, and a scraper who may read the metrics.

    ClusterRoleBindings get names of their own, since they are needed for each namespace. A controller that a test wants
    to be refused needs an ``account`` of its own (see ``e2e.controlplane.audit``).
    """
    items = []
    for file in sorted((DEPLOY / "rbac").glob("*.yaml")):
        if file.name != "kustomization.yaml":
            text = file.read_text(encoding="utf-8").replace(SHIPPED_NAMESPACE, namespace)
            items += [item for item in yaml.safe_load_all(text) if item]
    items += [service_account(SCRAPER, namespace=namespace), metrics_reader(SCRAPER, namespace=namespace)]
    for item in items:
        if item["kind"] == "ClusterRoleBinding":
            item["metadata"]["name"] = f"wva-{namespace}-{item['metadata']['name']}"
        for subject in [item["metadata"], *item.get("subjects", ())]:
            if subject["name"] == SERVICE_ACCOUNT:
                subject["name"] = account
    return sorted(items, key=lambda item: str(item["kind"]).endswith("Binding"))


def target_rules(kind: str) -> list[Body]:
    """Return the rules that the component for a kind of target adds to those of ``deploy/rbac``."""
    text = (DEPLOY / "components" / TARGET_COMPONENTS[kind] / "kustomization.yaml").read_text(encoding="utf-8")
    patches = [patch for patch in yaml.safe_load(text)["patches"] if "target" in patch]
    return [operation["value"] for patch in patches for operation in yaml.safe_load(patch["patch"])]


def target_rights(kind: str, *, namespace: str) -> list[Body]:
    """Return a Role with these rules and its binding to the controller, both in one namespace."""
    metadata = {"name": TARGET_COMPONENTS[kind], "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": target_rules(kind)},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": namespace}],
        },
    ]


def service_account(name: str, *, namespace: str) -> Body:
    """Describe a ServiceAccount."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def metrics_reader(name: str, *, namespace: str) -> Body:
    """Describe the binding that lets a ServiceAccount read the metrics, as the documentation does."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "metrics-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }


def config_map(name: str, *, namespace: str, data: dict[str, str]) -> Body:
    """Describe a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def target(variant: ManifestedVariant, *, namespace: str, pool: str = "") -> Body:
    """Describe the target of a variant. Its pods run on the nodes of a reserved ``pool``, or on the common nodes.

    In a LeaderWorkerSet only the leaders have the label ``app``, because only they serve.
    """
    labels = {"app": variant.name}
    said = {ROLE_LABEL: variant.role} if variant.role else {}
    pooled = {POOLED: "true"} if variant.role else {}
    container = {"name": "vllm", "image": "vllm", "resources": {"limits": {GPU: str(variant.gpus)}}}
    spec: dict[str, Any] = {"containers": [container]}
    if pool:
        spec["nodeSelector"] = {POOL: pool}
        spec["tolerations"] = [{"key": POOL, "value": pool, "effect": "NoSchedule"}]
    annotations = {LOADING: variant.loading} | ({POD_IP: variant.address} if variant.address else {})
    shown = labels | pooled | ({} if variant.role_of_workers else said)
    template = {"metadata": {"labels": shown, "annotations": annotations}, "spec": spec}
    wanted: dict[str, Any] = {"replicas": variant.replicas, "selector": {"matchLabels": labels}, "template": template}
    if variant.kind == "StatefulSet":
        wanted |= {"serviceName": variant.name, "podManagementPolicy": "Parallel"}
    elif variant.kind == "LeaderWorkerSet":
        worker = {"metadata": {"labels": said, "annotations": annotations}, "spec": spec}
        group = {"size": variant.size, "leaderTemplate": template, "workerTemplate": worker}
        wanted = {"replicas": variant.replicas, "leaderWorkerTemplate": group}
    return {
        "apiVersion": API_VERSIONS[variant.kind],
        "kind": variant.kind,
        "metadata": {"name": variant.name, "namespace": namespace},
        "spec": wanted,
    }


def variant_autoscaling(variant: ManifestedVariant, *, namespace: str, instance: str = "") -> Body:
    """Describe the VariantAutoscaling of a variant, for the controller of an ``instance`` if one is named."""
    labels = {"inference.optimization/acceleratorName": variant.accelerator}
    if instance:
        labels[INSTANCE] = instance
    return {
        "apiVersion": "llmd.ai/v1alpha1",
        "kind": "VariantAutoscaling",
        "metadata": {
            "name": variant.name,
            "namespace": namespace,
            "labels": labels,
        },
        "spec": {
            "scaleTargetRef": variant.reference,
            "modelID": variant.model,
            "variantCost": f"{variant.cost:.1f}",
        },
    }


def quota(name: str, *, namespace: str, gpus: int) -> Body:
    """Describe a ResourceQuota of GPUs."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": {f"requests.{GPU}": str(gpus)}},
    }


def scaled_object(
    variant: ManifestedVariant, *, namespace: str, url: str, target: TargetLabels, down_seconds: int = 0
) -> Body:
    """Describe a ScaledObject that applies the number of a variant, from the controller that is ``target``.

    It adds replicas at once, and removes them when the number has asked for fewer for ``down_seconds``.
    KEDA must take a missing number for an error. If KEDA took it for 0, it would scale the workload down.
    """
    selector = f'variant_name="{variant.name}",exported_namespace="{namespace}",{target.matchers}'
    metadata: dict[str, Any] = {
        "serverAddress": url,
        "query": f"max(wva_desired_replicas{{{selector}}})",
        "threshold": "1",
        "activationThreshold": "0",
        "ignoreNullValues": "false",
    }
    behavior = {"scaleUp": _AT_ONCE, "scaleDown": {**_AT_ONCE, "stabilizationWindowSeconds": down_seconds}}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": variant.name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"name": variant.name} if variant.kind == "Deployment" else variant.reference,
            "minReplicaCount": variant.minimum,
            "maxReplicaCount": variant.maximum,
            "pollingInterval": 3,
            "cooldownPeriod": 3,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": metadata}],
        },
    }
