"""The Deployment controller and the kubelet of the embedded world.

In: the Deployments in the store. Out: one ReplicaSet each, its pods, and the status of all three. A pod becomes Ready
after its variant's start-up time, as on the stage; pods of a *held* Deployment only after its release. Scaling down
removes pods that are not Ready first, then the youngest, as the real controller does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, Final

from wva.api.meta import Key, format_time
from wva.sim.apiserver import ObjectStore
from wva.sim.stage.scenario import StartUp
from wva.sim.world.clock import VirtualClock

DEPLOYMENTS: Final = "deployments.apps"
REPLICA_SETS: Final = "replicasets.apps"
PODS: Final = "pods"

Object = Mapping[str, Any]


@dataclass(slots=True)
class _PodPlan:
    key: Key
    ready_at_seconds: float
    ready: bool = False
    number: int = 0


@dataclass(slots=True)
class _Workload:
    pods: list[_PodPlan] = field(default_factory=list)
    pods_created: int = 0


class Workloads:
    """Keeps pods in step with Deployments. ``sync`` looks once; it writes only what is different."""

    def __init__(
        self, store: ObjectStore, *, clock: VirtualClock, start_ups: Mapping[Key, StartUp], random: Random
    ) -> None:
        """Act on every Deployment of ``store``; those without an entry in ``start_ups`` use the default."""
        self._store = store
        self._clock = clock
        self._start_ups = start_ups
        self._places = {deployment: index for index, deployment in enumerate(start_ups)}
        """Pods that are created at the same time are created in this order of their Deployments."""
        self._random = random
        self._workloads: dict[Key, _Workload] = {}
        self._held: set[Key] = set()

    def hold(self, deployment: Key) -> None:
        """Let no pod of a Deployment become Ready from now on."""
        self._held.add(deployment)

    def release(self, deployment: Key) -> None:
        """Let its pods become Ready again; those whose start-up time has passed do so at the next ``sync``."""
        self._held.discard(deployment)

    @property
    def next_due_seconds(self) -> float | None:
        """When the next pod becomes Ready, in virtual seconds; None when none is on its way."""
        due = (
            pod.ready_at_seconds
            for key, workload in self._workloads.items()
            if key not in self._held
            for pod in workload.pods
            if not pod.ready
        )
        return min(due, default=None)

    def ready_pods(self, deployment: Key) -> list[str]:
        """Return the names of the Ready pods of a Deployment."""
        return list(self.ready_since(deployment))

    def ready_since(self, deployment: Key) -> dict[str, float]:
        """Return the Ready pods of a Deployment by name, and since when each is Ready, in virtual seconds."""
        workload = self._workloads.get(deployment)
        pods = [] if workload is None else workload.pods
        return {pod.key.name: pod.ready_at_seconds or 0.0 for pod in pods if pod.ready}

    def existing(self, deployment: Key) -> int:
        """Return how many pods a Deployment has, Ready or not."""
        workload = self._workloads.get(deployment)
        return 0 if workload is None else len(workload.pods)

    def sync(self, *, serving: bool = False) -> None:
        """Bring ReplicaSets, pods and statuses in line with the Deployments as they are now.

        ``serving``: new pods are Ready at once, as in a world that has been running before it starts.
        """
        deployments = self._store.list(DEPLOYMENTS)
        deployments = sorted(deployments, key=lambda deployment: self._places.get(_key(deployment), inf))
        present = {_key(deployment) for deployment in deployments}
        for deleted in set(self._workloads) - present:
            del self._workloads[deleted]  # the store's garbage collection has taken its ReplicaSet and pods
        for deployment in deployments:
            self._sync_one(deployment, serving=serving)

    def _sync_one(self, deployment: Object, *, serving: bool) -> None:
        key = _key(deployment)
        workload = self._workloads.setdefault(key, _Workload())
        replica_set = self._replica_set(deployment)
        workload.pods = [pod for pod in workload.pods if self._store.find(PODS, pod.key) is not None]
        wanted = int(deployment["spec"].get("replicas", 1))
        for pod in _surplus(workload.pods, wanted):
            workload.pods.remove(pod)
            self._store.delete(PODS, pod.key)
        while len(workload.pods) < wanted:
            workload.pods.append(self._create_pod(deployment, replica_set, workload, serving=serving))
        for pod in workload.pods:
            if not pod.ready and key not in self._held and pod.ready_at_seconds <= self._clock.elapsed_seconds:
                self._make_ready(pod)
        self._write_statuses(deployment, replica_set, workload)

    def _replica_set(self, deployment: Object) -> Object:
        key = _key(deployment)
        name = Key(key.namespace, f"{key.name}-1")
        existing = self._store.find(REPLICA_SETS, name)
        if existing is not None:
            return existing
        spec = deployment["spec"]
        body = {
            "metadata": {
                "name": name.name,
                "namespace": name.namespace,
                "labels": spec["template"]["metadata"].get("labels", {}),
                "ownerReferences": [_owner("apps/v1", "Deployment", deployment)],
            },
            "spec": {"replicas": 0, "selector": spec["selector"], "template": spec["template"]},
        }
        return self._store.create(REPLICA_SETS, body)

    def _create_pod(self, deployment: Object, replica_set: Object, workload: _Workload, *, serving: bool) -> _PodPlan:
        workload.pods_created += 1
        key = Key(_key(deployment).namespace, f"{replica_set['metadata']['name']}-{workload.pods_created:03d}")
        template = deployment["spec"]["template"]
        body = {
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": template["metadata"].get("labels", {}),
                "ownerReferences": [_owner("apps/v1", "ReplicaSet", replica_set)],
            },
            "spec": template["spec"],
        }
        self._store.create(PODS, body)
        ready_at = self._clock.elapsed_seconds if serving else self._ready_at(_key(deployment))
        return _PodPlan(key, ready_at, number=workload.pods_created)

    def _ready_at(self, deployment: Key) -> float:
        start_up = self._start_ups.get(deployment, StartUp())
        return self._clock.elapsed_seconds + start_up.draw(self._random)

    def _make_ready(self, pod: _PodPlan) -> None:
        pod.ready = True
        now = format_time(self._clock.now())
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        status = {"phase": "Running", "podIP": "127.0.0.1", "startTime": now, "conditions": [condition]}
        self._store.patch_status(PODS, pod.key, status)

    def _write_statuses(self, deployment: Object, replica_set: Object, workload: _Workload) -> None:
        ready = sum(pod.ready for pod in workload.pods)
        counts = {"replicas": len(workload.pods), "readyReplicas": ready, "availableReplicas": ready}
        generation = {"observedGeneration": deployment["metadata"]["generation"]}
        self._store.patch_status(DEPLOYMENTS, _key(deployment), generation | counts)
        self._store.patch_status(REPLICA_SETS, _key(replica_set), counts)


def _surplus(pods: list[_PodPlan], wanted: int) -> list[_PodPlan]:
    """Return the pods to remove: first those that do not serve, then the youngest."""
    order = sorted(pods, key=lambda pod: (pod.ready, -pod.number))
    return order[: max(0, len(pods) - wanted)]


def _key(value: Object) -> Key:
    return Key(value["metadata"]["namespace"], value["metadata"]["name"])


def _owner(api_version: str, kind: str, value: Object) -> dict[str, Any]:
    metadata = value["metadata"]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
