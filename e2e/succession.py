"""A leader and a standby with an unfinished change, and what controllers may publish when the leader ends."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from e2e.controller import ControllerProcess
from e2e.load import PodReport
from e2e.manifests import ManifestedVariant
from e2e.scene import Scene

VARIANT = ManifestedVariant(name="variant")
NUMBER = VARIANT.replicas + 1


@dataclass(frozen=True, slots=True)
class LeaderAndStandby:
    """The leader, the standby, the time since when the change is unfinished, and the kubeconfig of the leader alone."""

    leader: ControllerProcess
    standby: ControllerProcess
    since: str
    identity: Path


def start_pair(scene: Scene, *election: str) -> LeaderAndStandby:
    """Start a leader and a standby. The status of the variant asks for one replica more, and no scaler applies it.

    The load needs no more replicas. So a controller that forgets the number in the status publishes another one.
    """
    scene.fixed_metrics().set("variant", PodReport(kv_usage=0.5))
    scene.deploy(VARIANT)
    scene.wait_ready(VARIANT)
    scene.declare(VARIANT)
    decided = {"accelerator": VARIANT.accelerator, "numReplicas": NUMBER}
    patch = {"status": {"desiredOptimizedAlloc": decided}}
    scene.api.patch("VariantAutoscaling", "variant", patch, namespace=scene.namespace, subresource="status")
    identity = scene.identity()
    first = scene.start_controller(*election, name="first", kubeconfig=identity)
    wait_leader(scene, first, timeout_seconds=30)
    second = start_standby(scene, *election, name="second")
    scene.wait_measured(VARIANT)
    scene.wait(
        lambda: scene.condition("variant", "Progressing").status == "True", timeout_seconds=15, what="Progressing"
    )
    return LeaderAndStandby(first, second, scene.condition("variant", "Progressing").since, identity)


def start_standby(scene: Scene, *election: str, name: str) -> ControllerProcess:
    """Start another controller and wait until it is ready to take over."""
    controller = scene.start_controller(*election, name=name)
    scene.wait(lambda: controller.readiness()[0] == 200, timeout_seconds=30, what=f"{name} is ready")
    return controller


def wait_leader(scene: Scene, controller: ControllerProcess, *, timeout_seconds: float) -> None:
    """Wait until a controller publishes the number."""
    scene.wait(
        lambda: controller.metrics().value("wva_desired_replicas", variant_name="variant") is not None,
        timeout_seconds=timeout_seconds,
        what=f"{controller.name} publishes",
    )


def assert_unmoved(scene: Scene, since: str) -> None:
    """Assert that no other number was ever published, and that controllers published one after the other.

    They are looked at in turn, and a successor may publish between two looks. So both may be seen in one turn, but who
    publishes beside another one is seen again after it.
    """
    assert scene.history.published("variant") == [NUMBER], str(scene.history)
    published = [entry for entry in scene.history.observations() if entry.desired]
    assert all(entry.leader == 1 for entry in published)
    reigns = [name for name, _ in groupby(entry.controller for entry in published)]
    assert len(reigns) == len(set(reigns)), reigns
    status = scene.variant_autoscaling("variant").get("status", {})
    assert status.get("desiredOptimizedAlloc", {}).get("numReplicas") == NUMBER
    assert scene.condition("variant", "Progressing").since == since, "the clock of the unfinished change was reset"
