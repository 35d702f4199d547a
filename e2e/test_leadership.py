"""Two controllers, one leads: whoever ends, the numbers go on."""

from __future__ import annotations

import time

from e2e.controller import Controller
from e2e.load import Reading
from e2e.manifests import Variant
from e2e.scene import CYCLE_SECONDS, Scene

ELECTION = (
    "--leader-elect",
    "--leader-election-lease-duration=8s",
    "--leader-election-renew-deadline=6s",
    "--leader-election-retry-period=1s",
)
TAKE_OVER_SECONDS = 20
VARIANT = Variant(name="variant")
NUMBER = VARIANT.replicas + 1


def test_leader_killed_then_stopped(scene: Scene):
    """After a kill the standby leads, after a stop the next one does; number and running clock stay, one publishes."""
    first, second = _start_on_the_way(scene)
    since = scene.condition("variant", "Progressing").since

    first.process.kill()
    _wait_leader(scene, second)
    scene.wait_measured(VARIANT)
    time.sleep(2 * CYCLE_SECONDS)
    _assert_unmoved(scene, since)

    third = scene.start_controller(*ELECTION, name="third")
    scene.wait(lambda: third.readiness()[0] == 200, timeout_seconds=20, what="third is ready")
    second.process.stop()
    _wait_leader(scene, third)
    scene.wait_measured(VARIANT)
    time.sleep(2 * CYCLE_SECONDS)
    _assert_unmoved(scene, since)


def test_paused_leader_does_not_come_back(scene: Scene):
    """A leader that stood still until another one led ends itself and writes nothing any more."""
    first, second = _start_on_the_way(scene)
    since = scene.condition("variant", "Progressing").since
    first.process.pause()
    _wait_leader(scene, second)
    first.process.resume()
    scene.wait(lambda: not first.process.running, timeout_seconds=20, what="the former leader has ended")
    assert "leadership_lost" in first.log(5)
    time.sleep(2 * CYCLE_SECONDS)
    _assert_unmoved(scene, since)


def _start_on_the_way(scene: Scene) -> tuple[Controller, Controller]:
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
    first = scene.start_controller(*ELECTION, name="first")
    _wait_leader(scene, first)
    second = scene.start_controller(*ELECTION, name="second")
    scene.wait(lambda: second.readiness()[0] == 200, timeout_seconds=20, what="standby is ready")
    scene.wait_measured(VARIANT)
    scene.wait(
        lambda: scene.condition("variant", "Progressing").status == "True", timeout_seconds=15, what="Progressing"
    )
    return first, second


def _status_number(scene: Scene) -> int | None:
    status = scene.variant_autoscaling("variant").get("status", {})
    number: int | None = status.get("desiredOptimizedAlloc", {}).get("numReplicas")
    return number


def _wait_leader(scene: Scene, controller: Controller) -> None:
    scene.wait(
        lambda: controller.metrics().value("wva_desired_replicas", variant_name="variant") is not None,
        timeout_seconds=TAKE_OVER_SECONDS,
        what=f"{controller.name} publishes",
    )


def _assert_unmoved(scene: Scene, since: str) -> None:
    """Judge the whole record: never another number, and never two processes that publish at the same time."""
    assert scene.history.published("variant") == [NUMBER], str(scene.history)
    for entries in scene.history.rounds():
        publishers = [entry.controller for entry in entries if entry.desired]
        assert len(publishers) <= 1, publishers
        assert all(entry.leader == 1 for entry in entries if entry.desired)
    assert _status_number(scene) == NUMBER
    assert scene.condition("variant", "Progressing").since == since, "the clock of the unfinished change was reset"
