"""The objects of a working installation of the Go controller; a test breaks one thing in them."""

from __future__ import annotations

import copy
import io

import pytest
import yaml

from wva.migration import check
from wva.migration.objects import Manifests

NOW = 1_800_000_000.0
LABELS = {"app.kubernetes.io/name": "workload-variant-autoscaler", "control-plane": "controller-manager"}

SOUND = {
    "variant": {
        "apiVersion": "llmd.ai/v1alpha1",
        "kind": "VariantAutoscaling",
        "metadata": {
            "name": "chat-va",
            "namespace": "models",
            "labels": {"inference.optimization/acceleratorName": "H100"},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
            "modelID": "org/chat",
            "variantCost": "40.0",
        },
    },
    "hpa": {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "chat-hpa", "namespace": "models"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {
                            "name": "wva_desired_replicas",
                            "selector": {
                                "matchLabels": {"variant_name": "chat-va", "exported_namespace": "models"},
                            },
                        },
                        "target": {"type": "AverageValue", "averageValue": "1"},
                    },
                }
            ],
        },
    },
    "workload": {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "models"},
        "spec": {"template": {"spec": {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.11.0"}]}}},
    },
    "controller": {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "wva-controller-manager", "namespace": "wva", "labels": LABELS},
        "spec": {"template": {"spec": {"containers": [{"name": "manager", "image": "registry.test/wva:0.5.1"}]}}},
    },
    "lease": {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "72dd1cf1.llm-d.ai", "namespace": "wva"},
        "spec": {
            "holderIdentity": "wva-controller-manager-abc_123",
            "leaseDurationSeconds": 60,
            "renewTime": "2027-01-15T07:59:50.000000Z",
        },
    },
    "main": {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "wva-variantautoscaling-config", "namespace": "wva"},
        "data": {"PROMETHEUS_BASE_URL": "https://prometheus:9090"},
    },
    "saturation": {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "release-wva-saturation-scaling-config", "namespace": "wva"},
        "data": {
            "default": "kvCacheThreshold: 0.8\nqueueLengthThreshold: 5\nkvSpareTrigger: 0.1\nqueueSpareTrigger: 3\n"
        },
    },
    "adapter": {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "prometheus-adapter", "namespace": "monitoring"},
        "data": {
            "config.yaml": yaml.safe_dump(
                {
                    "externalRules": [
                        {
                            "seriesQuery": 'wva_desired_replicas{variant_name!=""}',
                            "metricsQuery": (
                                'max by (variant_name) (wva_desired_replicas{namespace="wva",<<.LabelMatchers>>})'
                            ),
                        }
                    ]
                }
            )
        },
    },
}

SCALED_OBJECT = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledObject",
    "metadata": {"name": "chat-so", "namespace": "models"},
    "spec": {
        "scaleTargetRef": {"name": "chat"},
        "minReplicaCount": 1,
        "fallback": {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicas"},
        "triggers": [
            {
                "type": "prometheus",
                "metricType": "AverageValue",
                "metadata": {
                    "query": (
                        'max(wva_desired_replicas{variant_name="chat-va", exported_namespace="models",'
                        ' namespace="wva"})'
                    ),
                    "threshold": "1",
                    "ignoreNullValues": "false",
                },
            }
        ],
    },
}


@pytest.fixture
def sound():
    """Return a copy of the working objects by name; a test may change it."""
    return copy.deepcopy(SOUND)


@pytest.fixture
def scaled_object():
    """Return a copy of a working ScaledObject."""
    return copy.deepcopy(SCALED_OBJECT)


@pytest.fixture
def findings():
    """Return a function that checks objects; ``whole`` says whether they are a whole cluster."""

    def look(objects, *, whole=True, now=NOW):
        manifests = Manifests()
        manifests.read(["-"], io.StringIO(yaml.safe_dump_all(list(objects))))
        manifests.objects.whole = whole
        return check(manifests.objects, now=now, read_findings=manifests.findings)

    return look


@pytest.fixture
def told(findings):
    """Return a function that checks objects and returns severity, object and problem of each finding."""
    return lambda objects, **more: [
        (finding.severity.value, str(finding.key), finding.problem) for finding in findings(objects, **more)
    ]
