"""Prometheus over HTTPS, to which tests add scrape jobs while it runs.

Each job is a file of its own, read through ``scrape_config_files``, so tests side by side do not touch each other's.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from e2e.controlplane.build import PROMETHEUS
from e2e.controlplane.layout import Layout

_TIMEOUT_SECONDS = 10.0
SCRAPE_INTERVAL_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriedSample:
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeJob:
    """What to scrape; ``name`` must be unique in the whole run, so put the namespace into it."""

    name: str
    targets: Sequence[str]  # host:port
    scheme: str = "http"
    insecure_skip_verify: bool = False
    authority: Path | None = None  # whose certificate the target must have
    server_name: str = ""  # for which host that must be; by default the target's own address
    bearer_token: str = ""
    honor_labels: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)  # put on every series, as service discovery would
    metrics_path: str = "/metrics"
    interval_seconds: int = SCRAPE_INTERVAL_SECONDS
    dropped: str = ""  # the names of series that are not kept, a regular expression
    namespace: str = ""  # what the label namespace becomes, where the page says another

    def document(self) -> dict[str, Any]:
        """Return the scrape_config of Prometheus."""
        config: dict[str, Any] = {
            "job_name": self.name,
            "scheme": self.scheme,
            "metrics_path": self.metrics_path,
            "honor_labels": self.honor_labels,
            "scrape_interval": f"{self.interval_seconds}s",
            "scrape_timeout": f"{self.interval_seconds}s",
            "static_configs": [{"targets": list(self.targets), "labels": dict(self.labels)}],
        }
        if self.scheme == "https":
            config["tls_config"] = {"insecure_skip_verify": self.insecure_skip_verify}
            if self.authority is not None:
                config["tls_config"]["ca_file"] = str(self.authority)
            if self.server_name:
                config["tls_config"]["server_name"] = self.server_name
        rules = []
        if self.dropped:
            rules.append({"source_labels": ["__name__"], "regex": self.dropped, "action": "drop"})
        if self.namespace:
            rules.append({"target_label": "namespace", "replacement": self.namespace})
        if rules:
            config["metric_relabel_configs"] = rules
        if self.bearer_token:
            config["authorization"] = {"type": "Bearer", "credentials": self.bearer_token}
        return config


class PrometheusApi:
    """The query API of a Prometheus server."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None) -> None:
        """``context`` is needed for https only."""
        self.url = url
        self._context = context

    def query(self, expression: str) -> list[QueriedSample]:
        """Evaluate an instant query that gives a vector."""
        answer = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        return [
            QueriedSample(labels=element["metric"], value=float(element["value"][1]))
            for element in answer["data"]["result"]
        ]

    def targets(self, job: str) -> list[dict[str, Any]]:
        """Return the targets of a scrape job with ``health`` (up, down, unknown) and ``lastError``."""
        found: list[dict[str, Any]] = self._get("/api/v1/targets?state=active")["data"]["activeTargets"]
        return [target for target in found if target["scrapePool"] == job]

    def version(self) -> str:
        """Return the version the running server reports."""
        version: str = self._get("/api/v1/status/buildinfo")["data"]["version"]
        return version

    def is_ready(self) -> bool:
        """Return whether the server answers queries."""
        try:
            return b"Ready" in self._open("/-/ready")
        except urllib.error.URLError:
            return False

    def reload(self) -> None:
        """Make the server read its configuration again."""
        self._open("/-/reload", method="POST")

    def _get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._open(path))
        return answer

    def _open(self, path: str, *, method: str = "GET") -> bytes:
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=self._context) as response:
            content: bytes = response.read()
        return content


class PrometheusProcess:
    """The server: start, stop, start again with the same data and port, add and remove jobs."""

    def __init__(self, layout: Layout) -> None:
        """Describe the server; nothing runs yet."""
        self._directory = layout.directory / "prometheus"
        self._jobs = self._directory / "jobs"
        self._pair = layout.pair("prometheus")
        context = ssl.create_default_context(cafile=str(layout.authority))
        self.api = PrometheusApi(f"https://{layout.address('prometheus')}", context)
        self.process = layout.process(
            "prometheus",
            [
                PROMETHEUS.binary("prometheus"),
                f"--config.file={self._directory / 'prometheus.yaml'}",
                f"--web.config.file={self._directory / 'web.yaml'}",
                f"--web.listen-address={layout.address('prometheus')}",
                "--web.enable-lifecycle",
                f"--storage.tsdb.path={layout.data('prometheus')}",
                "--storage.tsdb.retention.time=1d",
                "--log.level=warn",
            ],
            environment={"GOMEMLIMIT": "512MiB"},
        )

    def configure(self) -> None:
        """Write the configuration files, without any job."""
        self._jobs.mkdir(parents=True, exist_ok=True)
        interval = f"{SCRAPE_INTERVAL_SECONDS}s"
        config = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "scrape_config_files": [f"{self._jobs}/*.yaml"],
        }
        web = {"tls_server_config": {"cert_file": str(self._pair.certificate), "key_file": str(self._pair.key)}}
        (self._directory / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        (self._directory / "web.yaml").write_text(yaml.safe_dump(web), encoding="utf-8")

    def start(self) -> None:
        """Start and wait until queries are answered."""
        self.process.start()
        self.process.wait_ready(self.api.is_ready)

    def stop(self) -> None:
        """Stop the server; its data and port stay reserved for the next start."""
        self.process.stop()

    def add_job(self, job: ScrapeJob) -> None:
        """Scrape the job's targets from now on; a job of the same name is replaced."""
        path = self._jobs / f"{job.name}.yaml"
        unfinished = path.with_suffix(".unfinished")  # another worker may reload at any moment
        unfinished.write_text(yaml.safe_dump({"scrape_configs": [job.document()]}), encoding="utf-8")
        unfinished.rename(path)
        self._reload()

    def remove_job(self, name: str) -> None:
        """Stop scraping a job; its series become stale at once."""
        (self._jobs / f"{name}.yaml").unlink(missing_ok=True)
        self._reload()

    def _reload(self) -> None:
        if self.process.running:  # else the files are read when it starts
            self.api.reload()
