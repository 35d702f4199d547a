"""A thin synchronous Kubernetes client for tests.

In: a kind, a name, plain dicts. Out: plain dicts as the API server sent them, or ``RefusedRequestError`` with its
status code. Not the client of the product on purpose: a test that checked the product through the product's own client
would share its mistakes. Every request opens its own connection, so one ``KubernetesApi`` serves any number of threads,
survives a restart of the server and leaves nothing open.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

from e2e.controlplane.polling import eventually

Body = dict[str, Any]
Bodies = list[Body]  # an alias, because ``KubernetesApi.list`` hides the builtin inside the class

_TIMEOUT_SECONDS = 15.0
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"
_FIELD_MANAGER = "e2e"
_NEW_KIND_SECONDS = 10.0


class RefusedRequestError(Exception):
    """The API server refused; ``status`` is the HTTP code and ``reason`` the machine-readable word of its Status."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        """Keep what was attempted and what came back."""
        self.status = status
        try:
            self.reason: str = json.loads(body).get("reason", "")
        except (ValueError, AttributeError):
            self.reason = ""
        super().__init__(f"{method} {path}: {status} {body.strip()[:600]}")


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """Where objects of a kind live."""

    base: str  # /api/v1 or /apis/GROUP/VERSION
    plural: str
    namespaced: bool

    def path(self, *, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        parts = [self.base]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace)]
        parts += [self.plural, *(quote(part) for part in (name, subresource) if part)]
        return "/".join(parts)


class KubernetesApi:
    """Requests to one API server as one identity."""

    def __init__(self, server: str, context: ssl.SSLContext, *, token: str = "") -> None:
        """``server`` is a URL; the identity is the client certificate of ``context``, or else ``token``."""
        self.server = server
        self._address = urlsplit(server).netloc
        self._context = context
        self._token = token
        self._kinds: dict[str, ResourcePath] = {}
        self._kinds_lock = threading.Lock()

    # -- requests ------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, *, body: object = None, headers: Mapping[str, str] | None = None) -> str:
        """Send one request and return the answer's text; ``path`` may carry a query. ApiError from 400 on."""
        sent = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        connection = http.client.HTTPSConnection(self._address, timeout=_TIMEOUT_SECONDS, context=self._context)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            text = response.read().decode()
        except http.client.HTTPException as error:  # a server that is going down: to callers the same as no server
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise RefusedRequestError(method, path, response.status, text)
        return text

    def raw(self, path: str) -> Any:
        """GET any path that answers JSON, for example an aggregated API."""
        return json.loads(self.request("GET", path))

    def post(self, path: str, body: Body) -> Body:
        """POST to any path, for example a subresource that creates something."""
        return self._send("POST", path, body)

    def metrics(self) -> str:
        """Return the API server's own metrics in exposition format."""
        return self.request("GET", "/metrics", headers={"Accept": "text/plain"})

    def ready(self) -> bool:
        """Return whether the server answers ``/readyz`` with ok."""
        try:
            return self.request("GET", "/readyz") == "ok"
        except RefusedRequestError:
            return False

    def version(self) -> str:
        """Return the server's version without the v."""
        version: str = self.raw("/version")["gitVersion"]
        return version.removeprefix("v")

    # -- objects -------------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str, *, namespace: str | None = None, subresource: str | None = None) -> Body:
        """Return one object. ``kind`` is ``Deployment``, or ``InferencePool.group`` where two groups have it."""
        path = self.resource(kind).path(namespace=namespace, name=name, subresource=subresource)
        answer: Body = self.raw(path)
        return answer

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Body | None:
        """Return one object, or None when it does not exist."""
        try:
            return self.get(kind, name, namespace=namespace)
        except RefusedRequestError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def list(self, kind: str, *, namespace: str | None = None, labels: str = "") -> Bodies:
        """Return the objects of a kind in a namespace (None: everywhere), filtered by a label selector."""
        items: Bodies = self.listing(kind, namespace=namespace, labels=labels)["items"]
        return items

    def listing(self, kind: str, *, namespace: str | None = None, labels: str = "") -> Body:
        """Return the whole List object, with its resourceVersion."""
        query = "?" + urlencode({"labelSelector": labels}) if labels else ""
        answer: Body = self.raw(self.resource(kind).path(namespace=namespace) + query)
        return answer

    def changes(self, kind: str, *, namespace: str, since: str) -> Bodies:
        """Return the states that objects of a kind have had since a resourceVersion, every one of them, in order."""
        query = urlencode({"watch": "1", "resourceVersion": since, "timeoutSeconds": "1"})
        text = self.request("GET", f"{self.resource(kind).path(namespace=namespace)}?{query}")
        events = [json.loads(line) for line in text.splitlines()]
        assert all(event["type"] in {"ADDED", "MODIFIED", "DELETED"} for event in events), events
        return [event["object"] for event in events]

    def create(self, item: Body) -> Body:
        """Create an object; 409 when it exists."""
        path = self._resource_of(item).path(namespace=item["metadata"].get("namespace"))
        return self._send("POST", path, item)

    def apply(self, item: Body) -> Body:
        """Create or change an object by server-side apply, taking over conflicting fields."""
        metadata = item["metadata"]
        path = self._resource_of(item).path(namespace=metadata.get("namespace"), name=metadata["name"])
        query = urlencode({"fieldManager": _FIELD_MANAGER, "force": "true"})
        return self._send("PATCH", f"{path}?{query}", item, content_type=_APPLY_PATCH)

    def apply_yaml(self, text: str, *, namespace: str | None = None) -> Bodies:
        """Apply the documents of a YAML text in order; ``namespace`` goes to those that are namespaced and have none.

        A kind whose CRD comes earlier in the same text is waited for.
        """
        applied: Bodies = []
        for item in yaml.safe_load_all(text):
            if item is None:
                continue
            if namespace and self._resource_of(item).namespaced:
                item["metadata"].setdefault("namespace", namespace)
            applied.append(self.apply(item))
        return applied

    def patch(
        self, kind: str, name: str, patch: Body, *, namespace: str | None = None, subresource: str | None = None
    ) -> Body:
        """Merge ``patch`` into an object or into its subresource (``status``, ``scale``)."""
        path = self.resource(kind).path(namespace=namespace, name=name, subresource=subresource)
        return self._send("PATCH", path, patch, content_type=_MERGE_PATCH)

    def scale(self, kind: str, name: str, replicas: int, *, namespace: str) -> Body:
        """Set ``spec.replicas`` through the scale subresource, as kubectl and an HPA do."""
        return self.patch(kind, name, {"spec": {"replicas": replicas}}, namespace=namespace, subresource="scale")

    def delete(self, kind: str, name: str, *, namespace: str | None = None) -> None:
        """Delete an object in the background. A missing object is no error."""
        path = self.resource(kind).path(namespace=namespace, name=name)
        try:
            self._send("DELETE", path, {"propagationPolicy": "Background"})
        except RefusedRequestError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def wait(
        self,
        kind: str,
        name: str,
        check: Callable[[Body], Any],
        *,
        namespace: str | None = None,
        timeout_seconds: float,
    ) -> Body:
        """Wait until an object exists and ``check`` holds of it; return it as it then is."""

        def look() -> Body | None:
            item = self.find(kind, name, namespace=namespace)
            return item if item is not None and check(item) else None

        found = eventually(look, timeout_seconds=timeout_seconds, what=f"{kind} {namespace or ''}/{name}")
        assert found is not None
        return found

    # -- kinds ---------------------------------------------------------------------------------------------------

    def resource(self, kind: str) -> ResourcePath:
        """Return the path of ``Kind`` or ``Kind.group``, from discovery. Wait a little for a new kind."""
        with self._kinds_lock:
            if kind not in self._kinds:
                eventually(lambda: self._discover(kind), timeout_seconds=_NEW_KIND_SECONDS, what=f"kind {kind}")
            return self._kinds[kind]

    def _discover(self, kind: str) -> bool:
        found: dict[str, ResourcePath] = {}
        for root in ("/api", "/apis"):  # core first: for a kind of two groups the first one found has the short name
            for group in json.loads(self.request("GET", root, headers={"Accept": _DISCOVERY}))["items"]:
                _add_group(found, group)
        self._kinds = found
        return kind in found

    def _resource_of(self, item: Body) -> ResourcePath:
        group, _, version = item["apiVersion"].rpartition("/")
        known = self.resource(f"{item['kind']}.{group}" if group else item["kind"])
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return ResourcePath(base, known.plural, known.namespaced)

    def _send(self, method: str, path: str, body: Body, *, content_type: str = "application/json") -> Body:
        answer: Body = json.loads(self.request(method, path, body=body, headers={"Content-Type": content_type}))
        return answer


def _add_group(found: dict[str, ResourcePath], group: Body) -> None:
    name = group.get("metadata", {}).get("name", "")
    for version in group["versions"]:  # the preferred version comes first
        base = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
        for entry in version.get("resources", []):
            if "responseKind" not in entry:
                continue
            kind = entry["responseKind"]["kind"]
            resource = ResourcePath(base, entry["resource"], entry["scope"] == "Namespaced")
            found.setdefault(kind, resource)
            found.setdefault(f"{kind}.{name}", resource)
