"""The Kubernetes objects of a scenario, as a user would write them."""

from __future__ import annotations

from typing import Any, Final

from wva.api.variantautoscaling import ACCELERATOR_LABEL, GROUP, KIND, VERSION
from wva.sim.world.scenario import MODEL_ID, NAMESPACE, VariantPlan, WorldScenario

SYSTEM_NAMESPACE: Final = "workload-variant-autoscaler-system"
CONTROLLER_TARGET: Final = {"job": "workload-variant-autoscaler-metrics", "namespace": SYSTEM_NAMESPACE}
"""The labels of the controller as a target. With a ServiceMonitor the job is the name of the Service."""
SATURATION_CONFIG_MAP: Final = "wva-saturation-scaling-config"
_GPU: Final = "nvidia.com/gpu"


def node(accelerator: str, gpus: int) -> dict[str, Any]:
    """Return a node with all GPUs of one accelerator."""
    counts = {_GPU: str(gpus)}
    return {
        "metadata": {"name": node_name(accelerator), "labels": {f"{_GPU}.product": accelerator}},
        "spec": {},
        "status": {
            "allocatable": counts,
            "capacity": counts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def node_name(accelerator: str) -> str:
    """Return the name of the node with the GPUs of one accelerator."""
    return f"gpu-{accelerator.lower()}"


def deployment(plan: VariantPlan, *, on_node: bool) -> dict[str, Any]:
    """Return the Deployment of a variant: one GPU per replica, on the node that has such GPUs if there are nodes."""
    labels = {"app": plan.name}
    container = {
        "name": "vllm",
        "image": "vllm",
        "args": ["--model", MODEL_ID],
        "resources": {"limits": {_GPU: "1"}},
    }
    place = {"nodeName": node_name(plan.accelerator)} if on_node else {}
    return {
        "metadata": {"name": plan.name, "namespace": NAMESPACE},
        "spec": {
            "replicas": plan.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **place}},
        },
    }


def variant_autoscaling(plan: VariantPlan) -> dict[str, Any]:
    """Return the VariantAutoscaling of a variant."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": plan.name, "namespace": NAMESPACE, "labels": {ACCELERATOR_LABEL: plan.accelerator}},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": plan.name},
            "modelID": MODEL_ID,
            "variantCost": f"{plan.cost:.1f}",
        },
    }


def autoscaler(plan: VariantPlan, scenario: WorldScenario) -> dict[str, Any]:
    """Return the HPA that applies the number."""
    selector = {"matchLabels": {"variant_name": plan.name, "exported_namespace": NAMESPACE}}
    metric = {"name": "wva_desired_replicas", "selector": selector}
    return {
        "metadata": {"name": plan.name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": plan.name},
            "minReplicas": plan.minimum,
            "maxReplicas": plan.maximum,
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0},
                "scaleDown": {"stabilizationWindowSeconds": scenario.scale_down_window_seconds},
            },
            "metrics": [
                {
                    "type": "External",
                    "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1"}},
                }
            ],
        },
    }


def saturation_config(scenario: WorldScenario) -> dict[str, Any]:
    """Return the saturation ConfigMap."""
    return {
        "metadata": {"name": SATURATION_CONFIG_MAP, "namespace": SYSTEM_NAMESPACE},
        "data": dict(scenario.saturation),
    }
