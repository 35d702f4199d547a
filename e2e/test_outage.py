"""Prometheus is down for two minutes: WVA changes no number, reports the outage, and recovers without help."""

from __future__ import annotations

import time

import pytest

from e2e.controller import ControllerProcess
from e2e.load import PodReport
from e2e.manifests import ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene

OUTAGE_SECONDS = 120.0
BUSY, IDLE = PodReport(kv_usage=0.55), PodReport(kv_usage=0.0)
CHEAP, DEAR = ManifestedVariant(name="cheap", cost=5, replicas=2), ManifestedVariant(name="dear", cost=50)


@pytest.mark.smoke
@pytest.mark.disruptive
@pytest.mark.timeout(900)
def test_prometheus_stopped_for_two_minutes(scene: Scene):
    """The numbers stay. Condition, source, gauge and readiness name the reason until Prometheus is back."""
    metrics = scene.fixed_metrics()
    for variant in (CHEAP, DEAR):
        metrics.set(variant.name, BUSY)
    scene.deploy(CHEAP, DEAR)
    scene.wait_ready(CHEAP, DEAR)
    scene.declare(CHEAP, DEAR)
    scene.scale_by_keda(CHEAP, DEAR)
    controller = scene.start_controller()
    scene.wait_measured(CHEAP, DEAR)
    scene.wait(lambda: controller.readiness()[0] == 200, timeout_seconds=15, what="ready")
    process = controller.process.pid

    scene.plane.stop_prometheus()
    stopped = time.monotonic()
    try:
        metrics.set(CHEAP.name, IDLE)  # a controller that takes missing data for no load shrinks now
        metrics.set(DEAR.name, IDLE)
        _wait_told(scene, controller)
        told = time.monotonic()
        time.sleep(max(0.0, stopped + OUTAGE_SECONDS - told))
        lasted = time.monotonic() - stopped
        for variant in (CHEAP, DEAR):
            metrics.set(variant.name, BUSY)
    finally:
        scene.plane.start_prometheus()
    assert lasted >= OUTAGE_SECONDS
    _assert_nothing_changed(scene, stopped=stopped, told=told)

    back = time.monotonic()
    scene.wait_measured(CHEAP, DEAR, timeout_seconds=60)
    scene.wait(
        lambda: scene.condition("cheap", "MetricsAvailable").status == "True", timeout_seconds=30, what="metrics again"
    )
    scene.wait(lambda: controller.readiness()[0] == 200, timeout_seconds=15, what="ready again")
    time.sleep(2 * CYCLE_SECONDS)
    assert controller.metrics().value("wva_prometheus_up") == 1
    assert not scene.history.changes(), f"changed after {back - stopped:.0f} s:\n{scene.history}"
    assert controller.process.pid == process


def _wait_told(scene: Scene, controller: ControllerProcess) -> None:
    """Wait until conditions, source, metrics and readiness report the outage."""
    for name in ("cheap", "dear"):
        scene.wait(
            lambda name=name: scene.condition(name, "MetricsAvailable").reason == "PrometheusError",
            timeout_seconds=40,
            what=f"condition of {name}",
        )
        assert scene.condition(name, "MetricsAvailable").status == "False"
        assert scene.condition(name, "OptimizationReady").reason == "PrometheusError"
        assert scene.condition(name, "Ready").status == "True"
        assert scene.source(name) == "previous-desired"
    page = controller.metrics()
    assert page.value("wva_prometheus_up") == 0
    assert page.total("wva_holds_total", reason="PrometheusError") >= 2
    status, text = controller.readiness()
    assert status == 503
    assert "prometheus" in text
    assert controller.liveness()[0] == 200


def _assert_nothing_changed(scene: Scene, *, stopped: float, told: float) -> None:
    """Assert that each observation of the outage has both old numbers, and gauges that name the reason."""
    seen = scene.history.observations(since_seconds=stopped)
    assert len(seen) > OUTAGE_SECONDS  # two a second, less what a busy machine loses
    assert all(entry.answered for entry in seen)
    assert all(entry.desired == {"cheap": 2, "dear": 1} for entry in seen), str(scene.history)
    later = [entry for entry in seen if entry.at_seconds > told]
    assert all(set(entry.sources.values()) == {"previous-desired"} for entry in later)
    assert all(entry.prometheus_up == 0 for entry in later)
    assert (scene.replicas("cheap"), scene.replicas("dear")) == (2, 1)
