"""The CustomResourceDefinition of ``VariantAutoscaling``: the one place where it is written.

``wva crd`` prints it. That command makes the copies in ``deploy/crd/`` and in the chart, and a test fails when they are
stale. Schema, defaults, patterns and names are those of v0.5.1, because such objects are stored in clusters already.
``status.currentReplicas`` and some printer columns are new.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from wva.api.variantautoscaling import DEFAULT_VARIANT_COST, GROUP, KIND, PLURAL, VERSION, ConditionType

Schema = dict[str, Any]

COST_PATTERN: Final = r"^\d+(\.\d+)?$"
SHORT_NAME: Final = "va"


def _scale_target_ref() -> Schema:
    return {
        "type": "object",
        "description": "The workload that this variant scales, in the namespace of this object.",
        "properties": {
            "apiVersion": {"type": "string", "description": "API version of the target; apps/v1 when absent."},
            "kind": {
                "type": "string",
                "description": "Kind of the target: Deployment, or another one that the controller scales.",
            },
            "name": {"type": "string", "description": "Name of the target."},
        },
        "required": ["kind", "name"],
        "x-kubernetes-map-type": "atomic",
    }


def _spec() -> Schema:
    return {
        "type": "object",
        "description": "The target that is scaled, its model and its cost.",
        "properties": {
            "modelID": {
                "type": "string",
                "minLength": 1,
                "description": "Served model id: equal to the model_name label of the vLLM metrics.",
            },
            "scaleTargetRef": _scale_target_ref(),
            "variantCost": {
                "type": "string",
                "default": DEFAULT_VARIANT_COST,
                "pattern": COST_PATTERN,
                "description": "Cost of one replica, in any unit; the variants of a model are compared by it.",
            },
        },
        "required": ["modelID", "scaleTargetRef"],
    }


def _condition() -> Schema:
    return {
        "type": "object",
        "description": "One aspect of the variant's state.",
        "properties": {
            "lastTransitionTime": {
                "type": "string",
                "format": "date-time",
                "description": "When the status last changed.",
            },
            "message": {"type": "string", "maxLength": 32768, "description": "The reason for the status, in words."},
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "description": "Generation of the object that this condition was set for.",
            },
            "reason": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                "description": "The reason for the status, in one word.",
            },
            "status": {
                "type": "string",
                "enum": ["True", "False", "Unknown"],
                "description": "True, False or Unknown.",
            },
            "type": {
                "type": "string",
                "maxLength": 316,
                "pattern": (
                    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
                ),
                "description": "What the condition is about.",
            },
        },
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    }


def _status() -> Schema:
    return {
        "type": "object",
        "description": "The last decision, and the conditions of the variant.",
        "properties": {
            "currentReplicas": {
                "type": "integer",
                "minimum": 0,
                "description": "Replicas of the target that exist; absent without a target.",
            },
            "actuation": {
                "type": "object",
                "description": "Whether the last decision is applied; absent while there is none.",
                "properties": {
                    "applied": {
                        "type": "boolean",
                        "description": "True when the desired number of replicas exists and all of them are ready.",
                    }
                },
                "required": ["applied"],
            },
            "conditions": {
                "type": "array",
                "description": "The state of the variant: TargetResolved, MetricsAvailable, "
                "OptimizationReady, Progressing, Limited, Ready, and others.",
                "items": _condition(),
                "x-kubernetes-list-map-keys": ["type"],
                "x-kubernetes-list-type": "map",
            },
            "desiredOptimizedAlloc": {
                "type": "object",
                "description": "The last decision; absent while the target does not exist.",
                "properties": {
                    "accelerator": {"type": "string", "minLength": 2, "description": "Accelerator type."},
                    "lastRunTime": {
                        "type": "string",
                        "format": "date-time",
                        "description": "When the controller last wrote this status.",
                    },
                    "numReplicas": {"type": "integer", "minimum": 0, "description": "Desired number of replicas."},
                },
                "required": ["accelerator", "numReplicas"],
            },
        },
    }


def _said_by(type_: ConditionType, field: str = "status") -> str:
    return f".status.conditions[?(@.type=='{type_}')].{field}"


def _printer_columns() -> list[Schema]:
    """Return what ``kubectl get va`` shows, then what ``-o wide`` adds.

    Target, Model, Optimized, MetricsReady and Age are those of v0.5.1, by name and path.
    """
    narrow = (
        ("Model", "string", ".spec.modelID"),
        ("Accelerator", "string", ".status.desiredOptimizedAlloc.accelerator"),
        ("Current", "integer", ".status.currentReplicas"),
        ("Desired", "integer", ".status.desiredOptimizedAlloc.numReplicas"),
        ("Ready", "string", _said_by(ConditionType.READY)),
        ("Reason", "string", _said_by(ConditionType.OPTIMIZATION_READY, "reason")),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    wide = (
        ("Target", ".spec.scaleTargetRef.name"),
        ("Cost", ".spec.variantCost"),
        ("MetricsReady", _said_by(ConditionType.METRICS_AVAILABLE)),
        ("Limited", _said_by(ConditionType.LIMITED)),
        ("Optimized", ".status.desiredOptimizedAlloc.numReplicas"),
    )
    return [
        *({"name": name, "type": kind, "jsonPath": path} for name, kind, path in narrow),
        *({"name": name, "type": "string", "jsonPath": path, "priority": 1} for name, path in wide),
    ]


def definition() -> Schema:
    """Return the CustomResourceDefinition as a JSON-compatible document."""
    schema = {
        "type": "object",
        "description": "One variant of a model: a workload serving it on one accelerator type.",
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this representation."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": _status(),
        },
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": _printer_columns(),
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "shortNames": [SHORT_NAME],
                "singular": KIND.lower(),
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def render() -> str:
    """Return the definition as the YAML that is shipped."""
    header = "# Generated by `wva crd`; the source is wva/api/crd.py.\n---\n"
    return header + yaml.safe_dump(definition(), sort_keys=False, width=120)
