"""A real etcd and kube-apiserver with the objects of an embedded one, to measure a controller in front of them.

No controller manager runs: Deployments, ReplicaSets and pods are copied with their statuses and stay as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from e2e.controlplane.api import KubernetesApi
from e2e.controlplane.etcd import Etcd
from e2e.controlplane.kubeconfig import read_kubeconfig
from e2e.controlplane.kubernetes import KubeApiServer
from e2e.controlplane.layout import Layout
from e2e.controlplane.processes import stop_all
from wva.api.crd import definition
from wva.api.variantautoscaling import GROUP, VERSION
from wva.sim.apiserver import ObjectStore

_KINDS: Final = (
    ("configmaps", "v1", "ConfigMap"),
    ("deployments.apps", "apps/v1", "Deployment"),
    ("replicasets.apps", "apps/v1", "ReplicaSet"),
    ("pods", "v1", "Pod"),
    (f"variantautoscalings.{GROUP}", f"{GROUP}/{VERSION}", "VariantAutoscaling"),
)
"""In the order in which they are created: an owner before what it owns."""
_MADE_BY_SERVERS: Final = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_AT_ONCE: Final = 16
_LONGEST_LINE: Final = 4 * 1024 * 1024


class RealPlane:
    """An API server that runs, and the file with which its administrator reaches it."""

    def __init__(self, layout: Layout) -> None:
        """Describe the server; nothing runs yet."""
        self._etcd = Etcd(layout)
        self._apiserver = KubeApiServer(layout, self._etcd)
        self.kubeconfig = layout.kubeconfig("admin")
        endpoint, self._tls, _ = read_kubeconfig(self.kubeconfig)
        self._api = KubernetesApi(endpoint.server, self._tls)

    def start(self, store: ObjectStore, namespaces: Sequence[str]) -> None:
        """Start the servers and create what is in the store."""
        self._etcd.start()
        self._apiserver.start()
        self._api.create({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **definition()})
        for name in namespaces:
            self._api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        uids: dict[str, str] = {}
        copy = partial(self._copy, uids)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for kind, version, name in _KINDS:
                head = {"apiVersion": version, "kind": name}
                objects = [{**item, **head} for item in store.list(kind)]
                uids.update(list(pool.map(copy, objects)))

    def _copy(self, uids: Mapping[str, str], item: dict[str, Any]) -> tuple[str, str]:
        """Create an object with its status; return its former and its new identity."""
        metadata = {key: value for key, value in item["metadata"].items() if key not in _MADE_BY_SERVERS}
        owners = [{**owner, "uid": uids[owner["uid"]]} for owner in metadata.pop("ownerReferences", ())]
        body = {**item, "metadata": {**metadata, **({"ownerReferences": owners} if owners else {})}}
        status = body.pop("status", None)
        made = self._api.create(body)
        if status:
            self._api.patch(
                item["kind"],
                metadata["name"],
                {"status": status},
                namespace=metadata["namespace"],
                subresource="status",
            )
        return item["metadata"]["uid"], made["metadata"]["uid"]

    async def watch(self, path: str, changed: Callable[[], None]) -> None:
        """Call ``changed`` for each change of the objects of a path until the task is cancelled."""
        since = (await asyncio.to_thread(self._api.raw, f"{path}?limit=1"))["metadata"]["resourceVersion"]
        url = f"{self._api.server}{path}?watch=1&resourceVersion={since}&allowWatchBookmarks=false"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
        async with (
            aiohttp.ClientSession(timeout=timeout, read_bufsize=_LONGEST_LINE) as session,
            session.get(url, ssl=self._tls) as answer,
        ):
            answer.raise_for_status()
            async for _ in answer.content:
                changed()


@contextlib.asynccontextmanager
async def opened(folder: Path, store: ObjectStore, namespaces: Sequence[str]) -> AsyncIterator[RealPlane]:
    """Run the servers around the body."""
    layout = Layout.create(folder)
    try:
        plane = RealPlane(layout)
        await asyncio.to_thread(plane.start, store, namespaces)
        yield plane
    finally:
        stop_all(folder)
