"""The cluster's custom metrics API, with one metric of pods that a test sets.

The API server forwards ``custom.metrics.k8s.io`` to a server in the test's process, as it does to prometheus-adapter.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from e2e.controlplane.api import KubernetesApi
from e2e.controlplane.certs import Authority
from e2e.controlplane.keda import wait_available
from e2e.serving import serving

METRIC: Final = "load"
_GROUP: Final = "custom.metrics.k8s.io"
_VERSION: Final = "v1beta2"
_SERVICE: Final = "custom-metrics"
_NAME: Final = f"{_VERSION}.{_GROUP}"


class PodMetric:
    """The value of the metric of each pod, in thousandths; a pod that is missing here has none."""

    def __init__(self, namespace: str) -> None:
        """Begin without values."""
        self._namespace = namespace
        self.values: dict[str, int] = {}
        self.asked = 0
        """How often the HPA controller has asked."""

    def answer(self, path: str) -> dict[str, Any]:
        """Return the API's answer to a GET."""
        if not path.partition("?")[0].endswith(f"/{METRIC}"):
            resource = {"name": f"pods/{METRIC}", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]}
            version = f"{_GROUP}/{_VERSION}"
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version,
                "resources": [resource | {"singularName": ""}],
            }
        self.asked += 1
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        items = [
            {
                "describedObject": {"kind": "Pod", "namespace": self._namespace, "name": name, "apiVersion": "/v1"},
                "metric": {"name": METRIC},
                "timestamp": now,
                "value": f"{value}m",
            }
            for name, value in self.values.items()
        ]
        return {"kind": "MetricValueList", "apiVersion": f"{_GROUP}/{_VERSION}", "metadata": {}, "items": items}


@contextlib.contextmanager
def custom_metrics(api: KubernetesApi, namespace: str, directory: Path) -> Iterator[PodMetric]:
    """Serve as the cluster's custom metrics API inside the block; ``directory`` takes certificates."""
    authority = Authority(directory, "custom-metrics-ca")
    pair = authority.issue(_SERVICE, hosts=("localhost", f"{_SERVICE}.{namespace}.svc"))
    metric = PodMetric(namespace)

    class CustomMetricsHandler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name http.server calls
            content = json.dumps(metric.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), CustomMetricsHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        api.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": _SERVICE, "namespace": namespace},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            }
        )
        try:
            api.apply(
                {
                    "apiVersion": "apiregistration.k8s.io/v1",
                    "kind": "APIService",
                    "metadata": {"name": _NAME},
                    "spec": {
                        "group": _GROUP,
                        "version": _VERSION,
                        "groupPriorityMinimum": 100,
                        "versionPriority": 100,
                        "service": {"name": _SERVICE, "namespace": namespace, "port": server.server_port},
                        "caBundle": base64.b64encode(authority.certificate.read_bytes()).decode(),
                    },
                }
            )
            wait_available(api, _NAME)
            yield metric
        finally:
            api.delete("APIService", _NAME)
