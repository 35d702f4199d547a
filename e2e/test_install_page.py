"""The page for newcomers: the test copies every command from the page and runs it, from top to bottom."""

from __future__ import annotations

import re
import shlex
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e import tools
from e2e.conftest import Launch
from e2e.controlplane.api import Body
from e2e.controlplane.audit import refused
from e2e.external_metrics import external_metrics_adapter
from e2e.foreign_kinds import serve_monitors
from e2e.installed_chart import Release
from e2e.load import FixedMetrics, PodReport
from e2e.manifests import ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene
from e2e.test_prometheus_adapter import VALUES as ADAPTER
from tests.docs.commands import run_page, steps, workspace

PAGE = "docs/install.md"
DEPLOYMENTS = ("chat-h100", "chat-a100")
OWN = ManifestedVariant(name="own", model="acme/own", replicas=2, minimum=2, maximum=6)
"""What the reader has: a model, and an HPA that does not know WVA."""
RELEASE = "workload-variant-autoscaler"
LOCAL = ("baseURL", "tls", "token")
"""The settings that differ on this machine: the address of Prometheus and the paths of the mounted files."""


@pytest.fixture
def release(scene: Scene, tmp_path: Path) -> Iterator[Release]:
    """Give the release of the page. Afterwards delete its objects; no request of its accounts may have been refused."""
    namespace = f"wva-system-{uuid.uuid4().hex[:6]}"
    found = Release(scene.plane, RELEASE, namespace=namespace, directory=tmp_path)
    yield found
    found.stop()
    for name in (*DEPLOYMENTS, OWN.name, RELEASE):
        found.helm("uninstall", name, "--ignore-not-found")
    scene.api.delete("Namespace", namespace)
    assert not refused([scene.plane.layout.audit_log.parent], namespace=namespace)


@pytest.mark.disruptive
def test_page_from_top_to_bottom(scene: Scene, release: Release, launch: Launch, tmp_path: Path):
    """The page's commands alone install the controller, watch a model beside its HPA, take it over and give it back.

    Then they scale two variants, and remove all objects again.
    """
    serve_monitors(scene.api)
    metrics = scene.fixed_metrics()
    _report(metrics, PodReport(kv_usage=0.5))
    metrics.set(OWN.name, PodReport(kv_usage=0.5), model=OWN.model)
    scene.deploy(OWN)
    scene.api.apply(_own_hpa(scene.namespace))
    connection = release.connection()
    authority = tmp_path / "authority.crt"
    authority.write_text(connection["caCert"], encoding="utf-8")
    with external_metrics_adapter(scene.plane, ADAPTER, release.target):
        written = run_page(
            PAGE,
            environment={
                "KUBECONFIG": str(scene.plane.kubeconfig),
                "PATH": f"{_tools(tmp_path, release)}:/usr/bin:/bin",
                "PROMETHEUS_CA_CERT_PATH": str(authority),
            },
            directory=workspace(tmp_path / "repository"),
            yours={
                "WVA_NS": release.namespace,
                "MODELS_NS": scene.namespace,
                "MON_NS": release.namespace,
                "PROMETHEUS_URL": connection["baseURL"],
                "PROMETHEUS_CA": str(authority),
                "IMAGE": "registry.example/wva:0.6.0",
                "MODEL": OWN.model,
                "DEPLOYMENT": OWN.name,
                "PROMETHEUS": connection["baseURL"],
            },
            events={
                "the controller runs": lambda: _start(release, scene, launch),
                "a minute passes": lambda: _counted(scene),
                "that model goes": lambda: _gone(scene),
                "the controller stops": release.stop,
                "load comes": lambda: _report(metrics, PodReport(kv_usage=0.85)),
            },
        )
    everything = "\n".join(written)
    assert re.search(r"would have \d+ replicas; 2 exist", everything)
    assert f"{scene.namespace}/own-{RELEASE}-va (model {OWN.model})" in everything
    assert "keepWarm: 30m" in everything
    assert '"metricName":"wva_desired_replicas"' in everything.replace(" ", "")
    assert "ImmutableConfigChangeRejected" in everything
    assert any(text.endswith("true") or "\ntrue" in text for text in written), "the ConfigMap was immutable"
    assert written[-1].count("variantautoscalings.llmd.ai") == 1, "the kind outlives the releases"


def test_page_says_why_a_block_is_not_run():
    """The test runs all blocks but those that need the network, the logs of pods or a container engine."""
    kinds = [step.kind for step in steps(PAGE)]
    assert kinds.count("not run") == 3
    assert kinds.count("cluster") > 12


def _start(release: Release, scene: Scene, launch: Launch) -> None:
    release.wait_available()
    release.start(scene, launch)


def _own_hpa(namespace: str) -> Body:
    """Describe the HPA that the reader has; this cluster has no metrics of pods, so it sets no number."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": OWN.name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": OWN.reference,
            "minReplicas": OWN.minimum,
            "maxReplicas": OWN.maximum,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }


def _counted(scene: Scene) -> None:
    """Wait until Prometheus has seen the counters of shadow mode grow."""
    grown = f'increase(wva_shadow_hours_total{{exported_namespace="{scene.namespace}"}}[5m]) > 0'
    scene.wait(lambda: scene.plane.prometheus_api.query(grown), timeout_seconds=90, what="a shadow that is counted")


def _gone(scene: Scene) -> None:
    """Assert that all is as it was, and take the model away, with what the rest of the page would wait for."""
    (hpa,) = scene.api.list("HorizontalPodAutoscaler", namespace=scene.namespace)
    assert (hpa["metadata"]["name"], hpa["spec"]["maxReplicas"]) == (OWN.name, OWN.maximum)
    scene.api.patch("Namespace", scene.namespace, {"metadata": {"annotations": {"wva.llmd.ai/mode": None}}})
    for kind, name in (
        ("HorizontalPodAutoscaler", OWN.name),
        ("VariantAutoscaling", f"{OWN.name}-{RELEASE}-va"),
        ("Deployment", OWN.name),
    ):
        scene.api.delete(kind, name, namespace=scene.namespace)


def _report(metrics: FixedMetrics, reading: PodReport) -> None:
    for name in DEPLOYMENTS:
        metrics.set(name, reading, model="acme/chat")


def _tools(directory: Path, release: Release) -> Path:
    """Return a folder with kubectl, wva, and a helm that adds the settings of this machine and a short interval."""
    folder = directory / "bin"
    folder.mkdir()
    (folder / "kubectl").symlink_to(tools.binary("kubectl"))
    local = directory / "local.yaml"
    connection = {key: value for key, value in release.connection().items() if key in LOCAL}
    values = {"wva": {"prometheus": connection, "reconcileInterval": f"{CYCLE_SECONDS}s"}}
    local.write_text(yaml.safe_dump(values), encoding="utf-8")
    helm = folder / "helm"
    real = shlex.quote(str(tools.binary("helm")))
    more = f"--values {shlex.quote(str(local))}"
    helm.write_text(
        f'#!/bin/sh\ncase "$1" in upgrade) exec {real} "$@" {more};; esac\nexec {real} "$@"\n', encoding="utf-8"
    )
    helm.chmod(0o755)
    wva = folder / "wva"
    wva.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m wva "$@"\n', encoding="utf-8")
    wva.chmod(0o755)
    return folder
