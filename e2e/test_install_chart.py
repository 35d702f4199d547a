"""The chart on the real control plane: installed by Helm from nothing, and its controller scales."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import Launch
from e2e.controlplane.audit import refused
from e2e.controlplane.cluster import ControlPlane
from e2e.external_metrics import external_metrics_adapter
from e2e.installed_chart import Release
from e2e.load import Reading
from e2e.manifests import MODEL, Variant
from e2e.packaging.chart import DEVELOPMENT
from e2e.scene import CYCLE_SECONDS, Scene
from e2e.test_prometheus_adapter import VALUES as ADAPTER

CHEAP = Variant(name="cheap", cost=5, accelerator="L40S")
DEAR = Variant(name="dear", cost=50, accelerator="H100", replicas=2)
STEADY, BUSY, IDLE = (Reading(kv_usage=usage) for usage in (0.5, 0.77, 0.1))
AT_ONCE = {"stabilizationWindowSeconds": 0}


@pytest.fixture
def home(own_control_plane: ControlPlane) -> Iterator[str]:
    """Give the namespace that releases are installed into; afterwards nobody of it may have been refused anything."""
    name = f"wva-system-{uuid.uuid4().hex[:6]}"
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    own_control_plane.api.create(namespace)
    yield name
    own_control_plane.api.delete("Namespace", name)
    assert not refused([own_control_plane.layout.audit_log.parent], namespace=name)


@pytest.fixture
def releases(own_control_plane: ControlPlane, home: str, tmp_path: Path) -> Iterator[list[Release]]:
    """Give two releases that are not installed yet; what is left of them is uninstalled at the end."""
    names = [f"{part}-{uuid.uuid4().hex[:5]}" for part in ("first", "second")]  # ClusterRoles belong to all
    found = [Release(own_control_plane, name, namespace=home, directory=tmp_path) for name in names]
    yield found
    for release in found:
        release.stop()  # while it still has its rights
        release.helm("uninstall", release.name, "--ignore-not-found")


@pytest.mark.disruptive
def test_default_values_scale_two_variants(scene: Scene, releases: list[Release], launch: Launch):
    """With the chart's defaults two variants grow and shrink by plain HPAs, the cheapest and the dearest first."""
    metrics = scene.fixed_metrics()
    scene.deploy(CHEAP, DEAR)
    scene.wait_ready(CHEAP, DEAR)
    first, second = releases
    first.install(_values(scene, first, CHEAP))
    second.install(_values(scene, second, DEAR, controller=False))
    first.wait_available()
    _report(metrics, STEADY)
    first.start(scene, launch)
    scene.wait(lambda: _measured(scene, releases), timeout_seconds=60, what="both variants measured")
    with external_metrics_adapter(scene.plane, ADAPTER):
        _grows(scene, metrics, releases)
        _shrinks(scene, metrics, releases)


def test_development_values_scale_by_keda(scene: Scene, releases: list[Release], launch: Launch):
    """With the values for development they grow by KEDA, and the log is for people."""
    metrics = scene.fixed_metrics()
    scene.deploy(CHEAP, DEAR)
    scene.wait_ready(CHEAP, DEAR)
    first, second = releases
    first.install({**_values(scene, first, CHEAP), "actuator": "keda"}, DEVELOPMENT)
    second.install({**_values(scene, second, DEAR, controller=False), "actuator": "keda"}, DEVELOPMENT)
    first.wait_available()
    _report(metrics, STEADY)
    controller = first.start(scene, launch)
    scene.wait(lambda: _measured(scene, releases), timeout_seconds=60, what="both variants measured")
    _grows(scene, metrics, releases)
    assert not controller.log(1).startswith("{"), "the log is for people, not JSON"


def _values(scene: Scene, release: Release, variant: Variant, *, controller: bool = True) -> dict[str, Any]:
    """Return what an operator must say: where Prometheus is and what the variant is; and nothing waits four minutes."""
    values: dict[str, Any] = {
        "controller": {"enabled": controller},
        "llmd": {"namespace": scene.namespace, "modelID": MODEL, "deploymentName": variant.name},
        "va": {"accelerator": variant.accelerator, "variantCost": f"{variant.cost:.1f}"},
        "vllmService": {"nodePort": 0},
        "hpa": {"behavior": {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE}},
        "wva": {"prometheus": release.connection()},
    }
    if controller:
        values["wva"]["reconcileInterval"] = f"{CYCLE_SECONDS}s"
    return values


def _report(metrics: Any, reading: Reading) -> None:
    for variant in (CHEAP, DEAR):
        metrics.set(variant.name, reading)


def _measured(scene: Scene, releases: list[Release]) -> bool:
    return all(scene.source(release.variant) == "measured" for release in releases)


def _grows(scene: Scene, metrics: Any, releases: list[Release]) -> None:
    _report(metrics, BUSY)
    scene.wait(lambda: scene.ready_replicas("cheap") >= 2, timeout_seconds=90, what="growth of the cheaper variant")
    assert {change.variant for change in scene.history.changes()} == {releases[0].variant}


def _shrinks(scene: Scene, metrics: Any, releases: list[Release]) -> None:
    _report(metrics, IDLE)
    scene.wait(lambda: scene.replicas("dear") == 1, timeout_seconds=150, what="shrink of the dearer variant")
    falls = [change.variant for change in scene.history.changes() if change.new < change.old]
    assert falls[0] == releases[1].variant
