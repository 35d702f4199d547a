"""The program under test as a process: started with a ServiceAccount's token, asked through its own HTTP face."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from e2e.controlplane.processes import Process
from e2e.exposition import Page

_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a controller listens, host:port."""

    metrics: str
    probes: str

    def environment(self) -> Mapping[str, str]:
        """Return the settings that make the controller listen there."""
        return {"METRICS_BIND_ADDRESS": self.metrics, "HEALTH_PROBE_BIND_ADDRESS": self.probes}


class Controller:
    """One running ``wva run``."""

    def __init__(self, process: Process, addresses: Addresses, *, token: str = "", secure: bool = True) -> None:
        """Take a process that has been started; ``token`` is of somebody who may read its metrics.

        ``secure`` False is for a controller that serves them to everybody over HTTP.
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
        """The name of its process and log."""
        return self.process.name

    def metrics(self) -> Page:
        """Return what ``/metrics`` says now. OSError when nobody answers."""
        request = urllib.request.Request(
            f"{self._scheme}://{self.addresses.metrics}/metrics", headers={"Authorization": f"Bearer {self._token}"}
        )
        tls = self._tls if self._scheme == "https" else None
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=tls) as response:
            return Page(response.read().decode())

    def readiness(self) -> tuple[int, str]:
        """Return status and text of ``/readyz``. OSError when nobody answers."""
        return self._probe("readyz")

    def liveness(self) -> tuple[int, str]:
        """Return status and text of ``/healthz``. OSError when nobody answers."""
        return self._probe("healthz")

    def log(self, lines: int = 20) -> str:
        """Return the end of its log."""
        return self.process.tail(lines)

    def wait_serving(self, *, timeout_seconds: float = 30) -> None:
        """Wait until it answers ``/readyz`` in whatever way."""
        self.process.wait_ready(lambda: bool(self.readiness()), timeout_seconds=timeout_seconds)

    def wait_metrics(self, *, timeout_seconds: float = 30) -> None:
        """Wait until it serves its metrics, which it does once it has read its settings."""
        self.process.wait_ready(lambda: bool(self.metrics()), timeout_seconds=timeout_seconds)

    def _probe(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.addresses.probes}/{path}", timeout=_TIMEOUT_SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
