"""Kinds of others that our manifests use and that this control plane does not serve by itself."""

from __future__ import annotations

from e2e.controlplane.api import KubernetesApi
from e2e.controlplane.build import CERT_MANAGER, PROMETHEUS_OPERATOR


def serve_monitors(api: KubernetesApi) -> None:
    """Let the API server take the Prometheus Operator's kinds that we use, and wait until it does."""
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        (file,) = PROMETHEUS_OPERATOR.binary("crds").glob(f"monitoring.coreos.com_{kind.lower()}s.yaml")
        api.apply_yaml(file.read_text(encoding="utf-8"))
        api.resource(f"{kind}.monitoring.coreos.com")


def serve_certificates(api: KubernetesApi) -> None:
    """Let the API server take the Certificates of cert-manager, and wait until it does."""
    (file,) = CERT_MANAGER.binary("crds").glob("cert-manager.io_certificates.yaml")
    api.apply_yaml(file.read_text(encoding="utf-8"))
    api.resource("Certificate.cert-manager.io")
