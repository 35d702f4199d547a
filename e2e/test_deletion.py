"""Objects that come late, go and come back: the series follow what exists."""

from __future__ import annotations

import re
import time

import pytest

from e2e import tools
from e2e.load import PodReport
from e2e.manifests import ManifestedVariant
from e2e.scene import Scene

CALM = PodReport(kv_usage=0.5)


def _columns(scene: Scene, *flags: str) -> dict[str, str]:
    """Return what ``kubectl get va`` shows of the only variant, by column."""
    arguments = ("--kubeconfig", scene.plane.kubeconfig, "--namespace", scene.namespace)
    head, line = tools.output("kubectl", *arguments, "get", "va", *flags).splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", head)]
    cells = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return dict(zip(head.split(), cells, strict=True))


def test_variant_autoscaling_before_its_deployment(scene: Scene):
    """A variant without a Deployment has a condition for it and no series. WVA then scales a later Deployment."""
    variant = ManifestedVariant(name="early", replicas=2)
    scene.fixed_metrics().set(variant.name, CALM)
    scene.declare(variant)
    controller = scene.start_controller()
    scene.wait(
        lambda: scene.condition("early", "Ready").reason == "DeploymentNotFound", timeout_seconds=20, what="not found"
    )
    assert scene.condition("early", "TargetResolved").status == "False"
    assert not list(controller.metrics().series("wva_desired_replicas"))
    assert "desiredOptimizedAlloc" not in scene.variant_autoscaling("early")["status"]
    scene.wait(lambda: scene.events("DeploymentNotFound"), timeout_seconds=10, what="the event")
    (obstacle,) = controller.metrics().series("wva_variant_obstacle")
    assert obstacle.labels["reason"] == "DeploymentNotFound"
    assert _columns(scene)["REASON"] == "DeploymentNotFound"

    scene.deploy(variant)
    scene.wait(
        lambda: scene.condition("early", "TargetResolved").status == "True", timeout_seconds=15, what="target found"
    )
    scene.wait_measured(variant)
    scene.wait(
        lambda: scene.condition("early", "MetricsAvailable").status == "True", timeout_seconds=15, what="metrics"
    )
    assert scene.condition("early", "Ready").status == "True"
    assert scene.history.published("early") == [2]
    # The fixed metrics of these pods are gauges alone, which is told; nothing else keeps the number from being made.
    obstacles = [each.labels["reason"] for each in controller.metrics().series("wva_variant_obstacle")]
    assert obstacles == ["EngineSeriesUnusable"]
    shown = _columns(scene, "--output", "wide")
    assert (shown["CURRENT"], shown["DESIRED"], shown["READY"], shown["OPTIMIZED"]) == ("2", "2", "True", "2")
    assert (shown["TARGET"], shown["METRICSREADY"], shown["LIMITED"]) == ("early", "True", "False")


@pytest.mark.smoke
def test_deployment_deleted_and_recreated(scene: Scene):
    """Without its Deployment a variant has no series and no number. A new Deployment does not get the old number."""
    variant, sibling = ManifestedVariant(name="coming", replicas=2), ManifestedVariant(name="staying", cost=20)
    metrics = scene.fixed_metrics()
    for name in ("coming", "staying"):
        metrics.set(name, CALM)
    scene.deploy(variant, sibling)
    scene.declare(variant, sibling)
    scene.scale_by_keda(variant, sibling)
    controller = scene.start_controller()
    scene.wait_measured(variant, sibling)
    metrics.set("coming", PodReport(kv_usage=0.78))
    metrics.set("staying", PodReport(kv_usage=0.78))
    scene.wait(lambda: scene.ready_replicas("coming") == 3, timeout_seconds=60, what="growth of the cheaper one")

    scene.api.delete("Deployment", "coming", namespace=scene.namespace)
    scene.wait(lambda: scene.desired("coming") is None, timeout_seconds=15, what="series gone")
    scene.wait(
        lambda: scene.condition("coming", "TargetResolved").reason == "TargetNotFound",
        timeout_seconds=15,
        what="target gone",
    )
    assert not list(controller.metrics().series("wva_current_replicas", variant_name="coming"))
    assert "desiredOptimizedAlloc" not in scene.variant_autoscaling("coming")["status"]
    assert scene.desired("staying") is not None

    metrics.set("coming", CALM)
    metrics.set("staying", CALM)
    recreated = time.monotonic()
    scene.deploy(ManifestedVariant(name="coming", replicas=1))
    scene.wait_measured(variant)
    first, *_ = scene.wait(
        lambda: scene.history.published("coming", since_seconds=recreated), timeout_seconds=5, what="a recorded number"
    )
    # The sibling's peak of the last minute still counts, so the first decision may be to grow, at most to twice that.
    assert first in (1, 2), f"a new Deployment begins with its own replicas, not with {first} as its predecessor ended"
    scene.wait(
        lambda: scene.condition("coming", "MetricsAvailable").status == "True", timeout_seconds=30, what="metrics"
    )


@pytest.mark.smoke
def test_variant_autoscaling_deleted(scene: Scene):
    """A deleted VA's series are gone from the controller and from Prometheus; its Deployment stays as it is."""
    going, staying = ManifestedVariant(name="going", replicas=2), ManifestedVariant(name="staying", cost=20)
    metrics = scene.fixed_metrics()
    for name in ("going", "staying"):
        metrics.set(name, CALM)
    scene.deploy(going, staying)
    scene.declare(going, staying)
    scene.scale_by_keda(going, staying)
    controller = scene.start_controller()
    scene.wait_measured(going, staying)
    scraped = f'{{__name__=~"wva_(desired|current)_replicas|wva_desired_ratio",exported_namespace="{scene.namespace}"}}'
    scene.wait(lambda: len(_variants(scene, scraped)) == 2, timeout_seconds=20, what="both variants in Prometheus")

    scene.api.delete("VariantAutoscaling", "going", namespace=scene.namespace)
    scene.wait(lambda: scene.desired("going") is None, timeout_seconds=15, what="series gone")
    page = controller.metrics()
    for name in ("wva_current_replicas", "wva_desired_ratio", "wva_desired_source"):
        assert not list(page.series(name, variant_name="going"))
    scene.wait(lambda: _variants(scene, scraped) == {"staying"}, timeout_seconds=20, what="gone from Prometheus, too")
    assert scene.replicas("going") == 2
    assert scene.desired("staying") == 1


def _variants(scene: Scene, query: str) -> set[str]:
    return {sample.labels["variant_name"] for sample in scene.plane.prometheus_api.query(query)}
