"""Kinds of others that our manifests use and that are not served here: taken as they are, checked by kubeconform."""

from __future__ import annotations

from e2e.controlplane.api import Api, Body

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def serve_monitors(api: Api) -> None:
    """Let the API server take ServiceMonitors and PodMonitors, and wait until it does."""
    for kind in ("ServiceMonitor", "PodMonitor"):
        api.apply(_definition("monitoring.coreos.com", kind))
        api.resource(f"{kind}.monitoring.coreos.com")


def _definition(group: str, kind: str) -> Body:
    plural = f"{kind.lower()}s"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _ANYTHING}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }
