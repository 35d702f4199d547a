"""Small stand-ins for parts of OpenShift that this control plane does not have. Rights and certificates are real.

- The *service CA operator*: ``ServiceCa`` writes its authority into ConfigMaps that ask for it, and issues the serving
  certificate of Services that ask for one.
- The *Thanos querier* with its proxy: ``thanos_querier`` has a certificate of the service CA, lets the API server
  review token and right (``cluster-monitoring-view``), and passes queries on to the real Prometheus.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from e2e.controlplane.api import Body, KubernetesApi
from e2e.controlplane.certs import Authority
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.layout import LOOPBACK
from e2e.serving import pass_on, serving

INJECT_AUTHORITY = "service.beta.openshift.io/inject-cabundle"
SERVING_CERTIFICATE = "service.beta.openshift.io/serving-cert-secret-name"
THANOS_HOST = "thanos-querier.openshift-monitoring.svc.cluster.local"
MONITORING_VIEW = "cluster-monitoring-view"
_TIMEOUT_SECONDS = 10.0


class ServiceCa:
    """The authority of all Services."""

    def __init__(self, directory: Path) -> None:
        """Create it; ``directory`` takes its certificate and those that it issues."""
        self.authority = Authority(directory, "service-ca")

    def serve(self, api: KubernetesApi, namespace: str) -> None:
        """Give the ConfigMaps and Services of a namespace the certificates that their annotations ask for."""
        for item in api.list("ConfigMap", namespace=namespace):
            if _annotation(item, INJECT_AUTHORITY) == "true":
                bundle = {"data": {"service-ca.crt": self.authority.certificate.read_text(encoding="utf-8")}}
                api.patch("ConfigMap", item["metadata"]["name"], bundle, namespace=namespace)
        for item in api.list("Service", namespace=namespace):
            if secret := _annotation(item, SERVING_CERTIFICATE):
                api.apply(self._serving_certificate(secret, service=item["metadata"]["name"], namespace=namespace))

    def _serving_certificate(self, name: str, *, service: str, namespace: str) -> Body:
        host = f"{service}.{namespace}.svc"
        pair = self.authority.issue(name, hosts=(host, f"{host}.cluster.local"))
        content = {"tls.crt": pair.certificate.read_bytes(), "tls.key": pair.key.read_bytes()}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": namespace},
            "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
        }


def monitoring_view() -> Body:
    """Describe OpenShift's ClusterRole for accounts that may query Thanos."""
    rules: list[dict[str, Any]] = [
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        {
            "apiGroups": ["monitoring.coreos.com"],
            "resources": ["prometheuses/api"],
            "resourceNames": ["k8s"],
            "verbs": ["get", "create", "update"],
        },
    ]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": MONITORING_VIEW},
        "rules": rules,
    }


class Thanos:
    """The address of the querier, and the number of its answers to each user."""

    def __init__(self, port: int) -> None:
        """Count nothing yet."""
        self.url = f"https://{LOOPBACK}:{port}"
        self._lock = threading.Lock()
        self._answers: Counter[tuple[str, int]] = Counter()

    @property
    def answers(self) -> Counter[tuple[str, int]]:
        """Return how often a user (empty without a valid token) got an HTTP status."""
        with self._lock:
            return Counter(self._answers)

    def count(self, user: str, status: int) -> None:
        """Count an answer to a user."""
        with self._lock:
            self._answers[user, status] += 1


@contextlib.contextmanager
def thanos_querier(plane: ControlPlane, service_ca: ServiceCa) -> Iterator[Thanos]:
    """Answer queries inside the block, if the API server allows the user to ask."""
    to_prometheus = ssl.create_default_context(cafile=str(plane.layout.authority))
    pair = service_ca.authority.issue("thanos-querier-tls", hosts=(THANOS_HOST, LOOPBACK))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)

    class OpenshiftHandler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name http.server calls
            self._answer("get", None)

        def do_POST(self) -> None:
            self._answer("create", self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, verb: str, form: bytes | None) -> None:
            user, allowed = _review(plane.api, self.headers.get("Authorization", ""), verb)
            if not user:
                status, content = int(HTTPStatus.UNAUTHORIZED), b"Unauthorized\n"
            elif not allowed:
                status, content = int(HTTPStatus.FORBIDDEN), f"Forbidden (user={user}, verb={verb})\n".encode()
            else:
                status, content = pass_on(f"{plane.prometheus_api.url}{self.path}", form, to_prometheus)
            thanos.count(user, status)
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if allowed else "text/plain")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    class OpenshiftServer(http.server.ThreadingHTTPServer):
        def finish_request(self, request: Any, client_address: Any) -> None:
            # The handshake belongs to the connection's own thread: in accept() one silent client would block all.
            request.settimeout(_TIMEOUT_SECONDS)
            with contextlib.suppress(OSError), tls.wrap_socket(request, server_side=True) as secured:
                super().finish_request(secured, client_address)

    server = OpenshiftServer((LOOPBACK, 0), OpenshiftHandler)
    thanos = Thanos(server.server_port)
    with serving(server):
        yield thanos


def _review(api: KubernetesApi, authorization: str, verb: str) -> tuple[str, bool]:
    """Return the user of the token in a header (empty without one), and whether the user may query with this verb."""
    scheme, _, token = authorization.partition(" ")
    if scheme != "Bearer" or not token:
        return "", False
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    known = api.post("/apis/authentication.k8s.io/v1/tokenreviews", {**kind, "spec": {"token": token}})["status"]
    if not known.get("authenticated"):
        return "", False
    user = known["user"]
    wanted = {
        "group": "monitoring.coreos.com",
        "resource": "prometheuses",
        "subresource": "api",
        "name": "k8s",
        "namespace": "openshift-monitoring",
        "verb": verb,
    }
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    spec = {"user": user["username"], "groups": user.get("groups", []), "resourceAttributes": wanted}
    review = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {**kind, "spec": spec})
    return str(user["username"]), bool(review["status"]["allowed"])


def _annotation(item: Body, name: str) -> str:
    return str(item["metadata"].get("annotations", {}).get(name, ""))
