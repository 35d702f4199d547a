"""The kubelet's rules, on the embedded API server and with a clock that the test moves.

``test_control_plane`` and all other tests try the kubelet on the real control plane.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from e2e.controlplane.kubelet import HEARTBEAT_SECONDS, LOADING, NEVER, POD_IP, run
from tests.kube.clocks import ManualClock
from wva.api.meta import Key
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.sim.apiserver import DeleteOptions, EmbeddedApiServer, Patch, ServedError

_WAIT_SECONDS = 5.0
_STEP_SECONDS = 0.01
_TURNS = 60  # of the event loop that both run in: many times what a request and its answer take

Status = dict[str, Any]


class KubeletWorld:
    """An API server, and kubelets whose time the test moves."""

    def __init__(self, api: EmbeddedApiServer, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Start without a kubelet."""
        self.clock = ManualClock()
        self.store = api.store
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(kubeconfig)))
        self.store.create("namespaces", {"metadata": {"name": "ns"}})

    @contextlib.asynccontextmanager
    async def kubelet(self) -> AsyncIterator[None]:
        """Run a kubelet inside the block."""
        instruments = Instruments(CollectorRegistry())
        async with KubeClient.connect(instruments=instruments) as client:
            task = asyncio.create_task(run(client, clock=self.clock, instruments=instruments))
            try:
                yield
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def pod(self, name: str, *, node: str = "node", finalizers: tuple[str, ...] = (), **annotations: str) -> None:
        """Create a pod that is bound to a node; the names of the annotations are those of the kubelet's constants."""
        keys = {"loading": LOADING, "pod_ip": POD_IP}
        metadata = {
            "name": name,
            "namespace": "ns",
            "annotations": {keys[key]: value for key, value in annotations.items()},
            "finalizers": list(finalizers),
        }
        spec = {"nodeName": node, "containers": [{"name": "vllm", "image": "vllm:1"}]}
        self.store.create("pods", {"metadata": metadata, "spec": spec})

    def annotate(self, name: str, loading: str) -> None:
        """Change how long the model of a pod loads."""
        self.store.patch("pods", Key("ns", name), Patch(body={"metadata": {"annotations": {LOADING: loading}}}))

    def status(self, name: str) -> Status:
        """Return the status of a pod."""
        return dict(self.store.get("pods", Key("ns", name)).get("status", {}))

    def node(self, *taints: str) -> None:
        """Create the node with these taints."""
        spec = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}
        self.store.create("nodes", {"metadata": {"name": "node"}, "spec": spec})

    async def until(self, check: Callable[[], object]) -> None:
        """Wait for the kubelet without moving its time."""
        async with asyncio.timeout(_WAIT_SECONDS):
            while not check():  # noqa: ASYNC110 - the store tells nobody of its changes
                await asyncio.sleep(_STEP_SECONDS)
        await self.settle()

    async def settle(self) -> None:
        """Let the kubelet receive and do everything. Event loop turns are counted: a busy machine may be slow."""
        for _ in range(_TURNS):
            await asyncio.sleep(0.001)

    async def pass_time(self, seconds: float) -> None:
        """Move the kubelet's time and let it act."""
        await self.clock.advance(seconds)
        await self.settle()


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeletWorld]:
    """Give an API server with one namespace."""
    async with EmbeddedApiServer() as api:
        yield KubeletWorld(api, tmp_path / "kubeconfig", monkeypatch)


def ready(status: Status) -> str:
    """Return the status of the condition Ready; empty when there is none."""
    return next((item["status"] for item in status.get("conditions", ()) if item["type"] == "Ready"), "")


async def test_pod_runs_at_once_and_is_ready_when_loaded(world: KubeletWorld):
    """A pod is first Running with an address, and Ready after loading. It keeps its address and start time."""
    world.pod("a", loading="30s")
    async with world.kubelet():
        await world.until(lambda: ready(world.status("a")) == "False")
        running = world.status("a")
        assert running["phase"] == "Running"
        assert running["podIP"].startswith("10.128.")
        assert [(item["name"], item["ready"]) for item in running["containerStatuses"]] == [("vllm", False)]
        await world.pass_time(29)
        assert ready(world.status("a")) == "False"
        await world.pass_time(1.1)
        loaded = world.status("a")
    assert ready(loaded) == "True"
    assert [(item["image"], item["ready"]) for item in loaded["containerStatuses"]] == [("vllm:1", True)]
    assert (loaded["podIP"], loaded["startTime"]) == (running["podIP"], running["startTime"])


async def test_loading_takes_two_to_four_seconds_by_default(world: KubeletWorld):
    """Without an annotation no pod is ready before 2 s, and all are after 4 s, not all at the same time."""
    names = [f"p{index}" for index in range(20)]
    for name in names:
        world.pod(name)
    async with world.kubelet():
        await world.until(lambda: all(ready(world.status(name)) for name in names))
        await world.pass_time(1.9)
        assert {ready(world.status(name)) for name in names} == {"False"}
        await world.pass_time(1.1)
        assert {ready(world.status(name)) for name in names} == {"False", "True"}
        await world.pass_time(1.1)
        assert {ready(world.status(name)) for name in names} == {"True"}


@pytest.mark.parametrize("stuck", [NEVER, "soon"])
async def test_changing_the_annotation_of_a_stuck_pod_takes_effect(world: KubeletWorld, stuck: str):
    """``never``, and a text that is no duration, keep a pod from being ready until the annotation says otherwise."""
    world.pod("a", loading=stuck)
    async with world.kubelet():
        await world.until(lambda: ready(world.status("a")) == "False")
        await world.pass_time(3600)
        assert ready(world.status("a")) == "False"
        world.annotate("a", "2s")
        await world.settle()
        await world.pass_time(1.9)
        assert ready(world.status("a")) == "False"
        await world.pass_time(0.2)
        assert ready(world.status("a")) == "True"


async def test_loading_can_be_made_longer(world: KubeletWorld):
    """The longer loading time counts from the change of the annotation."""
    world.pod("a", loading="10s")
    async with world.kubelet():
        await world.until(lambda: ready(world.status("a")) == "False")
        await world.pass_time(9)
        world.annotate("a", "20s")
        await world.settle()
        await world.pass_time(19)
        assert ready(world.status("a")) == "False"
        await world.pass_time(1.1)
        assert ready(world.status("a")) == "True"


async def test_addresses(world: KubeletWorld):
    """An address is the annotated one or a free one; those of pods that were there before are not given again."""
    world.pod("before")
    async with world.kubelet():
        await world.until(lambda: "podIP" in world.status("before"))
    names = ["a", "b", "c"]
    for name in names:
        world.pod(name)
    world.pod("own", pod_ip="127.0.0.9")
    async with world.kubelet():
        await world.until(lambda: all("podIP" in world.status(name) for name in (*names, "own")))
    assert world.status("own")["podIP"] == "127.0.0.9"
    assert len({world.status(name)["podIP"] for name in (*names, "before")}) == 4


async def test_pod_without_a_node_is_left_alone(world: KubeletWorld):
    """The kubelet runs the pod once the scheduler has found a node."""
    world.pod("a", node="")
    async with world.kubelet():
        await world.settle()
        assert not world.status("a").get("podIP")
        world.store.patch("pods", Key("ns", "a"), Patch(body={"spec": {"nodeName": "node"}}))
        await world.until(lambda: world.status("a").get("podIP"))


async def test_deleted_pod_goes_with_its_finalizers(world: KubeletWorld):
    """Neither a grace period nor a finalizer delays the deletion of a pod."""
    world.pod("held", finalizers=("example.com/hold",))
    world.pod("plain")
    async with world.kubelet():
        await world.until(lambda: all(world.status(name).get("podIP") for name in ("held", "plain")))
        for name in ("held", "plain"):
            world.store.delete("pods", Key("ns", name), DeleteOptions(grace_period_seconds=30))
        await world.until(lambda: _gone(world, "held") and _gone(world, "plain"))


async def test_node_is_ready_and_loses_the_taints_of_one_that_is_not(world: KubeletWorld):
    """The kubelet keeps other taints, since an administrator may have set them."""
    world.node("node.kubernetes.io/not-ready", "example.com/reserved", "node.kubernetes.io/unreachable")
    async with world.kubelet():
        await world.until(lambda: ready(_node(world).get("status", {})) == "True")
        await world.until(lambda: _taints(world) == ["example.com/reserved"])


async def test_heartbeat(world: KubeletWorld):
    """The kubelet renews a node's heartbeat every 10 s and not in between. The time of the transition stays."""
    world.node()
    async with world.kubelet():
        await world.until(lambda: ready(_node(world).get("status", {})) == "True")
        first = _ready_condition(world)
        await world.pass_time(HEARTBEAT_SECONDS - 2)
        assert _ready_condition(world) == first
        await world.pass_time(3)
        second = _ready_condition(world)
    assert second["lastHeartbeatTime"] > first["lastHeartbeatTime"]
    assert second["lastTransitionTime"] == first["lastTransitionTime"]


def _node(world: KubeletWorld) -> dict[str, Any]:
    return dict(world.store.get("nodes", Key("", "node")))


def _taints(world: KubeletWorld) -> list[str]:
    return [taint["key"] for taint in _node(world)["spec"]["taints"]]


def _ready_condition(world: KubeletWorld) -> dict[str, str]:
    (condition,) = _node(world)["status"]["conditions"]
    return dict(condition)


def _gone(world: KubeletWorld, name: str) -> bool:
    try:
        world.store.get("pods", Key("ns", name))
    except ServedError:
        return True
    return False
