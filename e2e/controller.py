"""The controller as a process: a test starts it with a ServiceAccount's token and asks its HTTP endpoints."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from e2e.controlplane.processes import ServerProcess
from e2e.exposition import MetricsPage

_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a controller listens, host:port."""

    metrics: str
    probes: str

    def environment(self) -> Mapping[str, str]:
        """Return the settings that make the controller listen there."""
        return {"METRICS_BIND_ADDRESS": self.metrics, "HEALTH_PROBE_BIND_ADDRESS": self.probes}


class ControllerProcess:
    """One running ``wva run``."""

    def __init__(self, process: ServerProcess, addresses: Addresses, *, token: str = "", secure: bool = True) -> None:
        """Take a process that has been started; ``token`` belongs to an account that may read its metrics.

        ``secure`` is False if the controller serves its metrics over plain HTTP and without a token.
        """
        self._scheme = "https" if secure else "http"
        self.process = process
        self.addresses = addresses
        self._token = token
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE  # self-signed, as the ServiceMonitor takes it

    @property
    def name(self) -> str:
        """Return the name of its process and log."""
        return self.process.name

    def metrics(self) -> MetricsPage:
        """Return the content of ``/metrics``. OSError without an answer."""
        request = urllib.request.Request(
            f"{self._scheme}://{self.addresses.metrics}/metrics", headers={"Authorization": f"Bearer {self._token}"}
        )
        tls = self._tls if self._scheme == "https" else None
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=tls) as response:
            return MetricsPage(response.read().decode())

    def readiness(self) -> tuple[int, str]:
        """Return status and text of ``/readyz``. OSError without an answer."""
        return self._probe("readyz")

    def liveness(self) -> tuple[int, str]:
        """Return status and text of ``/healthz``. OSError without an answer."""
        return self._probe("healthz")

    def log(self, lines: int = 20) -> str:
        """Return the end of its log."""
        return self.process.tail(lines)

    def wait_serving(self, *, timeout_seconds: float = 30) -> None:
        """Wait until the controller answers ``/readyz``, with any status."""
        self.process.wait_ready(lambda: bool(self.readiness()), timeout_seconds=timeout_seconds)

    def wait_metrics(self, *, timeout_seconds: float = 30) -> None:
        """Wait until the controller serves its metrics. It does so once it has read its settings."""
        self.process.wait_ready(lambda: bool(self.metrics()), timeout_seconds=timeout_seconds)

    def _probe(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.addresses.probes}/{path}", timeout=_TIMEOUT_SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
