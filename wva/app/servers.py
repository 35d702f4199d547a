"""The HTTP servers of the application: probes, and metrics with their certificate."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from wva import log
from wva.serve.certs import CertificateFiles, ReloadingCertificate, self_signed_context
from wva.serve.http import Address, ReadinessCheck, Server, metrics_app, probes_app
from wva.settings import Settings

_METRICS_SERVICES: Final = (
    "workload-variant-autoscaler-metrics",
    "workload-variant-autoscaler-controller-manager-metrics-service",
)
"""Names of the Service in front of /metrics in the chart and in the kustomize overlays."""


class Servers:
    """Starts the servers that the settings ask for, inside an exit stack."""

    def __init__(self, settings: Settings) -> None:
        """Parse the addresses and load the certificate. Raises AddressError or CertificateError."""
        self._settings = settings
        self._probes = Address.parse(settings.health_probe_bind_address, setting="--health-probe-bind-address")
        self._metrics = Address.parse(settings.metrics_bind_address, setting="--metrics-bind-address")
        self.certificate: ReloadingCertificate | None = None
        if self._metrics is not None and settings.metrics_secure and settings.metrics_cert_path:
            folder = Path(settings.metrics_cert_path)
            files = CertificateFiles(folder / settings.metrics_cert_name, folder / settings.metrics_cert_key)
            self.certificate = ReloadingCertificate(files)
        self.probe_port: int | None = None
        self.metrics_port: int | None = None

    async def start(self, stack: AsyncExitStack, *, registry: CollectorRegistry, not_ready: ReadinessCheck) -> None:
        """Start listening until the stack unwinds. Raises AddressError."""
        if self._probes is not None:
            server = await stack.enter_async_context(Server(probes_app(not_ready), self._probes, name="probes"))
            self.probe_port = server.port
        if self._metrics is not None:
            tls = self._tls()
            app = metrics_app(registry)
            server = await stack.enter_async_context(Server(app, self._metrics, name="metrics", tls=tls))
            self.metrics_port = server.port

    def _tls(self) -> ssl.SSLContext | None:
        if not self._settings.metrics_secure:
            log.get("serve").warning("metrics_without_tls", setting="--metrics-secure=false")
            return None
        if self.certificate is not None:
            return self.certificate.context
        namespace = self._settings.pod_namespace
        names = [f"{service}.{namespace}.svc" for service in _METRICS_SERVICES]
        return self_signed_context([*names, *(f"{name}.cluster.local" for name in names)])
