"""A leader and a standby with a variant on its way, and what may be seen when the leader ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from e2e.controller import Controller
from e2e.load import Reading
from e2e.manifests import Variant
from e2e.scene import Scene

VARIANT = Variant(name="variant")
NUMBER = VARIANT.replicas + 1


@dataclass(frozen=True, slots=True)
class Pair:
    """Who leads, who waits, since when the change is on its way, and the kubeconfig of the leader alone."""

    leader: Controller
    standby: Controller
    since: str
    identity: Path


def start_pair(scene: Scene, *election: str) -> Pair:
    """Start a leader and a standby with a variant whose status asks for a replica more, and that nobody scales.

    The load calls for nothing. So the number differs from what exists and from what anybody would decide without
    history: whoever forgets it shows.
    """
    scene.fixed_metrics().set("variant", Reading(kv_usage=0.5))
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
    return Pair(first, second, scene.condition("variant", "Progressing").since, identity)


def start_standby(scene: Scene, *election: str, name: str) -> Controller:
    """Start another process and wait until it could take over."""
    controller = scene.start_controller(*election, name=name)
    scene.wait(lambda: controller.readiness()[0] == 200, timeout_seconds=30, what=f"{name} is ready")
    return controller


def wait_leader(scene: Scene, controller: Controller, *, timeout_seconds: float) -> None:
    """Wait until a controller publishes the number."""
    scene.wait(
        lambda: controller.metrics().value("wva_desired_replicas", variant_name="variant") is not None,
        timeout_seconds=timeout_seconds,
        what=f"{controller.name} publishes",
    )


def assert_unmoved(scene: Scene, since: str) -> None:
    """Judge the whole record: never another number, and never two processes that publish at the same time."""
    assert scene.history.published("variant") == [NUMBER], str(scene.history)
    for entries in scene.history.rounds():
        publishers = [entry.controller for entry in entries if entry.desired]
        assert len(publishers) <= 1, publishers
        assert all(entry.leader == 1 for entry in entries if entry.desired)
    status = scene.variant_autoscaling("variant").get("status", {})
    assert status.get("desiredOptimizedAlloc", {}).get("numReplicas") == NUMBER
    assert scene.condition("variant", "Progressing").since == since, "the clock of the unfinished change was reset"
