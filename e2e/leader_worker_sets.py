"""LeaderWorkerSets: the kind, and as much of its controller as a variant on it needs.

The control plane has no such controller, so a thread makes what the real one makes. For each set there is a StatefulSet
of the leaders, which the set controls, and for each leader a StatefulSet of its workers, which the leader's pod
controls. Labels, owners and status are those of leaderworkerset.x-k8s.io/v1. Rolling updates and the recreation of
groups are left out.
"""

from __future__ import annotations

import contextlib
import http
import http.client
import threading
from collections.abc import Iterator
from typing import Any

from e2e.controlplane.api import Body, KubernetesApi, RefusedRequestError
from e2e.load import is_ready

GROUP = "leaderworkerset.x-k8s.io"
LABEL = "leaderworkerset.sigs.k8s.io"
_LOOK_SECONDS = 0.3
_COUNT = {"type": "integer", "format": "int32", "minimum": 0}
_TEMPLATE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SPEC = {
    "type": "object",
    "required": ["leaderWorkerTemplate"],
    "properties": {
        "replicas": {**_COUNT, "default": 1},
        "leaderWorkerTemplate": {
            "type": "object",
            "required": ["workerTemplate"],
            "properties": {
                "leaderTemplate": _TEMPLATE,
                "workerTemplate": _TEMPLATE,
                "size": {**_COUNT, "minimum": 1, "default": 1},
                "restartPolicy": {"type": "string", "default": "RecreateGroupOnPodRestart"},
            },
        },
        "startupPolicy": {"type": "string", "default": "LeaderCreated"},
    },
}
_STATUS = {
    "type": "object",
    "properties": {
        "replicas": _COUNT,
        "readyReplicas": _COUNT,
        "updatedReplicas": _COUNT,
        "hpaPodSelector": {"type": "string"},
    },
}
DEFINITION: Body = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"leaderworkersets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "plural": "leaderworkersets",
            "singular": "leaderworkerset",
            "kind": "LeaderWorkerSet",
            "listKind": "LeaderWorkerSetList",
            "shortNames": ["lws"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.hpaPodSelector",
                    },
                },
                "schema": {
                    "openAPIV3Schema": {"type": "object", "properties": {"spec": _SPEC, "status": _STATUS}},
                },
            }
        ],
    },
}


@contextlib.contextmanager
def controlling(api: KubernetesApi, namespace: str) -> Iterator[None]:
    """Install the kind, and make pods of the sets of a namespace inside the block."""
    api.apply(DEFINITION)
    api.resource("LeaderWorkerSet")
    stop = threading.Event()
    errors: list[Exception] = []

    def run() -> None:
        while not stop.wait(_LOOK_SECONDS):
            try:
                _sync(api, namespace)
            except (OSError, http.client.HTTPException):  # a server restarts: look again
                continue
            except RefusedRequestError as error:
                if error.status not in (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT):
                    errors.append(error)
                    return
            except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; the test's end does it
                errors.append(error)
                return

    thread = threading.Thread(target=run, name=f"LeaderWorkerSets of {namespace}")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def _sync(api: KubernetesApi, namespace: str) -> None:
    sets = {item["metadata"]["uid"]: item for item in api.list("LeaderWorkerSet", namespace=namespace)}
    for stateful_set in api.list("StatefulSet", namespace=namespace):
        owner = _controller(stateful_set)
        if owner.get("kind") == "LeaderWorkerSet" and owner["uid"] not in sets:
            api.delete("StatefulSet", stateful_set["metadata"]["name"], namespace=namespace)
    for item in sets.values():
        if "deletionTimestamp" not in item["metadata"]:
            _sync_one(api, namespace, item)


def _sync_one(api: KubernetesApi, namespace: str, item: Body) -> None:
    name, group = item["metadata"]["name"], item["spec"]["leaderWorkerTemplate"]
    leaders = api.find("StatefulSet", name, namespace=namespace)
    if leaders is not None and _controller(leaders)["uid"] != item["metadata"]["uid"]:
        return  # it belongs to a predecessor that is being deleted
    labels = {f"{LABEL}/name": name, f"{LABEL}/worker-index": "0"}
    template = group.get("leaderTemplate", group["workerTemplate"])
    leaders = api.apply(
        _stateful_set(name, item, _labelled(template, labels), namespace, replicas=item["spec"]["replicas"])
    )
    pods = [pod for pod in api.list("Pod", namespace=namespace) if _is_of(pod, leaders)]
    ready = 0
    for pod in pods:
        if "deletionTimestamp" in pod["metadata"]:
            continue
        index = pod["metadata"]["name"].rpartition("-")[2]
        labels = {f"{LABEL}/name": name, f"{LABEL}/group-index": index}
        worker = _labelled(group["workerTemplate"], labels)
        made = _stateful_set(pod["metadata"]["name"], pod, worker, namespace, replicas=group["size"] - 1, start=1)
        known = api.find("StatefulSet", pod["metadata"]["name"], namespace=namespace)
        if known is None:
            known = api.create(made)
        complete = known["status"].get("readyReplicas", 0) == group["size"] - 1 if known.get("status") else False
        ready += complete and _is_of(known, pod) and is_ready(pod)
    selector = f"{LABEL}/name={name},{LABEL}/worker-index=0"
    status = {"replicas": len(pods), "readyReplicas": ready, "updatedReplicas": len(pods), "hpaPodSelector": selector}
    if item.get("status") != status:
        api.patch("LeaderWorkerSet", name, {"status": status}, namespace=namespace, subresource="status")


def _stateful_set(name: str, owner: Body, template: Body, namespace: str, **spec: Any) -> Body:
    """Describe a StatefulSet that ``owner`` controls; ``start`` is its first ordinal."""
    reference = {
        "apiVersion": owner.get("apiVersion", "v1"),
        "kind": owner.get("kind", "Pod"),
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    labels = {key: value for key, value in template["metadata"]["labels"].items() if key.startswith(LABEL)}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [reference]},
        "spec": {
            "replicas": spec["replicas"],
            "ordinals": {"start": spec.get("start", 0)},
            "serviceName": labels[f"{LABEL}/name"],
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def _labelled(template: Body, labels: dict[str, str]) -> Body:
    metadata = template.get("metadata", {})
    return {**template, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **labels}}}


def _is_of(owned: Body, owner: Body) -> bool:
    return bool(_controller(owned).get("uid") == owner["metadata"]["uid"])


def _controller(item: Body) -> Body:
    owners = item["metadata"].get("ownerReferences", [])
    return next((owner for owner in owners if owner.get("controller")), {})
