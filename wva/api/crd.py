"""The CustomResourceDefinition of ``VariantAutoscaling``.

It is written here and nowhere else. ``wva crd`` prints it, and so makes the copies in ``deploy/crd/`` and in the chart.
A test fails when a copy is stale. Schema, defaults, patterns and names are those of v0.5.1, because clusters store such
objects already. ``status.currentReplicas``, ``status.role``, some printer columns and the default of
``scaleTargetRef.kind`` are new.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from wva.api.variantautoscaling import (
    DEFAULT_TARGET_KIND,
    DEFAULT_VARIANT_COST,
    GROUP,
    KIND,
    PLURAL,
    VERSION,
    ConditionType,
)

Schema = dict[str, Any]

COST_PATTERN: Final = r"^\d+(\.\d+)?$"
_CONDITION_TYPE: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


def _field(type_: str, description: str, **limits: object) -> Schema:
    """Return the schema of a plain value. ``limits`` stand before the description, as in the shipped file."""
    return {"type": type_, **limits, "description": description}


def _object(description: str, properties: Schema, *required: str, **extensions: str) -> Schema:
    """Return the schema of an object. An extension ``a_b`` becomes ``x-kubernetes-a-b``."""
    schema: Schema = {"type": "object", "description": description, "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema | {f"x-kubernetes-{name.replace('_', '-')}": value for name, value in extensions.items()}


def _spec() -> Schema:
    kind_description = "Kind of the target: Deployment, or another one that the controller scales."
    target = {
        "apiVersion": _field("string", "API version of the target; apps/v1 when absent."),
        "kind": _field("string", kind_description, default=DEFAULT_TARGET_KIND),
        "name": _field("string", "Name of the target."),
    }
    target_description = "The workload that this variant scales, in the namespace of this object."
    model_description = "Served model id: equal to the model_name label of the vLLM metrics."
    cost_description = "Cost of one replica, in any unit; the variants of a model are compared by it."
    properties = {
        "modelID": _field("string", model_description, minLength=1),
        "scaleTargetRef": _object(target_description, target, "name", map_type="atomic"),
        "variantCost": _field("string", cost_description, default=DEFAULT_VARIANT_COST, pattern=COST_PATTERN),
    }
    return _object("The target that is scaled, its model and its cost.", properties, "modelID", "scaleTargetRef")


def _condition() -> Schema:
    generation_description = "Generation of the object that this condition was set for."
    reason_limits = {"minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}
    properties = {
        "lastTransitionTime": _field("string", "When the status last changed.", format="date-time"),
        "message": _field("string", "The reason for the status, in words.", maxLength=32768),
        "observedGeneration": _field("integer", generation_description, format="int64", minimum=0),
        "reason": _field("string", "The reason for the status, in one word.", **reason_limits),
        "status": _field("string", "True, False or Unknown.", enum=["True", "False", "Unknown"]),
        "type": _field("string", "What the condition is about.", maxLength=316, pattern=_CONDITION_TYPE),
    }
    required = ("lastTransitionTime", "message", "reason", "status", "type")
    return _object("One aspect of the variant's state.", properties, *required)


def _status() -> Schema:
    applied_description = "True when the desired number of replicas exists and all of them are ready."
    actuation_description = "Whether the last decision is applied; absent while there is none."
    decision = {
        "accelerator": _field("string", "Accelerator type.", minLength=2),
        "lastRunTime": _field("string", "When the controller last wrote this status.", format="date-time"),
        "numReplicas": _field("integer", "Desired number of replicas.", minimum=0),
    }
    decision_description = "The last decision; absent while the target does not exist."
    properties = {
        "currentReplicas": _field("integer", "Replicas of the target that exist; absent without a target.", minimum=0),
        "actuation": _object(actuation_description, {"applied": _field("boolean", applied_description)}, "applied"),
        "conditions": {
            "type": "array",
            "description": "The state of the variant: TargetResolved, MetricsAvailable, "
            "OptimizationReady, Progressing, Limited, Ready, and others.",
            "items": _condition(),
            "x-kubernetes-list-map-keys": ["type"],
            "x-kubernetes-list-type": "map",
        },
        "desiredOptimizedAlloc": _object(decision_description, decision, "accelerator", "numReplicas"),
        "role": _field(
            "string", "What the pods compute of a request, as prefill or decode; absent if they do not say."
        ),
    }
    return _object("The last decision, and the conditions of the variant.", properties)


def _condition_path(type_: ConditionType, field: str = "status") -> str:
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
        ("Ready", "string", _condition_path(ConditionType.READY)),
        ("Reason", "string", _condition_path(ConditionType.OPTIMIZATION_READY, "reason")),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    wide = (
        ("Target", ".spec.scaleTargetRef.name"),
        ("Role", ".status.role"),
        ("Cost", ".spec.variantCost"),
        ("MetricsReady", _condition_path(ConditionType.METRICS_AVAILABLE)),
        ("Limited", _condition_path(ConditionType.LIMITED)),
        ("OnTime", _condition_path(ConditionType.REPLICAS_ON_TIME)),
        ("InTime", _condition_path(ConditionType.OBJECTIVES_MET)),
        ("Actuated", _condition_path(ConditionType.ACTUATED)),
        ("Optimized", ".status.desiredOptimizedAlloc.numReplicas"),
        ("CurrentReplicas", ".status.currentReplicas"),
    )
    return [
        *({"name": name, "type": kind, "jsonPath": path} for name, kind, path in narrow),
        *({"name": name, "type": "string", "jsonPath": path, "priority": 1} for name, path in wide),
    ]


def definition() -> Schema:
    """Return the CustomResourceDefinition as a JSON-compatible document."""
    properties = {
        "apiVersion": _field("string", "Version of this representation."),
        "kind": _field("string", "Kind of this object."),
        "metadata": {"type": "object"},
        "spec": _spec(),
        "status": _status(),
    }
    schema = _object("One variant of a model: a workload serving it on one accelerator type.", properties)
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
                "shortNames": ["va"],
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
