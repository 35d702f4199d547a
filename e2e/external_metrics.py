"""A stand-in for prometheus-adapter: external metrics from the real Prometheus by the rules of a values file.

In: the ``rules.external`` of a chart values file, requests of the real API server. Out: ExternalMetricValueLists. The
real adapter cannot be built from the module proxy, so what is proven with this is that the shipped rule, the shipped
HPA and the published labels fit together. Only the parts of a rule that we ship are understood; others are an error.

The cluster has one backend for external metrics: ``external_metrics_adapter`` takes it from KEDA and gives it back, so
a test that uses it must be marked ``disruptive``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import http.server
import json
import math
import re
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.keda import EXTERNAL_METRICS, external_metrics_backend, wait_available
from e2e.controlplane.layout import EXTERNAL_METRICS_SERVICE, LOOPBACK
from e2e.controlplane.polling import eventually
from e2e.controlplane.prometheus import PrometheusApi, Sample

_ROOT = "/apis/external.metrics.k8s.io/v1beta1"
_VALUES_PATH = re.compile(rf"{_ROOT}/namespaces/(?P<namespace>[^/]+)/(?P<metric>[^/]+)")
_REQUIREMENT = re.compile(r"(?P<label>[\w./-]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[\w.-]*)")
_FLIP_SECONDS = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One external rule: which series exist under which metric name, and how to ask for their value."""

    series_query: str
    namespace_label: str
    matches: re.Pattern[str]
    name: str
    metrics_query: str

    def metric_of(self, series: str) -> str | None:
        """Return the external metric's name of a series, None when the rule does not name it."""
        return self.matches.sub(self.name, series) if self.matches.search(series) else None

    def query(self, *, namespace: str, selector: str) -> str:
        """Fill the template with the matchers of a request."""
        matchers = [f'{self.namespace_label}="{namespace}"', *_matchers(selector)]
        return self.metrics_query.replace("<<.LabelMatchers>>", ",".join(matchers))


def read_rules(values: Path) -> list[Rule]:
    """Read the external rules of a values file. ValueError for what this stand-in does not understand."""
    rules = []
    for entry in yaml.safe_load(values.read_text(encoding="utf-8"))["rules"]["external"]:
        unknown = entry.keys() - {"seriesQuery", "resources", "name", "metricsQuery"}
        templates = set(re.findall(r"<<.*?>>", entry["metricsQuery"])) - {"<<.LabelMatchers>>"}
        if unknown or templates:
            raise ValueError(f"not understood in {values}: {sorted(unknown | templates)}")
        overrides = entry["resources"]["overrides"]
        (namespace_label,) = [label for label, target in overrides.items() if target["resource"] == "namespace"]
        rules.append(
            Rule(
                series_query=entry["seriesQuery"],
                namespace_label=namespace_label,
                matches=re.compile(entry["name"]["matches"]),
                name=entry["name"]["as"],
                metrics_query=entry["metricsQuery"],
            )
        )
    return rules


class Adapter:
    """Answers the two questions of the external metrics API from Prometheus."""

    def __init__(self, rules: list[Rule], prometheus: PrometheusApi) -> None:
        """Keep the rules; Prometheus is asked for each request."""
        self._rules = rules
        self._prometheus = prometheus

    def resources(self) -> dict[str, Any]:
        """Return the APIResourceList: one resource for each metric that has series now."""
        entries = [
            {"name": name, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
            for name in sorted(self._names())
        ]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": "external.metrics.k8s.io/v1beta1",
            "resources": entries,
        }

    def values(self, *, namespace: str, metric: str, selector: str) -> dict[str, Any] | None:
        """Return the values of a metric in a namespace, None when no rule offers the metric."""
        rule = self._names().get(metric)
        if rule is None:
            return None
        samples = self._prometheus.query(rule.query(namespace=namespace, selector=selector))
        return {
            "kind": "ExternalMetricValueList",
            "apiVersion": "external.metrics.k8s.io/v1beta1",
            "metadata": {},
            "items": [_value(metric, sample) for sample in samples if math.isfinite(sample.value)],
        }

    def _names(self) -> dict[str, Rule]:
        names = {}
        for rule in self._rules:
            for sample in self._prometheus.query(rule.series_query):
                name = rule.metric_of(sample.labels["__name__"])
                if name is not None:
                    names[name] = rule
        return names


@contextlib.contextmanager
def external_metrics_adapter(plane: ControlPlane, values: Path) -> Iterator[None]:
    """Be the cluster's external metrics API inside the block, by the rules of ``values``; KEDA's adapter after it."""
    adapter = Adapter(read_rules(values), plane.prometheus_api)
    with _serving(plane, adapter) as port:
        backend = external_metrics_backend(
            service=EXTERNAL_METRICS_SERVICE, port=port, authority=plane.layout.authority
        )
        keda = plane.api.raw(_ROOT)
        try:
            for item in backend:
                plane.api.apply(item)
            _wait_until_served(plane, adapter.resources(), instead_of=keda)
            yield
        finally:
            for item in plane.keda.registration():
                plane.api.apply(item)
            _wait_until_served(plane, keda, instead_of=None)


def _wait_until_served(plane: ControlPlane, expected: dict[str, Any], *, instead_of: dict[str, Any] | None) -> None:
    """Wait until the API server forwards to the new backend: its conditions may still be about the old one."""
    if expected == instead_of:
        raise ValueError("both backends offer the same metrics, so they cannot be told apart")
    eventually(
        lambda: plane.api.raw(_ROOT)["resources"] == expected["resources"],
        timeout_seconds=_FLIP_SECONDS,
        what="external metrics API at its new backend",
    )
    wait_available(plane.api, EXTERNAL_METRICS)


@contextlib.contextmanager
def _serving(plane: ControlPlane, adapter: Adapter) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name http.server calls
            status, body = _answer(adapter, self.path)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        def finish_request(self, request: Any, client_address: Any) -> None:
            # The handshake belongs to the connection's own thread: in accept() one silent client would block all.
            request.settimeout(10)
            with contextlib.suppress(OSError), tls.wrap_socket(request, server_side=True) as secured:
                super().finish_request(secured, client_address)

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = plane.layout.pair(EXTERNAL_METRICS_SERVICE)
    tls.load_cert_chain(pair.certificate, pair.key)
    tls.load_verify_locations(plane.layout.front_proxy_authority)
    tls.verify_mode = ssl.CERT_REQUIRED  # only the API server's aggregation layer may ask
    with Server((LOOPBACK, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _answer(adapter: Adapter, target: str) -> tuple[int, dict[str, Any]]:
    path = urlsplit(target)
    if path.path == _ROOT:
        return 200, adapter.resources()
    if found := _VALUES_PATH.fullmatch(path.path):
        selector = parse_qs(path.query).get("labelSelector", [""])[0]
        values = adapter.values(namespace=found["namespace"], metric=found["metric"], selector=selector)
        if values is not None:
            return 200, values
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
    return 404, {**status, "message": f"no external metric at {path.path}"}


def _matchers(selector: str) -> list[str]:
    matchers = []
    for requirement in filter(None, selector.split(",")):
        found = _REQUIREMENT.fullmatch(requirement.strip())
        if found is None:
            raise ValueError(f"label selector not understood: {requirement}")
        operator = "!=" if found["operator"] == "!=" else "="
        matchers.append(f'{found["label"]}{operator}"{found["value"]}"')
    return matchers


def _value(metric: str, sample: Sample) -> dict[str, Any]:
    milli = int(sample.value * 1000)  # as the adapter does: finer values are cut
    return {
        "metricName": metric,
        "metricLabels": dict(sample.labels),
        "timestamp": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": f"{milli}m" if milli % 1000 else str(milli // 1000),
    }
