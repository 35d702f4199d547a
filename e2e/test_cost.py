"""How many requests the controller sends to its servers, counted by the servers."""

from __future__ import annotations

import pytest

from e2e.controller import ControllerProcess
from e2e.counting_proxy import CountingProxy, counting
from e2e.exposition import MetricsPage
from e2e.load import PodReport
from e2e.manifests import ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene

MAX_QUERIES = 8
WATCHED_CYCLES = 4
VARIANTS = [ManifestedVariant(name=f"variant-{index:02}", model=f"demo/model-{index:02}") for index in range(20)]


@pytest.mark.disruptive  # nothing is cut, but the API server counts the patches of all namespaces together
def test_queries_and_patches_of_quiet_cycles(scene: Scene):
    """At most eight queries in a cycle, as many for 20 models as for one; and no status patch while nothing changes."""
    metrics = scene.fixed_metrics()
    for variant in VARIANTS:
        metrics.set(variant.name, PodReport(kv_usage=0.5), model=variant.model)
    plane = scene.plane
    with counting(plane.prometheus_api.url, authority=plane.layout.authority) as proxy:
        scene.deploy(*VARIANTS[:1])
        scene.declare(*VARIANTS[:1])
        environment = {"PROMETHEUS_BASE_URL": proxy.url, "PROMETHEUS_ALLOW_HTTP": "true"}
        controller = scene.start_controller(environment=environment)
        _wait_settled(scene, VARIANTS[:1])
        for_one = _watch_quiet_cycles(scene, controller, proxy)

        before = _status_patches(scene)
        scene.deploy(*VARIANTS[1:])
        scene.declare(*VARIANTS[1:])
        _wait_settled(scene, VARIANTS)
        assert _status_patches(scene) - before >= len(VARIANTS) - 1, "patches are not counted where we look"
        for_twenty = _watch_quiet_cycles(scene, controller, proxy)
        assert for_twenty == for_one
        assert max(proxy.queries_by_cycle()) <= MAX_QUERIES


def _wait_settled(scene: Scene, variants: list[ManifestedVariant]) -> None:
    """Wait until every status says that the number is measured and reached."""
    for variant in variants:
        for type_, status in (("MetricsAvailable", "True"), ("OptimizationReady", "True"), ("Progressing", "False")):
            scene.wait(
                lambda variant=variant, type_=type_, status=status: (
                    scene.condition(variant.name, type_).status == status
                ),
                timeout_seconds=60,
                what=f"{type_}={status} of {variant.name}",
            )


def _watch_quiet_cycles(scene: Scene, controller: ControllerProcess, proxy: CountingProxy) -> set[int]:
    """Let some cycles pass, assert that no status was patched, and return how many queries the cycles sent."""
    _wait_cycles(scene, controller, 1)  # the running cycle may have begun before the last change
    patches, seen = _status_patches(scene), len(proxy.queries_by_cycle())
    _wait_cycles(scene, controller, WATCHED_CYCLES)
    counts = proxy.queries_by_cycle()[seen - 1 :][:WATCHED_CYCLES]  # without the newest cycle, which may not be over
    assert len(counts) == WATCHED_CYCLES
    assert _status_patches(scene) == patches
    assert all(0 < count <= MAX_QUERIES for count in counts), counts
    return set(counts)


def _wait_cycles(scene: Scene, controller: ControllerProcess, count: int) -> None:
    goal = controller.metrics().total("wva_cycles_total", result="success") + count
    scene.wait(
        lambda: controller.metrics().total("wva_cycles_total", result="success") >= goal,
        timeout_seconds=(count + 2) * CYCLE_SECONDS,
        what=f"{count} cycles",
    )


def _status_patches(scene: Scene) -> float:
    """Return how many status patches of our kind the API server has answered."""
    page = MetricsPage(scene.api.metrics(), prefix="apiserver_request_total{")
    return page.total("apiserver_request_total", verb="PATCH", resource="variantautoscalings", subresource="status")
