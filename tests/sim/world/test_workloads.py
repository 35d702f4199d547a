"""The Deployment controller and kubelet of the embedded world."""

from __future__ import annotations

from random import Random

import pytest

from wva.api.meta import Key
from wva.sim.apiserver import ObjectStore
from wva.sim.stage.scenario import StartUp
from wva.sim.world.clock import VirtualClock
from wva.sim.world.workloads import DEPLOYMENTS, PODS, Workloads

KEY = Key("default", "llama")


class WorkloadWorld:
    """A store with one Deployment."""

    def __init__(self, replicas: int = 2) -> None:
        """Create the Deployment."""
        self.clock = VirtualClock()
        self.store = ObjectStore(now=self.clock.now)
        self.store.create(
            DEPLOYMENTS,
            {
                "metadata": {"name": KEY.name, "namespace": KEY.namespace},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": "llama"}},
                    "template": {
                        "metadata": {"labels": {"app": "llama"}},
                        "spec": {"containers": [{"name": "vllm", "image": "vllm"}]},
                    },
                },
            },
        )
        start_ups = {KEY: StartUp(60.0, 0.0)}
        self.workloads = Workloads(self.store, clock=self.clock, start_ups=start_ups, random=Random(1))

    def at(self, seconds: float) -> dict[str, int]:
        """Advance the clock, run the controller once, and return the Deployment's status."""
        self.clock.advance_to(seconds)
        self.workloads.sync()
        status = self.store.get(DEPLOYMENTS, KEY)["status"]
        return {"replicas": status["replicas"], "ready": status["readyReplicas"]}


@pytest.fixture(name="world")
def _world() -> WorkloadWorld:
    world = WorkloadWorld()
    world.at(0)
    return world


def test_pods_exist_at_once_and_serve_after_loading(world: WorkloadWorld) -> None:
    """A replica is not ready for as long as its model loads."""
    assert world.at(0) == {"replicas": 2, "ready": 0}
    assert world.workloads.next_due_seconds == 60.0
    assert world.at(59) == {"replicas": 2, "ready": 0}
    assert world.at(60) == {"replicas": 2, "ready": 2}
    assert world.workloads.next_due_seconds is None


def test_a_world_that_has_been_running_has_pods_that_serve() -> None:
    """They take no start-up time, so the pods after them draw the same times as on the stage."""
    world = WorkloadWorld()
    world.workloads.sync(serving=True)
    assert len(world.workloads.ready_pods(KEY)) == 2
    assert world.at(0) == {"replicas": 2, "ready": 2}


def test_pods_are_owned_through_a_replica_set(world: WorkloadWorld) -> None:
    """A pod has a ReplicaSet as owner, and the ReplicaSet has the Deployment. WVA finds the Deployment through them."""
    world.at(0)
    pod = world.store.list(PODS)[0]
    owner = pod["metadata"]["ownerReferences"][0]
    replica_set = world.store.get("replicasets.apps", Key("default", owner["name"]))
    assert (owner["kind"], owner["uid"]) == ("ReplicaSet", replica_set["metadata"]["uid"])
    assert replica_set["metadata"]["ownerReferences"][0]["name"] == "llama"


def test_shrinking_removes_what_does_not_serve_first(world: WorkloadWorld) -> None:
    """A pod that is still loading is removed before pods that serve."""
    world.at(60)
    world.store.patch_scale(DEPLOYMENTS, KEY, 3)
    assert world.at(70) == {"replicas": 3, "ready": 2}
    world.store.patch_scale(DEPLOYMENTS, KEY, 2)
    assert world.at(80) == {"replicas": 2, "ready": 2}


def test_no_pod_of_a_held_deployment_becomes_ready_before_its_release(world: WorkloadWorld) -> None:
    """Earlier pods go on serving. At the release pods are Ready whose start-up time has passed, as on the stage."""
    world.at(60)
    world.workloads.hold(KEY)
    world.store.patch_scale(DEPLOYMENTS, KEY, 3)
    assert world.at(61) == {"replicas": 3, "ready": 2}
    assert world.at(1000) == {"replicas": 3, "ready": 2}
    assert world.workloads.next_due_seconds is None
    world.store.patch_scale(DEPLOYMENTS, KEY, 4)
    world.at(1001)
    world.workloads.release(KEY)
    assert world.at(1002) == {"replicas": 4, "ready": 3}
    assert world.workloads.next_due_seconds == 1061.0
    assert world.at(1061) == {"replicas": 4, "ready": 4}


def test_a_second_look_writes_nothing(world: WorkloadWorld) -> None:
    """Without a change the resourceVersion stays. Otherwise the simulation would never come to rest."""
    world.at(60)
    before = world.store.version
    world.at(61)
    assert world.store.version == before


def test_a_deleted_deployment_takes_its_pods_along(world: WorkloadWorld) -> None:
    """Garbage collection removes the pods, and a recreated Deployment starts new ones."""
    world.at(60)
    body = {key: value for key, value in world.store.get(DEPLOYMENTS, KEY).items() if key == "spec"}
    world.store.delete(DEPLOYMENTS, KEY)
    world.workloads.sync()
    assert world.store.list(PODS) == []
    world.store.create(DEPLOYMENTS, {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, **body})
    assert world.at(61) == {"replicas": 2, "ready": 0}
