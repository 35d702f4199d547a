"""A Prometheus of a test's own that demands client certificates, and whose certificates change while it runs.

Prometheus reads the files of its ``web.config.file`` for each new connection, so writing them is the rotation.
"""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path

import yaml

from e2e.controlplane.build import PROMETHEUS
from e2e.controlplane.certs import ServerCertificate
from e2e.controlplane.ports import free_port
from e2e.controlplane.prometheus import SCRAPE_INTERVAL_SECONDS

_TIMEOUT_SECONDS = 5.0


class MutualTlsPrometheus:
    """The files and the command line of a Prometheus. The test starts it with ``command``."""

    def __init__(self, directory: Path, *, target: str) -> None:
        """Scrape ``target`` (host:port), whose page has the labels namespace and pod."""
        self._directory = directory
        self._address = f"127.0.0.1:{free_port()}"
        self.url = f"https://{self._address}"
        directory.mkdir(parents=True)
        interval = f"{SCRAPE_INTERVAL_SECONDS}s"
        job = {"job_name": "pods", "honor_labels": True, "static_configs": [{"targets": [target]}]}
        config = {"global": {"scrape_interval": interval, "scrape_timeout": interval}, "scrape_configs": [job]}
        tls = {
            "cert_file": "server.crt",
            "key_file": "server.key",
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": "clients.crt",
        }
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        (directory / "web.yaml").write_text(yaml.safe_dump({"tls_server_config": tls}), encoding="utf-8")

    def command(self) -> list[str]:
        """Return the command line."""
        return [
            str(PROMETHEUS.binary("prometheus")),
            f"--config.file={self._directory / 'prometheus.yaml'}",
            f"--web.config.file={self._directory / 'web.yaml'}",
            f"--web.listen-address={self._address}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            "--log.level=warn",
        ]

    def serve(self, pair: ServerCertificate) -> None:
        """Present this certificate on every connection from now on."""
        _replace(self._directory / "server.key", pair.key.read_bytes())
        _replace(self._directory / "server.crt", pair.certificate.read_bytes())

    def admit(self, *authorities: Path) -> None:
        """On every connection from now on, admit only clients of these authorities."""
        _replace(self._directory / "clients.crt", b"".join(path.read_bytes() for path in authorities))

    def admits(self, authority: Path, client: ServerCertificate) -> bool:
        """Tell whether the server now answers a client that has this certificate and trusts this authority."""
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(client.certificate, client.key)
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=_TIMEOUT_SECONDS, context=context) as response:
                return bool(response.status == 200)
        except OSError:  # a refused certificate is a TLS alert or a reset; URLError is an OSError, too
            return False


def _replace(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that no connection reads half of it."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    unfinished.rename(path)
