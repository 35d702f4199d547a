"""A plain HorizontalPodAutoscaler instead of KEDA, on the external metric of the shipped adapter values."""

from __future__ import annotations

import pytest

from e2e.external_metrics import external_metrics_adapter
from e2e.load import PodReport
from e2e.manifests import ManifestedVariant
from e2e.scene import Scene
from e2e.test_prometheus_adapter import VALUES, hpa

VARIANT = ManifestedVariant(name="variant")


@pytest.mark.disruptive
def test_hpa_applies_the_number(scene: Scene):
    """A saturated variant grows and an idle one shrinks, and autoscaling/v2 alone applies the number."""
    metrics = scene.fixed_metrics()
    metrics.set("variant", PodReport(kv_usage=0.77))
    scene.deploy(VARIANT)
    scene.wait_ready(VARIANT)
    scene.declare(VARIANT)
    scene.start_controller()
    scene.wait_measured(VARIANT)
    scraped = f'wva_desired_replicas{{exported_namespace="{scene.namespace}"}}'
    scene.wait(lambda: scene.plane.prometheus_api.query(scraped), timeout_seconds=20, what="the number in Prometheus")
    with external_metrics_adapter(scene.plane, VALUES, scene.target):
        scene.api.apply(hpa("variant", namespace=scene.namespace))
        scene.wait(lambda: scene.ready_replicas("variant") >= 2, timeout_seconds=60, what="growth by the HPA")
        metrics.set("variant", PodReport(kv_usage=0.1))
        scene.wait(lambda: scene.replicas("variant") == 1, timeout_seconds=150, what="shrink by the HPA")
    scaler = scene.api.get("HorizontalPodAutoscaler", "variant", namespace=scene.namespace)
    assert scaler["spec"]["metrics"][0]["external"]["metric"]["name"] == "wva_desired_replicas"
    assert not scene.api.list("ScaledObject", namespace=scene.namespace)
    grown = scene.history.published("variant")
    first = grown[0]  # 1 before the first decision, which may come before the first recorded observation
    assert first in {1, 2}
    assert grown == [*range(first, max(grown)), *range(max(grown), 0, -1)], grown
