"""Helm installs the chart on the real control plane, and its controller scales."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import manifests, tools
from e2e.conftest import Launch
from e2e.controlplane.api import Body
from e2e.controlplane.audit import refused
from e2e.controlplane.cluster import ControlPlane
from e2e.external_metrics import external_metrics_adapter
from e2e.foreign_kinds import serve_monitors
from e2e.installed_chart import Release
from e2e.load import PodReport
from e2e.manifests import MODEL, ManifestedVariant
from e2e.packaging.chart import CHART, DEVELOPMENT
from e2e.packaging.chart_matrix import V0_5
from e2e.scene import CYCLE_SECONDS, Scene
from e2e.test_explain import READER, controller_pod, explain, reading
from e2e.test_prometheus_adapter import VALUES as ADAPTER

CHEAP = ManifestedVariant(name="cheap", cost=5, accelerator="L40S")
DEAR = ManifestedVariant(name="dear", cost=50, accelerator="H100", replicas=2)
BUSY, IDLE = PodReport(kv_usage=0.77), PodReport(kv_usage=0.1)
AT_ONCE = {"stabilizationWindowSeconds": 0}


@pytest.fixture
def home(own_control_plane: ControlPlane) -> Iterator[str]:
    """Give the namespace of the releases. Afterwards the API server must have refused no request of its accounts."""
    name = f"wva-system-{uuid.uuid4().hex[:6]}"
    own_control_plane.api.create(_restricted(name))
    yield name
    own_control_plane.api.delete("Namespace", name)
    assert not refused([own_control_plane.layout.audit_log.parent], namespace=name)


@pytest.fixture
def releases(own_control_plane: ControlPlane, home: str, tmp_path: Path) -> Iterator[list[Release]]:
    """Give two releases that are not installed yet, and uninstall them at the end."""
    names = [f"{part}-{uuid.uuid4().hex[:5]}" for part in ("first", "second")]  # ClusterRoles belong to all
    found = [Release(own_control_plane, name, namespace=home, directory=tmp_path) for name in names]
    serve_monitors(own_control_plane.api)
    yield found
    for release in found:
        release.stop()  # while it still has its rights
        release.helm("uninstall", release.name, "--ignore-not-found")


@pytest.mark.disruptive
def test_default_values_scale_two_variants(scene: Scene, releases: list[Release], launch: Launch):
    """With the chart's defaults two variants scale by plain HPAs: the dearer one shrinks, the cheaper one grows."""
    metrics = scene.fixed_metrics()
    scene.deploy(CHEAP, DEAR)
    scene.wait_ready(CHEAP, DEAR)
    first, second = releases
    first.install(_values(scene, first, CHEAP))
    second.install(_values(scene, second, DEAR, controller=False))
    first.wait_available()
    _report(metrics, IDLE)
    first.start(scene, launch)
    scene.wait(lambda: _measured(scene, releases), timeout_seconds=60, what="both variants measured")
    with external_metrics_adapter(scene.plane, ADAPTER, first.target):
        _shrinks_and_grows(scene, metrics, releases)


@pytest.mark.disruptive
def test_development_values_scale_by_keda(scene: Scene, releases: list[Release], launch: Launch):
    """With the values for development KEDA scales the two variants, and the log has readable lines."""
    metrics = scene.fixed_metrics()
    scene.deploy(CHEAP, DEAR)
    scene.wait_ready(CHEAP, DEAR)
    first, second = releases
    first.install({**_values(scene, first, CHEAP), "actuator": "keda"}, DEVELOPMENT)
    other = _values(scene, second, DEAR, controller=False)
    other["wva"]["metrics"] = {"job": first.target.job, "namespace": first.target.namespace}
    second.install({**other, "actuator": "keda"}, DEVELOPMENT)
    first.wait_available()
    _report(metrics, IDLE)
    controller = first.start(scene, launch)
    scene.wait(lambda: _measured(scene, releases), timeout_seconds=60, what="both variants measured")
    _shrinks_and_grows(scene, metrics, releases)
    assert not controller.log(1).startswith("{"), "the log is for people, not JSON"


@pytest.mark.disruptive
def test_objectives_of_the_values_reach_explain(scene: Scene, releases: list[Release], launch: Launch):
    """What the values ask for is in the condition, in the metric and in ``wva explain``, with its origin."""
    release, _ = releases
    scene.fixed_metrics().set(CHEAP.name, IDLE)
    scene.deploy(CHEAP)
    values = _values(scene, release, CHEAP)
    values["va"] |= {"sloTtft": 3000, "sloTpot": 50}
    release.install(values)
    controller = release.start(scene, launch)
    scene.wait(lambda: scene.source(release.variant) == "measured", timeout_seconds=60, what="the variant measured")

    first, between = "first token within 3 s (service class ", "between tokens 50 ms (service class "
    message = scene.condition(release.variant, "OptimizationReady").message
    assert first in message, message
    assert between in message, message
    page = controller.metrics()
    labels = {"variant_name": release.variant, "namespace": scene.namespace}
    names = ("first_token", "between_tokens")
    found = [page.value("wva_objective_seconds", **labels, objective=each) for each in names]
    assert found == [3.0, 0.05]
    scene.api.apply(manifests.service_account(READER, namespace=scene.namespace))
    for item in reading(READER, namespace=scene.namespace):
        scene.api.apply(item)
    restricted = release.deployment()["spec"]["template"]["spec"]
    scene.api.apply({**controller_pod(release.namespace), "spec": restricted})
    answer = explain(scene, f"{scene.namespace}/{release.variant}", controller_namespace=release.namespace)
    assert answer.returncode == 0, answer.stderr
    assert first in answer.stdout, answer.stdout
    assert between in answer.stdout, answer.stdout


def _values(scene: Scene, release: Release, variant: ManifestedVariant, *, controller: bool = True) -> dict[str, Any]:
    """Return the values that an operator must set, for Prometheus and the variant, and an HPA without long windows."""
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


def _report(metrics: Any, reading: PodReport) -> None:
    for variant in (CHEAP, DEAR):
        metrics.set(variant.name, reading)


def _measured(scene: Scene, releases: list[Release]) -> bool:
    return all(scene.source(release.variant) == "measured" for release in releases)


def _shrinks_and_grows(scene: Scene, metrics: Any, releases: list[Release]) -> None:
    """Idle first: after a load, its peak would count for a minute."""
    scene.wait(lambda: scene.replicas("dear") == 1, timeout_seconds=90, what="shrink of the dearer variant")
    _report(metrics, BUSY)
    scene.wait(lambda: scene.ready_replicas("cheap") >= 2, timeout_seconds=90, what="growth of the cheaper variant")
    grown = {change.variant for change in scene.history.changes() if change.new > change.old}
    assert grown == {releases[0].variant}


def test_values_of_0_5_0_run_in_one_namespace(scene: Scene, releases: list[Release], launch: Launch):
    """These values confine the controller to the namespace of its variant. The Roles there are enough for its work."""
    release, _ = releases
    scene.fixed_metrics().set(CHEAP.name, IDLE)
    scene.deploy(CHEAP)
    said = release.install(_values(scene, release, CHEAP), V0_5)
    assert f"watches {scene.namespace}\n" in said
    assert "WARNING: the certificate of Prometheus is not verified." in said
    controller = release.start(scene, launch)
    scene.wait(lambda: scene.source(release.variant) == "measured", timeout_seconds=60, what="the variant measured")
    assert controller.readiness()[0] == 200, controller.readiness()


@pytest.mark.disruptive
def test_upgrade_rollback_and_uninstall(scene: Scene, releases: list[Release]):
    """A release with version 0.5.0's values is upgraded by the documented steps. Its variants stay."""
    release, _ = releases
    values = {**_values(scene, release, CHEAP), "controller": {"enabled": True}}
    values["wva"]["reconcileInterval"] = "60s"
    release.install(values, V0_5)
    first = release.deployment()
    assert _interval(release) == "60s"
    mine = manifests.variant_autoscaling(DEAR, namespace=scene.namespace)
    scene.api.apply(mine)

    _make_older(scene)
    values["wva"]["reconcileInterval"] = "30s"
    release.upgrade(values, V0_5)
    assert _interval(release) == "30s"
    assert release.deployment()["metadata"]["generation"] == first["metadata"]["generation"], "a live setting"
    assert "Optimized" not in _columns(scene), "Helm does not upgrade the definition"
    _kubectl(release, "apply", "--server-side", "--force-conflicts", "--filename", CHART / "crds")
    assert "Optimized" in _columns(scene)

    values["wva"]["limitedMode"] = True
    values["wva"]["namespaceScoped"] = False
    release.upgrade(values, V0_5)
    assert release.deployment()["metadata"]["generation"] > first["metadata"]["generation"]
    release.rollback(1)
    assert _interval(release) == "60s"
    assert release.deployment()["spec"]["template"] == first["spec"]["template"]

    owned = release.objects()
    release.uninstall()
    left = [item for item in owned if scene.api.find(_kind(item), item["metadata"]["name"], namespace=_home(item))]
    assert [item["kind"] for item in left] == ["VariantAutoscaling"]
    assert scene.variant_autoscaling(DEAR.name)["spec"] == mine["spec"]
    release.install(values, V0_5)  # takes its variant over again


def _restricted(name: str) -> Body:
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _interval(release: Release) -> str:
    return release.config_map("variantautoscaling-config")["GLOBAL_OPT_INTERVAL"]


def _make_older(scene: Scene) -> None:
    """Take a column from the definition, as an older one lacks some."""
    definition = scene.api.get("CustomResourceDefinition", "variantautoscalings.llmd.ai")
    (version,) = definition["spec"]["versions"]
    columns = [column for column in version["additionalPrinterColumns"] if column["name"] != "Optimized"]
    patch = {"spec": {"versions": [{**version, "additionalPrinterColumns": columns}]}}
    scene.api.patch("CustomResourceDefinition", "variantautoscalings.llmd.ai", patch)


def _columns(scene: Scene) -> set[str]:
    definition = scene.api.get("CustomResourceDefinition", "variantautoscalings.llmd.ai")
    (version,) = definition["spec"]["versions"]
    return {column["name"] for column in version["additionalPrinterColumns"]}


def _kubectl(release: Release, *arguments: str | Path) -> None:
    tools.output("kubectl", "--kubeconfig", release.plane.kubeconfig, *arguments)


def _kind(item: Body) -> str:
    group, _, _ = item["apiVersion"].rpartition("/")
    return f"{item['kind']}.{group}" if group else str(item["kind"])


def _home(item: Body) -> str | None:
    namespace: str | None = item["metadata"].get("namespace")
    return namespace
