"""Watch streams break, fall silent or expire. The caches catch up, and the process stays."""

from __future__ import annotations

import time

import pytest

from e2e.controller import ControllerProcess
from e2e.load import PodReport
from e2e.manifests import ManifestedVariant, config_map
from e2e.relay import relaying
from e2e.scene import CYCLE_SECONDS, Scene

CALM = PodReport(kv_usage=0.5)
GOING, STAYING = ManifestedVariant(name="going", cost=20), ManifestedVariant(name="staying")
RESOURCES = ("variantautoscalings.llmd.ai", "deployments.apps", "replicasets.apps", "pods", "configmaps")
RECOVERY_SECONDS = 60
IDLE_SECONDS = 70  # of a stream without even a bookmark


def test_cut_watch_is_resumed(scene: Scene):
    """After an outage of all connections the controller learns of the changes soon, without listing any kind again."""
    with relaying(scene.plane.layout.address("kube-apiserver")) as relay:
        controller = _start(scene, relay.address)
        lists = _lists(controller)
        relay.cut()
        _change_behind_its_back(scene)
        time.sleep(2 * CYCLE_SECONDS)
        assert scene.desired("going") == 1  # the controller cannot know of the deletion yet, and keeps its numbers
        relay.restore()
        _assert_caught_up(scene, controller)
        assert _lists(controller) == lists
        assert controller.metrics().total("wva_watch_restarts_total", cause="unreachable") >= len(RESOURCES)


def test_silent_watch_is_noticed(scene: Scene):
    """The controller gives up a connection that stays open but silent, and learns of the changes that it missed."""
    with relaying(scene.plane.layout.address("kube-apiserver")) as relay:
        controller = _start(scene, relay.address)
        relay.silence()
        _change_behind_its_back(scene)
        _assert_caught_up(scene, controller, timeout_seconds=IDLE_SECONDS + RECOVERY_SECONDS)
        assert controller.metrics().total("wva_watch_restarts_total", cause="idle") >= 1


@pytest.mark.disruptive
def test_restarted_apiserver(scene: Scene):
    """While the API server is stopped, numbers and process stay. Afterwards the controller works as before."""
    controller = _start(scene, "")
    process = controller.process.pid
    scene.plane.stop_apiserver()
    stopped = time.monotonic()
    try:
        time.sleep(2 * CYCLE_SECONDS)
        assert controller.liveness()[0] == 200
        assert scene.desired("going") == scene.desired("staying") == 1
    finally:
        scene.plane.start_apiserver()
    _change_behind_its_back(scene)
    _assert_caught_up(scene, controller)
    assert controller.process.pid == process
    assert all(entry.answered for entry in scene.history.observations(since_seconds=stopped))
    assert scene.history.published("staying") == [1]
    for resource in RESOURCES:
        assert controller.metrics().total("wva_watch_restarts_total", resource=resource) >= 1


@pytest.mark.disruptive
def test_expired_watch_lists_again(scene: Scene):
    """After a cut, a compaction and a restart each stream receives a real 410. WVA counts it and lists anew."""
    with relaying(scene.plane.layout.address("kube-apiserver")) as relay:
        controller = _start(scene, relay.address)
        lists = _lists(controller)
        relay.cut()
        _change_behind_its_back(scene)
        for index in range(3):  # makes the newest revision later than any that a stream has seen
            scene.api.create(config_map(f"other-{index}", namespace="default", data={}))
            scene.api.delete("ConfigMap", f"other-{index}", namespace="default")
        scene.plane.compact_etcd()
        scene.plane.restart_apiserver()
        relay.restore()
        _assert_caught_up(scene, controller)
        for resource in RESOURCES:
            scene.wait(
                lambda resource=resource: controller.metrics().value(
                    "wva_watch_restarts_total", resource=resource, cause="expired"
                ),
                timeout_seconds=RECOVERY_SECONDS,
                what=f"410 of the watch of {resource}",
            )
        assert all(after > lists[resource] for resource, after in _lists(controller).items())


def _start(scene: Scene, relay: str) -> ControllerProcess:
    """Start a controller that reaches the API server through the relay, and two variants that it scales."""
    metrics = scene.fixed_metrics()
    for variant in (GOING, STAYING):
        metrics.set(variant.name, CALM)
    scene.deploy(GOING, STAYING)
    scene.wait_ready(GOING, STAYING)
    scene.declare(GOING, STAYING)
    controller = scene.start_controller(kubeconfig=scene.identity(through=relay))
    scene.wait_measured(GOING, STAYING)
    scene.wait(
        lambda: scene.condition("going", "MetricsAvailable").status == "True", timeout_seconds=20, what="first status"
    )
    return controller


def _change_behind_its_back(scene: Scene) -> None:
    """Delete one VariantAutoscaling, delete the other one's pod, and create a new variant."""
    scene.api.delete("VariantAutoscaling", "going", namespace=scene.namespace)
    for pod in scene.api.list("Pod", namespace=scene.namespace, labels="app=staying"):
        scene.api.delete("Pod", pod["metadata"]["name"], namespace=scene.namespace)
    late = ManifestedVariant(name="late", model="demo/other")
    scene.deploy(late)
    scene.declare(late)


def _assert_caught_up(
    scene: Scene, controller: ControllerProcess, *, timeout_seconds: float = RECOVERY_SECONDS
) -> None:
    """Wait until the controller knows of the deletion, the new pod and the new variant."""
    scene.wait(lambda: scene.desired("going") is None, timeout_seconds=timeout_seconds, what="the deletion is known")
    scene.wait(
        lambda: scene.condition("late", "TargetResolved").status == "True",
        timeout_seconds=timeout_seconds,
        what="the new variant is known and its status written",
    )
    assert scene.desired("late") == 1
    scene.wait(
        lambda: controller.metrics().value("wva_coverage_ratio", variant_name="staying") == 1,
        timeout_seconds=timeout_seconds,
        what="the new pod is known and reports",
    )
    scene.wait_measured(STAYING, timeout_seconds=timeout_seconds)
    scene.wait(lambda: controller.readiness()[0] == 200, timeout_seconds=timeout_seconds, what="ready")


def _lists(controller: ControllerProcess) -> dict[str, float]:
    """Return how often each kind has been listed; each has been."""
    page = controller.metrics()
    lists = {resource: page.total("wva_lists_total", resource=resource) for resource in RESOURCES}
    assert all(lists.values()), lists
    return lists
