"""Kinds of others that our manifests use and that this control plane does not serve by itself."""

from __future__ import annotations

from e2e.controlplane.api import KubernetesApi
from e2e.controlplane.build import PROMETHEUS_OPERATOR


def serve_monitors(api: KubernetesApi) -> None:
    """Let the API server take the Prometheus Operator's kinds that we use, and wait until it does."""
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        (file,) = PROMETHEUS_OPERATOR.binary("crds").glob(f"monitoring.coreos.com_{kind.lower()}s.yaml")
        api.apply_yaml(file.read_text(encoding="utf-8"))
        api.resource(f"{kind}.monitoring.coreos.com")
