"""VariantAutoscalings as the API server would have them after a status patch."""

from __future__ import annotations

from typing import Any

import msgspec

from wva.api.variantautoscaling import TargetReason, VariantAutoscaling
from wva.publish.conditions import ConfigurationView, TargetView
from wva.publish.status import status_patch

FOUND = TargetView(resolved=True, reason=TargetReason.TARGET_FOUND, message="Scale target Deployment d found", name="d")
GONE = TargetView(
    resolved=False, reason=TargetReason.TARGET_NOT_FOUND, message="Scale target Deployment d not found", name="d"
)
CONFLICT = TargetView(
    resolved=False, reason=TargetReason.TARGET_CONFLICT, message="also claimed by VariantAutoscaling other", name="d"
)
UNSUPPORTED = TargetView(
    resolved=False, reason=TargetReason.TARGET_UNSUPPORTED, message="only apps/v1 Deployment is", name="d"
)
VALID = ConfigurationView()
BROKEN = ConfigurationView("ConfigMap s/c: default: got 'x', expected a number; in force: 0.8")


def wire(status: dict[str, Any] | None = None, *, generation: int = 1, version: str = "7") -> dict[str, Any]:
    """Return the JSON of a VariantAutoscaling."""
    return {
        "apiVersion": "llmd.ai/v1alpha1",
        "kind": "VariantAutoscaling",
        "metadata": {"name": "va", "namespace": "ns", "generation": generation, "resourceVersion": version},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "modelID": "org/model"},
        **({} if status is None else {"status": status}),
    }


def va(status: dict[str, Any] | None = None, **metadata: Any) -> VariantAutoscaling:
    """Return a decoded VariantAutoscaling with this status."""
    return msgspec.convert(wire(status, **metadata), VariantAutoscaling)


def merged(status: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the status after a merge patch: keys set to None disappear."""
    result = {**status, **patch["status"]}
    return {key: value for key, value in result.items() if value is not None}


def patched(before: dict[str, Any] | None, *, now: float, **arguments: Any) -> dict[str, Any] | None:
    """Return the status that ``status_patch`` leads to, None when there is nothing new to say."""
    arguments = {"target": FOUND, "decision": None, "configuration": VALID, **arguments}
    generation = arguments.pop("generation", 1)
    patch = status_patch(va(before, generation=generation), now=now, **arguments)
    return None if patch is None else merged(before or {}, patch)


def condition(status: dict[str, Any], type_: str) -> dict[str, Any]:
    """Return one condition of a status."""
    return next(entry for entry in status["conditions"] if entry["type"] == type_)
