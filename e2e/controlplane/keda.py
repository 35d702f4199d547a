"""KEDA: operator and metrics adapter as plain processes, reached by the API server through an ExternalName service.

The adapter is ``v1beta1.external.metrics.k8s.io``; a cluster has one such backend. The adapter's own metrics port
listens on all interfaces: it has no setting for the address.
"""

from __future__ import annotations

import base64
import shutil
import socket
from pathlib import Path

from e2e.controlplane.api import Body, KubernetesApi
from e2e.controlplane.build import KEDA
from e2e.controlplane.kubernetes import is_healthy
from e2e.controlplane.layout import KEDA_NAMESPACE, KEDA_SERVICE, LOOPBACK, Layout

EXTERNAL_METRICS = "v1beta1.external.metrics.k8s.io"
_AVAILABLE_SECONDS = 45.0


class Keda:
    """Operator and adapter."""

    def __init__(self, layout: Layout) -> None:
        """Describe both processes; nothing runs yet."""
        self._layout = layout
        self._certificates = layout.directory / "keda-certs"
        environment = {
            "POD_NAMESPACE": KEDA_NAMESPACE,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": KEDA_NAMESPACE,
            "WATCH_NAMESPACE": "",  # all
            "GOMEMLIMIT": "512MiB",
        }
        self.operator = layout.process("keda-operator", self._operator(), environment=environment)
        self.adapter = layout.process("keda-adapter", self._adapter(), environment=environment)

    def install(self, api: KubernetesApi) -> None:
        """Create KEDA's namespace and custom resource definitions, and wait until they are served.

        An operator that starts before them tries again only after ten seconds.
        """
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KEDA_NAMESPACE}})
        definitions: list[Body] = []
        for file in sorted(KEDA.binary("crds").glob("*.yaml")):
            definitions += api.apply_yaml(file.read_text(encoding="utf-8"))
        for definition in definitions:
            api.resource(f"{definition['spec']['names']['kind']}.{definition['spec']['group']}")

    def start(self) -> None:
        """Start both and wait until the adapter can ask the operator."""
        self._write_certificates()
        self.operator.start()
        self.adapter.start()
        self.operator.wait_ready(self._operator_ready, timeout_seconds=60)
        self.adapter.wait_ready(lambda: is_healthy(self._layout.address("keda-adapter"), path="/readyz"))

    def register(self, api: KubernetesApi) -> None:
        """Make the adapter the cluster's external metrics API and wait until the API server can reach it.

        Call this only once the adapter answers: after a failed first check the API server waits for half a minute.
        """
        for item in self.registration():
            api.apply(item)
        wait_available(api, EXTERNAL_METRICS)

    def registration(self) -> list[Body]:
        """Return the Service and the APIService that lead to the adapter."""
        return external_metrics_backend(
            service=KEDA_SERVICE, port=self._layout.ports["keda-adapter"], authority=self._layout.authority
        )

    def _operator(self) -> list[str | Path]:
        address = self._layout.address
        return [
            KEDA.binary("keda-operator"),
            f"--kubeconfig={self._layout.kubeconfig('keda')}",
            f"--cert-dir={self._certificates}",
            f"--ca-dir={self._certificates}",  # triggers may trust our Prometheus
            f"--metrics-service-bind-address={address('keda-operator-grpc')}",
            f"--health-probe-bind-address={address('keda-operator-probe')}",
            "--metrics-bind-address=0",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--zap-log-level=info",
            "--zap-time-encoding=rfc3339",
        ]

    def _adapter(self) -> list[str | Path]:
        kubeconfig, ports = self._layout.kubeconfig("keda"), self._layout.ports
        pair = self._layout.pair("keda-server")
        return [
            KEDA.binary("keda-adapter"),
            f"--kubeconfig={kubeconfig}",
            f"--lister-kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={ports['keda-adapter']}",
            f"--port={ports['keda-adapter-metrics']}",
            f"--metrics-service-address=localhost:{ports['keda-operator-grpc']}",
            f"--cert-dir={self._certificates}",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
            "--zap-log-level=info",
        ]

    def _write_certificates(self) -> None:
        self._certificates.mkdir(exist_ok=True)
        pair = self._layout.pair("keda-server")
        for origin, name in ((self._layout.authority, "ca.crt"), (pair.certificate, "tls.crt"), (pair.key, "tls.key")):
            shutil.copyfile(origin, self._certificates / name)

    def _operator_ready(self) -> bool:
        if not is_healthy(self._layout.address("keda-operator-probe"), scheme="http"):
            return False
        with socket.create_connection((LOOPBACK, self._layout.ports["keda-operator-grpc"]), timeout=1):
            return True


def external_metrics_backend(*, service: str, port: int, authority: Path) -> list[Body]:
    """Return the objects that make ``localhost:port`` the backend of the external metrics API.

    Its certificate must be signed by ``authority`` for ``SERVICE.keda.svc``, the name the API server expects.
    """
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": service, "namespace": KEDA_NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": EXTERNAL_METRICS},
            "spec": {
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"name": service, "namespace": KEDA_NAMESPACE, "port": port},
                "caBundle": base64.b64encode(authority.read_bytes()).decode(),
            },
        },
    ]


def wait_available(api: KubernetesApi, name: str) -> None:
    """Wait until the API server reports an APIService as available."""
    api.wait("APIService", name, is_available, timeout_seconds=_AVAILABLE_SECONDS)


def is_available(service: Body) -> bool:
    """Return whether an APIService has the condition Available."""
    conditions = service.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Available" and condition["status"] == "True" for condition in conditions)
