"""The kubelet of every node, without containers: ``KUBECONFIG=FILE python -m e2e.controlplane.kubelet``.

In: nodes and bound pods, from two watches. Out: their status. A node is Ready, repeats this every 10 s, and loses the
taints of a node that is not. A bound pod runs at once and has an address, but is not ready until its model is
"loaded". A pod whose deletion was asked for is gone at once, whatever its finalizers.

How long a model loads is said by an annotation of the pod: a duration like ``30s``, or ``never``; without it, 2 to 4
seconds. Changing the annotation of a living pod takes effect, so a test may let a stuck pod become ready in the end.

The kubelet decides only from the objects that the API server has stored. So a kubelet that starts late or restarts
finds its work. The watches, their back-off and the queue are the controller's own (``wva.kube``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv4Address
from random import Random
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from e2e.controlplane.forwarding import forwarding
from wva import log
from wva.api.meta import Key, WholeMeta, format_time, parse_time
from wva.api.resource import Resource
from wva.clock import Clock, SystemClock
from wva.godurations import parse_duration
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.client import KubeClient
from wva.kube.controller import After, Controller, Done, Result
from wva.kube.informer import Informer
from wva.kube.supervision import UnexpectedEnd
from wva.kube.workqueue import WorkQueue

LOADING: Final = "e2e.llmd.ai/loading"  # pod annotation: 30s, 500ms, never
NEVER: Final = "never"
POD_IP: Final = "e2e.llmd.ai/pod-ip"  # pod annotation: an address in 127.0.0.0/8 for a pod that a test answers for

HEARTBEAT_SECONDS: Final = 10.0
_LOADING_SECONDS: Final = (2.0, 4.0)
_NODE_ADDRESS: Final = "127.0.0.1"
_FIRST_POD_ADDRESS: Final = IPv4Address("10.128.0.1")
_POD_ADDRESSES: Final = 65_534
_NOT_READY_TAINTS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_POD_WORKERS: Final = 36  # together with those of the nodes: requests at a time
_NODE_WORKERS: Final = 4
_TIMEOUT_SECONDS: Final = 10.0
_STRATEGIC: Final = "application/strategic-merge-patch+json"  # conditions merge by type

_log = log.get("kubelet")


async def _for_ever(name: str, run: Callable[[], Awaitable[object]]) -> None:
    """Run a loop. If it fails or ends, the kubelet ends."""
    await run()
    raise UnexpectedEnd(name)


class Metadata(WholeMeta, frozen=True, rename="camel"):
    """Metadata with all annotations, and the finalizers that delay a deletion."""

    finalizers: tuple[str, ...] = ()


class KubeletCondition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One entry of ``status.conditions`` of a node or a pod."""

    type: str
    status: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class KubeletContainer(msgspec.Struct, frozen=True):
    """A container of a pod."""

    name: str
    image: str = ""


class KubeletPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec`` of a Pod; ``node_name`` is empty until the scheduler has found a node."""

    node_name: str = ""
    containers: tuple[KubeletContainer, ...] = ()


class KubeletPodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status`` of a Pod."""

    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    start_time: str | None = None
    conditions: tuple[KubeletCondition, ...] = ()


class KubeletPod(msgspec.Struct, frozen=True):
    """A Pod."""

    metadata: Metadata = Metadata()
    spec: KubeletPodSpec = KubeletPodSpec()
    status: KubeletPodStatus = KubeletPodStatus()


class Taint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A mark of a node that keeps pods away."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class KubeletNodeSpec(msgspec.Struct, frozen=True):
    """``spec`` of a Node."""

    taints: tuple[Taint, ...] = ()


class KubeletNodeStatus(msgspec.Struct, frozen=True):
    """``status`` of a Node."""

    conditions: tuple[KubeletCondition, ...] = ()


class KubeletNode(msgspec.Struct, frozen=True):
    """A Node."""

    metadata: Metadata = Metadata()
    spec: KubeletNodeSpec = KubeletNodeSpec()
    status: KubeletNodeStatus = KubeletNodeStatus()


PODS: Final = Resource("", "v1", "pods", "Pod", KubeletPod)
NODES: Final = Resource("", "v1", "nodes", "Node", KubeletNode, namespaced=False)


class Nodes:
    """Keeps every node Ready."""

    def __init__(self, client: KubeClient, *, clock: Clock, instruments: Instruments, port: int | None = None) -> None:
        """Watch nothing yet; ``port`` is where the API server reaches the kubelet, None: nowhere."""
        self._client = client
        self._clock = clock
        self._port = port
        self._informer = Informer(client, NODES, instruments=instruments)
        self._queue: WorkQueue[Key] = WorkQueue("nodes", clock=clock, instruments=instruments)
        self._informer.store.subscribe(self._changed)
        self._controller = Controller(
            "nodes", self._queue, self.reconcile, clock=clock, instruments=instruments, workers=_NODE_WORKERS
        )

    def start(self, group: asyncio.TaskGroup) -> None:
        """Work until the group is cancelled."""
        group.create_task(_for_ever("nodes", self._informer.run))
        group.create_task(_for_ever("node workers", self._controller.run))

    async def reconcile(self, key: Key) -> Result:
        """Write a heartbeat when it is due, and lift the taints of a node that was not ready."""
        node = self._informer.store.get(key)
        if node is None:
            return Done()
        ready = _condition(node.status.conditions, "Ready")
        beat = parse_time(ready.last_heartbeat_time) if ready and ready.status == "True" else None
        left_seconds = 0.0 if beat is None else beat + HEARTBEAT_SECONDS - self._clock.now()
        taints = [taint for taint in node.spec.taints if taint.key not in _NOT_READY_TAINTS]
        try:
            if left_seconds <= 0:
                await self._beat(node, ready)
                left_seconds = HEARTBEAT_SECONDS
            elif len(taints) < len(node.spec.taints):
                body = {"metadata": _precondition(node), "spec": {"taints": taints or None}}
                self._informer.store.learn(await self._client.patch(NODES, key, body), replaces=node)
        except (errors.Conflict, errors.NotFound):
            pass  # the object changed or was deleted: the watch event queues it again
        return After(left_seconds)

    async def _beat(self, node: KubeletNode, ready: KubeletCondition | None) -> None:
        now = format_time(self._clock.now())
        since = ready.last_transition_time if ready is not None and ready.status == "True" else None
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "this kubelet has no containers to wait for",
            "lastHeartbeatTime": now,
            "lastTransitionTime": since or now,
        }
        status: dict[str, object] = {
            "addresses": [{"type": "InternalIP", "address": _NODE_ADDRESS}],
            "nodeInfo": {"kubeletVersion": "e2e", "operatingSystem": "linux", "architecture": "amd64"},
            "conditions": [condition],
        }
        if self._port is not None:
            status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self._port}}
        body = {"metadata": _precondition(node), "status": status}
        answer = await self._client.patch(NODES, node.metadata.key, body, subresource="status", content_type=_STRATEGIC)
        self._informer.store.learn(answer, replaces=node)

    def _changed(self, old: KubeletNode | None, new: KubeletNode | None) -> None:
        node = new or old
        assert node is not None
        self._queue.add(node.metadata.key)


class Pods:
    """Simulates the life of every bound pod."""

    def __init__(
        self, client: KubeClient, *, clock: Clock, instruments: Instruments, random: Random | None = None
    ) -> None:
        """Watch nothing yet; ``random`` says how long a model loads where the pod does not."""
        self._client = client
        self._clock = clock
        self._random = random or Random()  # noqa: S311 - loading times guard no secret
        self._informer = Informer(client, PODS, instruments=instruments, field_selector="spec.nodeName!=")
        self._informer.store.add_index("address", lambda pod: [pod.status.pod_ip])
        self._queue: WorkQueue[Key] = WorkQueue("pods", clock=clock, instruments=instruments)
        self._informer.store.subscribe(self._changed)
        self._controller = Controller(
            "pods", self._queue, self.reconcile, clock=clock, instruments=instruments, workers=_POD_WORKERS
        )
        self._given = 0
        self._loading: dict[str, tuple[str, float]] = {}  # by uid: the annotation, and when the model is loaded

    def start(self, group: asyncio.TaskGroup) -> None:
        """Work until the group is cancelled. Addresses are given once those in use are known."""
        group.create_task(_for_ever("pods", self._informer.run))
        group.create_task(_for_ever("pod workers", lambda: self._controller.run([self._informer.store.synced])))

    def address_of(self, namespace: str, name: str) -> str:
        """Return the address of a pod, empty while it has none."""
        pod = self._informer.store.get(Key(namespace, name))
        return "" if pod is None else pod.status.pod_ip

    async def reconcile(self, key: Key) -> Result:
        """Take the next step of a pod's life."""
        pod = self._informer.store.get(key)
        if pod is None:
            return Done()
        try:
            if pod.metadata.deleting:
                await self._remove(pod)
            elif not pod.status.pod_ip:
                await self._run(pod)
            elif not _is_ready(pod):
                return await self._load(pod)
        except (errors.Conflict, errors.NotFound):
            pass  # the object changed or was deleted: the watch event queues it again
        return Done()

    async def _run(self, pod: KubeletPod) -> None:
        now = format_time(self._clock.now())
        conditions = [
            {"type": "Initialized", "status": "True", "lastTransitionTime": now},
            *_readiness(now, status="False", reason="ContainersNotReady"),
        ]
        status = {
            "phase": "Running",
            "startTime": now,
            "hostIP": _NODE_ADDRESS,
            "podIP": pod.metadata.annotations.get(POD_IP) or self._free_address(),
            "conditions": conditions,
            "containerStatuses": _containers(pod, started=now, ready=False),
        }
        await self._patch_status(pod, status)

    async def _load(self, pod: KubeletPod) -> Result:
        said = pod.metadata.annotations.get(LOADING, "")
        before, due = self._loading.get(pod.metadata.uid, (None, 0.0))
        if said != before:
            seconds = self._loading_seconds(pod, said)
            due = self._clock.monotonic() + seconds
            self._loading[pod.metadata.uid] = (said, due)
        left_seconds = due - self._clock.monotonic()
        if left_seconds > 0:
            return Done() if math.isinf(left_seconds) else After(left_seconds)
        now = format_time(self._clock.now())
        status = {
            "conditions": _readiness(now, status="True"),
            "containerStatuses": _containers(pod, started=pod.status.start_time or now, ready=True),
        }
        await self._patch_status(pod, status)
        return Done()

    def _loading_seconds(self, pod: KubeletPod, said: str) -> float:
        """Return how long the annotation lets the model load: infinity for ``never`` and for an invalid text."""
        if not said:
            return self._random.uniform(*_LOADING_SECONDS)
        if said == NEVER:
            return math.inf
        try:
            return parse_duration(said)
        except ValueError as error:
            _log.error("loading_unreadable", pod=str(pod.metadata.key), annotation=LOADING, error=str(error))
            return math.inf

    async def _remove(self, pod: KubeletPod) -> None:
        key, uid = pod.metadata.key, pod.metadata.uid
        if pod.metadata.finalizers:
            await self._client.patch(PODS, key, {"metadata": {"uid": uid, "finalizers": None}})
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await self._client.request_json("DELETE", PODS.object_path(key), body)

    async def _patch_status(self, pod: KubeletPod, status: Mapping[str, object]) -> None:
        body = {"metadata": _precondition(pod), "status": status}
        answer = await self._client.patch(PODS, pod.metadata.key, body, subresource="status", content_type=_STRATEGIC)
        self._informer.store.learn(answer, replaces=pod)

    def _free_address(self) -> str:
        """Return the free address that has been unused for the longest time."""
        while True:
            address = str(_FIRST_POD_ADDRESS + self._given % _POD_ADDRESSES)
            self._given += 1
            if not self._informer.store.by_index("address", address):
                return address

    def _changed(self, old: KubeletPod | None, new: KubeletPod | None) -> None:
        pod = new or old
        assert pod is not None
        if new is None or _is_ready(new):
            self._loading.pop(pod.metadata.uid, None)
        self._queue.add(pod.metadata.key)


async def run(client: KubeClient, *, clock: Clock, instruments: Instruments) -> None:
    """Simulate all nodes and their pods; ends only by cancellation."""
    pods = Pods(client, clock=clock, instruments=instruments)
    async with forwarding(pods.address_of) as port, asyncio.TaskGroup() as group:
        Nodes(client, clock=clock, instruments=instruments, port=port).start(group)
        pods.start(group)


def _condition(conditions: tuple[KubeletCondition, ...], type_: str) -> KubeletCondition | None:
    return next((condition for condition in conditions if condition.type == type_), None)


def _is_ready(pod: KubeletPod) -> bool:
    ready = _condition(pod.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def _readiness(now: str, *, status: str, reason: str = "") -> list[dict[str, object]]:
    return [
        {"type": type_, "status": status, "reason": reason, "lastTransitionTime": now}
        for type_ in ("Ready", "ContainersReady")
    ]


def _containers(pod: KubeletPod, *, started: str, ready: bool) -> list[dict[str, object]]:
    return [
        {
            "name": container.name,
            "image": container.image,
            "ready": ready,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": started}},
        }
        for container in pod.spec.containers
    ]


def _precondition(item: KubeletNode | KubeletPod) -> dict[str, str]:
    """Return the part of a patch that makes it a Conflict if the object has changed since the kubelet decided."""
    return {"uid": item.metadata.uid, "resourceVersion": item.metadata.resource_version}


async def _main() -> None:
    instruments = Instruments(CollectorRegistry())
    async with KubeClient.connect(instruments=instruments, timeout_seconds=_TIMEOUT_SECONDS) as client:
        await run(client, clock=SystemClock(), instruments=instruments)


if __name__ == "__main__":
    log.configure(level="warn", encoding="console")
    asyncio.run(_main())
