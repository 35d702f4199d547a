"""Bounds that others set: GPUs of the nodes, quotas of the namespace, minimum and maximum of the scaler.

Tests that count GPUs have nodes of their own, on which only their pods run, and a controller that counts only these.
"""

from __future__ import annotations

import time

import pytest
import yaml

from e2e import manifests
from e2e.controller import ControllerProcess
from e2e.controlplane.audit import CONFINED
from e2e.controlplane.nodes import POOL
from e2e.load import FixedMetrics, PodReport
from e2e.manifests import SATURATION_CONFIG_MAP, SERVICE_CLASSES_CONFIG_MAP, ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene
from wva.collect.resolution import MAX_REPLICAS_ANNOTATION

FULL, CALM, IDLE = PodReport(kv_usage=0.95, waiting=9), PodReport(kv_usage=0.5), PodReport(kv_usage=0.05)
TIGHT = PodReport(kv_usage=0.77)  # one idle replica more would be enough
BUDGET = 8
JUDGED_SECONDS = 100.0
"""Until the samples have a window after the newest replica served, the model waits for it and names no limit."""
QUIET_SECONDS = 65  # for a minute after new replicas came only a rising load asks for more
CHAT = ManifestedVariant(name="chat", cost=50, model="demo/chat", replicas=2, gpus=2)
BATCH = ManifestedVariant(name="batch", cost=10, model="demo/batch", replicas=2)
BATCH_ELSEWHERE = ManifestedVariant(name="batch-elsewhere", cost=20, model="demo/batch", accelerator="A100")
CLASSES = {
    "premium.yaml": f"name: premium\npriority: 1\ndata: [{{model: {CHAT.model}, slo-tpot: 50, slo-ttft: 1000}}]",
    "free.yaml": f"name: free\npriority: 10\ndata: [{{model: {BATCH.model}, slo-tpot: 200, slo-ttft: 5000}}]",
}


def test_two_models_share_the_gpus_by_priority_and_the_rest_overflows(scene: Scene):
    """The premium model gets the GPUs that are left although it costs more; the other grows on other GPUs."""
    variants = (CHAT, BATCH, BATCH_ELSEWHERE)
    scene.configure(SERVICE_CLASSES_CONFIG_MAP, CLASSES)
    scene.reserve_nodes("H100", gpus=BUDGET)
    scene.reserve_nodes("A100", gpus=BUDGET)
    metrics = _running(scene, *variants)
    scene.start_limited()
    scene.wait_measured(*variants)
    _report(metrics, FULL, *variants)

    scene.wait(lambda: scene.replicas("chat") == 3, timeout_seconds=60, what="growth of the premium model")
    scene.wait(lambda: scene.replicas("batch-elsewhere") >= 3, timeout_seconds=60, what="overflow to other GPUs")
    scene.wait(
        lambda: "gpu-limiter H100" in scene.condition("chat", "OptimizationReady").message,
        timeout_seconds=JUDGED_SECONDS,
        what="the condition names the limit",
    )
    time.sleep(QUIET_SECONDS)
    assert scene.history.published("batch") == [2]
    assert max(_gpus_promised(scene, CHAT, BATCH)) == BUDGET
    assert max(_gpus_promised(scene, BATCH_ELSEWHERE)) <= BUDGET
    assert not scene.events("FailedScheduling"), scene.report()


def test_growth_stops_at_the_quota_of_the_namespace(scene: Scene):
    """The condition names the quota, which refuses no pod. WVA uses a higher quota at once."""
    variant = ManifestedVariant(name="model", replicas=2)
    scene.reserve_nodes("H100", gpus=BUDGET)
    scene.api.apply(manifests.quota("team", namespace=scene.namespace, gpus=3))
    metrics = _running(scene, variant)
    scene.start_limited()
    scene.wait_measured(variant)
    _report(metrics, FULL, variant)

    scene.wait(lambda: scene.ready_replicas("model") == 3, timeout_seconds=60, what="growth up to the quota")
    scene.wait(
        lambda: f"ResourceQuota {scene.namespace}/team" in scene.condition("model", "OptimizationReady").message,
        timeout_seconds=JUDGED_SECONDS,
        what="the condition names the quota",
    )
    time.sleep(QUIET_SECONDS)
    assert scene.history.published("model") == [2, 3]
    scene.api.apply(manifests.quota("team", namespace=scene.namespace, gpus=4))
    scene.wait(lambda: scene.ready_replicas("model") == 4, timeout_seconds=60, what="growth within the higher quota")
    assert max(_gpus_promised(scene, variant)) == 4
    assert not scene.events("FailedCreate"), scene.report()


def test_the_maximum_of_the_scaler_is_never_exceeded_and_may_change(scene: Scene):
    """The next variant takes over at the maximum; a new maximum and an annotation hold within a cycle or two."""
    cheap, dear = (
        ManifestedVariant(name="cheap", replicas=2, maximum=3),
        ManifestedVariant(name="dear", cost=50, maximum=2),
    )
    metrics = _running(scene, cheap, dear)
    scene.start_controller()
    scene.wait_measured(cheap, dear)
    _report(metrics, FULL, cheap, dear)
    scene.wait(lambda: scene.ready_replicas("cheap") == 3, timeout_seconds=60, what="growth up to the maximum")
    scene.wait(lambda: scene.ready_replicas("dear") == 2, timeout_seconds=60, what="growth of the next variant")
    time.sleep(QUIET_SECONDS)
    assert scene.history.published("cheap") == [2, 3]
    assert scene.history.published("dear") == [1, 2]
    assert "at the maximum 3" in scene.condition("cheap", "OptimizationReady").message

    _annotate(scene, cheap, 4)
    scene.api.patch("ScaledObject", "cheap", {"spec": {"maxReplicaCount": 6}}, namespace=scene.namespace)
    _wait_number(scene, "cheap", 4)
    scene.wait(lambda: scene.ready_replicas("cheap") == 4, timeout_seconds=60, what="growth beyond the old maximum")
    _annotate(scene, cheap, 3)
    _wait_number(scene, "cheap", 3)
    assert scene.history.published("cheap") == [2, 3, 4, 3]


def test_the_minimum_of_the_scaler_is_kept_and_may_change(scene: Scene):
    """An idle variant shrinks no further than the minimum, and follows a higher one within a cycle or two."""
    variant = ManifestedVariant(name="model", replicas=3, minimum=2)
    metrics = _running(scene, variant)
    _report(metrics, IDLE, variant)
    scene.start_controller()
    scene.wait_measured(variant)
    scene.wait(lambda: scene.ready_replicas("model") == 2, timeout_seconds=120, what="shrink to the minimum")
    time.sleep(3 * CYCLE_SECONDS)
    assert scene.history.published("model")[-1] == 2
    scene.api.patch("ScaledObject", "model", {"spec": {"minReplicaCount": 4}}, namespace=scene.namespace)
    _wait_number(scene, "model", 4)
    assert min(scene.history.published("model")) == 2


def test_nothing_grows_while_the_gpus_cannot_be_counted(scene: Scene, request: pytest.FixtureRequest):
    """A controller without the right to read nodes says so and still shrinks. With the right, growth begins."""
    full, calm = ManifestedVariant(name="full"), ManifestedVariant(name="calm", model="demo/calm", replicas=2)
    scene.reserve_nodes("H100", gpus=BUDGET)
    for item in manifests.rbac(scene.namespace, account=CONFINED):
        scene.api.apply(item)
    role = _role_without_nodes(scene)
    request.addfinalizer(lambda: scene.api.delete("ClusterRole", role))
    _bind(scene, role)
    metrics = _running(scene, full, calm)
    controller = _start_confined(scene)
    scene.wait_measured(full, calm)
    metrics.set(full.name, FULL, model=full.model)
    metrics.set(calm.name, IDLE, model=calm.model)
    scene.wait(
        lambda: "nodes cannot be read" in scene.condition("full", "OptimizationReady").message,
        timeout_seconds=60,
        what="the condition says that nodes cannot be read",
    )
    scene.wait(lambda: scene.replicas("calm") == 1, timeout_seconds=120, what="shrink of the other model")
    assert scene.history.published("full") == [1]

    _bind(scene, "manager-cluster-role")
    scene.wait(lambda: scene.ready_replicas("full") >= 2, timeout_seconds=90, what="growth with the right to read")
    controller.process.stop()  # the test wanted the refusals that this controller counted


def test_a_pod_without_a_node_makes_the_next_variant_eligible(scene: Scene):
    """Without a GPU budget a pod finds no node. Its sibling variant grows long before the transition deadline."""
    scene.configure(SATURATION_CONFIG_MAP, {"default": "transitionDeadline: 10m"})
    cheap, dear = ManifestedVariant(name="cheap", cost=5), ManifestedVariant(name="dear", cost=50, accelerator="A100")
    scene.reserve_nodes("H100", gpus=cheap.replicas)
    metrics = _running(scene, cheap, dear)
    scene.start_controller()
    scene.wait_measured(cheap, dear)
    _report(metrics, TIGHT, cheap, dear)

    scene.wait(lambda: scene.replicas("cheap") == 2, timeout_seconds=60, what="growth of the cheaper variant")
    scene.wait(lambda: scene.events("FailedScheduling"), timeout_seconds=30, what="a pod without a node")
    scene.wait(lambda: scene.ready_replicas("dear") == 2, timeout_seconds=120, what="growth of the sibling")
    assert scene.ready_replicas("cheap") == 1


def _running(scene: Scene, *variants: ManifestedVariant) -> FixedMetrics:
    """Bring variants up, calm and declared, and return what their pods report."""
    metrics = scene.fixed_metrics()
    _report(metrics, CALM, *variants)
    scene.deploy(*variants)
    scene.wait_ready(*variants)
    scene.declare(*variants)
    scene.scale_by_keda(*variants)
    return metrics


def _report(metrics: FixedMetrics, reading: PodReport, *variants: ManifestedVariant) -> None:
    for variant in variants:
        metrics.set(variant.name, reading, model=variant.model)


def _gpus_promised(scene: Scene, *variants: ManifestedVariant) -> list[int]:
    """Return the GPUs that all numbers together need, for each observation that has the numbers of all variants."""
    return [
        sum(variant.gpus * entry.desired[variant.name] for variant in variants)
        for entry in scene.history.observations()
        if all(variant.name in entry.desired for variant in variants)
    ]


def _annotate(scene: Scene, variant: ManifestedVariant, maximum: int) -> None:
    patch = {"metadata": {"annotations": {MAX_REPLICAS_ANNOTATION: str(maximum)}}}
    scene.api.patch("VariantAutoscaling", variant.name, patch, namespace=scene.namespace)


def _wait_number(scene: Scene, name: str, number: int) -> None:
    """Wait until a number is published and recorded. One of the next two full cycles must publish it."""
    (controller,) = scene.controllers

    def cycles() -> float:
        return controller.metrics().total("wva_cycles_total", result="success")

    before = cycles()
    scene.wait(lambda: scene.desired(name) == number, timeout_seconds=6 * CYCLE_SECONDS, what=f"{name}: {number}")
    assert cycles() - before <= 3, "one may have been running, two had to do"
    scene.wait(lambda: scene.history.published(name)[-1:] == [number], timeout_seconds=10, what="the number on record")


def _role_without_nodes(scene: Scene) -> str:
    """Create the shipped role without the right to read nodes; return its name."""
    text = (manifests.DEPLOY / "rbac" / "cluster_role.yaml").read_text(encoding="utf-8")
    role = yaml.safe_load(text)
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["nodes"]]
    role["metadata"]["name"] = f"wva-{scene.namespace}-without-nodes"
    scene.api.apply(role)
    name: str = role["metadata"]["name"]
    return name


def _start_confined(scene: Scene) -> ControllerProcess:
    """Start the controller of ``Scene.start_limited`` with the account whose refusals are no error."""
    environment = {
        "CONTROLLER_INSTANCE": scene.instance,
        "WVA_LIMITED_MODE": "true",
        "WVA_NODE_SELECTOR": f"{POOL}={scene.namespace}-h100",
    }
    kubeconfig = scene.plane.kubeconfig_for_service_account(scene.namespace, CONFINED)
    return scene.start_controller(kubeconfig=kubeconfig, environment=environment, cluster_wide=True)


def _bind(scene: Scene, role: str) -> None:
    """Bind the controller's ServiceAccount to another ClusterRole."""
    name = f"wva-{scene.namespace}-manager-cluster-rolebinding"
    binding = scene.api.get("ClusterRoleBinding", name)
    scene.api.delete("ClusterRoleBinding", name)  # the role of a binding cannot be changed
    binding["roleRef"]["name"] = role
    for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        binding["metadata"].pop(field, None)
    scene.api.create(binding)
