"""Direct actuation on the real control plane: the controller writes the number, and the API server guards the field."""

from __future__ import annotations

import pytest

from e2e import manifests
from e2e.controlplane.api import Body
from e2e.load import FixedMetrics, PodReport
from e2e.manifests import SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import Scene
from wva.actuation import MANAGER

CHAT = ManifestedVariant(name="chat", maximum=3)
ON = {"WVA_DIRECT_ACTUATION": "true"}
WINDOW = {"wva.llmd.ai/scale-down-window": "5s"}


def declared(scene: Scene, variant: ManifestedVariant = CHAT) -> None:
    """Create the VariantAutoscaling with direct actuation."""
    body = manifests.variant_autoscaling(variant, namespace=scene.namespace)
    named = {"wva.llmd.ai/actuation": "direct", "wva.llmd.ai/max-replicas": "3", **WINDOW}
    body["metadata"]["annotations"] = named
    scene.api.apply(body)
    scene.variants[variant.name] = variant


def without_replicas(body: Body) -> Body:
    """Leave the number of replicas to whoever scales, as the documentation asks for."""
    del body["spec"]["replicas"]
    return body


@pytest.fixture
def metrics(scene: Scene) -> FixedMetrics:
    """Return what the pods report: half of what saturates them, by the percentage analyzer."""
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: percentage"})
    found = scene.fixed_metrics()
    found.set("chat", PodReport(0.5))
    return found


def test_the_controller_writes_the_number(scene: Scene, metrics: FixedMetrics):
    """Replicas follow the load both ways without any scaler, and the controller owns the field."""
    scene.api.apply(without_replicas(manifests.target(CHAT, namespace=scene.namespace)))
    declared(scene)
    scene.start_controller(environment=ON)
    scene.wait_measured(CHAT)
    metrics.set("chat", PodReport(0.79))
    scene.wait(lambda: scene.ready_replicas("chat") >= 2, timeout_seconds=60, what="growth by the controller")
    target = scene.api.get("Deployment", "chat", namespace=scene.namespace)
    assert MANAGER in {entry["manager"] for entry in target["metadata"]["managedFields"]}
    metrics.set("chat", PodReport(0.1))
    scene.wait(lambda: scene.replicas("chat") == 1, timeout_seconds=120, what="shrink by the controller")
    assert not scene.api.list("HorizontalPodAutoscaler", namespace=scene.namespace)


@pytest.mark.smoke
def test_groups_of_a_leader_worker_set_follow_the_number(scene: Scene, metrics: FixedMetrics):
    """The scale of a custom resource is written as that of a Deployment; a replica is a group of two pods."""
    groups = ManifestedVariant(name="chat", maximum=3, kind="LeaderWorkerSet", size=2)
    scene.scale_kind(groups.kind)
    scene.deploy(groups, owned=False)
    declared(scene, groups)
    scene.start_controller(environment={**ON, "WVA_TARGET_KINDS": groups.kind})
    scene.wait_measured(groups)
    metrics.set("chat", PodReport(0.79))
    scene.wait(lambda: scene.ready_replicas("chat") >= 2, timeout_seconds=90, what="growth by the controller")
    assert scene.condition("chat", "Actuated").status != "False"
    metrics.set("chat", PodReport(0.1))
    scene.wait(lambda: scene.replicas("chat") == 1, timeout_seconds=120, what="shrink by the controller")


def test_a_scaler_keeps_the_target(scene: Scene, metrics: FixedMetrics):
    """While a ScaledObject is there the controller writes nothing, and says so; when it goes, it writes."""
    scene.api.apply(without_replicas(manifests.target(CHAT, namespace=scene.namespace)))
    url = scene.plane.prometheus_api.url
    scaler = manifests.scaled_object(CHAT, namespace=scene.namespace, url=url, target=scene.target)
    scaler["metadata"]["annotations"] = {"autoscaling.keda.sh/paused": "true"}
    scene.api.apply(scaler)
    declared(scene)
    metrics.set("chat", PodReport(0.79))
    scene.start_controller(environment=ON)
    scene.wait(
        lambda: scene.condition("chat", "Actuated").reason == "ScalerPresent", timeout_seconds=60, what="the condition"
    )
    assert scene.replicas("chat") == 1
    scene.api.delete("ScaledObject", "chat", namespace=scene.namespace)
    scene.wait(lambda: scene.replicas("chat") >= 2, timeout_seconds=90, what="growth without the scaler")


def test_another_manager_keeps_the_field(scene: Scene, metrics: FixedMetrics):
    """Replicas that a manifest sets belong to those who apply it; the condition names them."""
    scene.api.apply(manifests.target(CHAT, namespace=scene.namespace))
    declared(scene)
    metrics.set("chat", PodReport(0.79))
    scene.start_controller(environment=ON)
    scene.wait(
        lambda: scene.condition("chat", "Actuated").reason == "ReplicasOwned", timeout_seconds=60, what="the condition"
    )
    assert scene.replicas("chat") == 1
    scene.wait(lambda: scene.events("ReplicasOwned"), timeout_seconds=20, what="the event")
