"""The Kubernetes objects of a scenario, as a user would write them."""

from __future__ import annotations

from typing import Any, Final

from wva.api.variantautoscaling import ACCELERATOR_LABEL, GROUP, KIND, VERSION
from wva.model.roles import ROLE_LABEL
from wva.sim.stage.scenario import Scenario, VariantSetup

NAMESPACE: Final = "llm"
MODEL_ID: Final = "meta/llama-3.1-70b"
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


def deployment(setup: VariantSetup, *, on_node: bool) -> dict[str, Any]:
    """Return the Deployment of a variant, on the node that has its GPUs if there are nodes."""
    labels = {"app": setup.name}
    role = {ROLE_LABEL: setup.role} if setup.role else {}
    container = {
        "name": "vllm",
        "image": "vllm",
        "args": ["--model", MODEL_ID, "--max-num-seqs", str(setup.parameters.max_num_seqs)],
        "resources": {"limits": {_GPU: str(setup.gpus)}},
    }
    node_field = {"nodeName": node_name(setup.accelerator)} if on_node else {}
    return {
        "metadata": {"name": setup.name, "namespace": NAMESPACE},
        "spec": {
            "replicas": setup.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels | role}, "spec": {"containers": [container], **node_field}},
        },
    }


def variant_autoscaling(setup: VariantSetup) -> dict[str, Any]:
    """Return the VariantAutoscaling of a variant."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": setup.name, "namespace": NAMESPACE, "labels": {ACCELERATOR_LABEL: setup.accelerator}},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": setup.name},
            "modelID": MODEL_ID,
            "variantCost": f"{setup.price:.1f}",
        },
    }


def autoscaler(setup: VariantSetup, scenario: Scenario) -> dict[str, Any]:
    """Return the HPA that applies the desired replicas of a variant."""
    selector = {"matchLabels": {"variant_name": setup.name, "exported_namespace": NAMESPACE}}
    metric = {"name": "wva_desired_replicas", "selector": selector}
    return {
        "metadata": {"name": setup.name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": setup.name},
            "minReplicas": setup.minimum,
            "maxReplicas": setup.maximum,
            "behavior": {
                "scaleUp": {"stabilizationWindowSeconds": 0},
                "scaleDown": {"stabilizationWindowSeconds": int(scenario.hpa_down_seconds)},
            },
            "metrics": [
                {
                    "type": "External",
                    "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1"}},
                }
            ],
        },
    }


def saturation_config(scenario: Scenario) -> dict[str, Any]:
    """Return the saturation ConfigMap."""
    return {
        "metadata": {"name": SATURATION_CONFIG_MAP, "namespace": SYSTEM_NAMESPACE},
        "data": dict(scenario.saturation),
    }
