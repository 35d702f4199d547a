"""Variants on StatefulSets and LeaderWorkerSets: they grow, shrink, start from zero and come back after a deletion."""

from __future__ import annotations

import time

import pytest

from e2e.gateway import gateway
from e2e.load import PodReport
from e2e.manifests import MODEL, SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import Scene
from wva.config.declare import TARGET_KINDS

CALM, BUSY, IDLE = PodReport(kv_usage=0.5), PodReport(kv_usage=0.78), PodReport(kv_usage=0.05)
SIZE = {"StatefulSet": 1, "LeaderWorkerSet": 3}


@pytest.fixture(params=TARGET_KINDS)
def kind(request: pytest.FixtureRequest, scene: Scene) -> str:
    """Give a kind of target that the controller of the scene may scale."""
    name: str = request.param
    scene.scale_kind(name)
    return name


def test_a_variant_grows_shrinks_and_survives_the_deletion_of_its_target(scene: Scene, kind: str):
    """A replica is one pod or one group. A new target of the same name starts with its own replicas."""
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: percentage"})
    variant = ManifestedVariant(name="chat", replicas=2, kind=kind, size=SIZE[kind])
    metrics = scene.fixed_metrics()
    metrics.set(variant.name, CALM)
    scene.deploy(variant)
    scene.declare(variant)
    scene.scale_by_keda(variant)
    controller = scene.start_controller(environment={"WVA_TARGET_KINDS": kind})
    scene.wait_ready(variant)
    scene.wait_measured(variant)
    assert scene.condition(variant.name, "TargetResolved").message == f"Scale target {kind} chat found"
    assert controller.metrics().value("wva_current_replicas", variant_name=variant.name) == 2

    metrics.set(variant.name, BUSY)
    scene.wait(lambda: scene.ready_replicas(variant.name) == 3, timeout_seconds=90, what="growth")
    assert len(scene.api.list("Pod", namespace=scene.namespace)) == 3 * SIZE[kind]
    metrics.set(variant.name, IDLE)
    scene.wait(lambda: scene.replicas(variant.name) == 1, timeout_seconds=180, what="shrink")

    scene.api.delete(kind, variant.name, namespace=scene.namespace)
    scene.wait(lambda: scene.desired(variant.name) is None, timeout_seconds=15, what="series gone")
    for condition in ("TargetResolved", "Ready"):
        scene.wait(
            lambda condition=condition: scene.condition(variant.name, condition).reason == "TargetNotFound",
            timeout_seconds=15,
            what=f"target gone in {condition}",
        )
    metrics.set(variant.name, CALM)
    recreated = time.monotonic()
    scene.wait(lambda: not scene.api.list("Pod", namespace=scene.namespace), timeout_seconds=60, what="pods gone")
    scene.deploy(variant)
    scene.wait(
        lambda: scene.condition(variant.name, "MetricsAvailable").status == "True", timeout_seconds=60, what="metrics"
    )
    assert scene.history.published(variant.name, since_seconds=recreated)[0] == variant.replicas


def test_a_variant_starts_from_zero(scene: Scene, kind: str):
    """WVA writes the scale subresource of the target when a request waits."""
    asleep = ManifestedVariant(name="asleep", replicas=0, kind=kind, size=SIZE[kind])
    metrics = scene.fixed_metrics()
    metrics.set(asleep.name, CALM)
    with gateway(scene, asleep) as client:
        scene.deploy(asleep)
        scene.declare(asleep)
        scene.start_controller(environment={"WVA_TARGET_KINDS": kind})
        scene.wait(lambda: scene.desired(asleep.name) == 0, timeout_seconds=60, what="a number of zero")
        client.send(2, model=MODEL)
        scene.wait(lambda: scene.ready_replicas(asleep.name) >= 1, timeout_seconds=60, what="the first replica")


def test_a_kind_that_is_not_switched_on_is_not_scaled(scene: Scene):
    """The controller needs no right for this kind. The condition of the variant names the kinds that WVA scales."""
    variant = ManifestedVariant(name="chat", kind="StatefulSet")
    scene.deploy(variant)
    scene.declare(variant)
    scene.start_controller()
    scene.wait(
        lambda: scene.condition(variant.name, "Ready").reason == "TargetUnsupported", timeout_seconds=20, what="refusal"
    )
    assert "only apps/v1 Deployment is" in scene.condition(variant.name, "TargetResolved").message
