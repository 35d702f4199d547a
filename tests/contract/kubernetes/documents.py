"""The objects that the expectations write."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.contract.kubernetes.client import ContractClient

GROUP = "contract.example.com"
_ATTEMPTS = 200
_PAUSE_SECONDS = 0.1


def core(namespace: str, plural: str, name: str = "") -> str:
    """Return the path of core objects."""
    return f"/api/v1/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def deployments(namespace: str, name: str = "") -> str:
    """Return the path of Deployments."""
    return f"/apis/apps/v1/namespaces/{namespace}/deployments" + (f"/{name}" if name else "")


def stateful_sets(namespace: str, name: str = "") -> str:
    """Return the path of StatefulSets."""
    return f"/apis/apps/v1/namespaces/{namespace}/statefulsets" + (f"/{name}" if name else "")


def leases(namespace: str, name: str = "") -> str:
    """Return the path of Leases."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases" + (f"/{name}" if name else "")


def widgets(namespace: str, name: str = "") -> str:
    """Return the path of the contract's custom resource."""
    return f"/apis/{GROUP}/v1/namespaces/{namespace}/widgets" + (f"/{name}" if name else "")


def config_map(name: str, data: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"key": "value"} if data is None else data,
    }


def deployment(name: str, **spec: Any) -> dict[str, Any]:
    """Return a paused Deployment: a real controller creates no pods for it and only writes its status."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none:1"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, "paused": True, **spec},
    }


def stateful_set(name: str, **spec: Any) -> dict[str, Any]:
    """Return a StatefulSet; a real controller creates pods for it, which no expectation reads."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none:1"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "serviceName": name, "template": template, **spec},
    }


def widget(name: str, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a custom object."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"model": "m"} if spec is None else spec,
        **more,
    }


def _definition() -> dict[str, Any]:
    text = {"type": "string"}
    spec = {
        "type": "object",
        "required": ["model"],
        "properties": {
            "model": {**text, "minLength": 1, "maxLength": 20},
            "cost": {**text, "pattern": r"^\d+(\.\d+)?$", "default": "10.0"},
            "mode": {**text, "enum": ["fast", "slow"]},
            "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100},
            "labels": {"type": "object", "additionalProperties": text},
            "names": {"type": "array", "maxItems": 3, "items": text},
            "limits": {"type": "object", "properties": {"burst": {"type": "boolean", "default": True}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "note": {**text, "nullable": True},
        },
    }
    condition = {
        "type": "object",
        "required": ["type", "status"],
        "properties": {"type": text, "status": text, "reason": text},
    }
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    status = {
        "type": "object",
        "properties": {
            "allocation": {
                "type": "object",
                "required": ["accelerator", "at"],
                "properties": {"accelerator": text, "at": {**text, "format": "date-time"}},
            },
            "replicas": {"type": "integer"},
            "selector": text,
            "conditions": {"type": "array", "items": condition, **keyed},
        },
    }
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": scale},
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {"spec": spec, "status": status},
            }
        },
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def served(client: ContractClient) -> None:
    """Install the contract's custom resource and wait until the server serves it."""
    answer = await client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition())
    assert answer.status in (201, 409), answer
    for _ in range(_ATTEMPTS):
        if (await client.get(f"/apis/{GROUP}/v1/widgets", limit=1)).status == 200:
            return
        await asyncio.sleep(_PAUSE_SECONDS)
    raise TimeoutError("the contract's custom resource is not served")
