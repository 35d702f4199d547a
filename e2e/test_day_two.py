"""The page for day two: the test copies every command from the page and runs it, from top to bottom."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from e2e import manifests, tools
from e2e.load import FixedMetrics, PodReport
from e2e.manifests import SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import Scene
from e2e.test_doctor import controller_pod
from tests.docs.commands import run_page

PAGE = "docs/day-two.md"
CHAT = ManifestedVariant(name="chat-a100", maximum=3)


@pytest.fixture
def metrics(scene: Scene) -> FixedMetrics:
    """Return what the pods report: half of what saturates them, by the percentage analyzer."""
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: percentage"})
    found = scene.fixed_metrics()
    found.set(CHAT.name, PodReport(0.5))
    return found


def test_the_page_from_top_to_bottom(scene: Scene, metrics: FixedMetrics, tmp_path: Path):
    """A variant is explained, examined, put into the shadow and back, and then scaled by the controller itself."""
    target = manifests.target(CHAT, namespace=scene.namespace)
    del target["spec"]["replicas"]
    scene.api.apply(target)
    url = scene.plane.prometheus_api.url
    scaled = manifests.scaled_object(CHAT, namespace=scene.namespace, url=url, target=scene.target)
    scaled["spec"]["fallback"] = {"failureThreshold": 3, "replicas": 1}
    scene.api.apply(scaled)
    scene.declare(CHAT)
    scene.api.apply(controller_pod(scene.namespace))
    controller = scene.start_controller("--leader-elect", environment={"WVA_DIRECT_ACTUATION": "true"})
    scene.wait_measured(CHAT)
    for kind in ("ClusterRoleBinding", "ClusterRole"):
        scene.cleanup(kind, "wva-reader")
    scene.wait(lambda: _active(scene), timeout_seconds=60, what="the HPA of KEDA has read the number")
    written = run_page(
        PAGE,
        environment={
            "KUBECONFIG": str(scene.plane.layout.kubeconfig("admin")),
            "PATH": f"{_commands(tmp_path, controller.addresses.metrics.rpartition(':')[2])}:/usr/bin:/bin",
            "PROMETHEUS_CA_CERT_PATH": str(scene.plane.layout.authority),
        },
        yours={"WVA_NS": scene.namespace, "MODELS_NS": scene.namespace, "PROMETHEUS": url},
        events={
            "a minute passes": lambda: _counted(scene),
            "load comes": lambda: metrics.set(CHAT.name, PodReport(0.79)),
        },
    )
    everything = "\n".join(written)
    assert f"{scene.namespace}/chat-a100: 1 replica (" in everything
    assert "smallest changes that give another number" in everything
    assert "1 variants looked at: 0 broken, 0 warnings" in everything
    assert "would have 1 replica; 1 exist" in everything
    (report,) = [text for text in written if text.startswith("What really ran")]
    assert f"{scene.namespace}/chat-a100 (model {CHAT.model})" in report
    assert "no samples on this day" in report
    _assert_real_is_shadow(report)
    assert "wva-direct-actuation" in written[-1]


def _counted(scene: Scene) -> None:
    """Wait until Prometheus has seen the counters of shadow mode grow."""
    grown = f'increase(wva_shadow_hours_total{{exported_namespace="{scene.namespace}"}}[5m]) > 0'
    scene.wait(lambda: scene.plane.prometheus_api.query(grown), timeout_seconds=60, what="a shadow that is counted")


def _assert_real_is_shadow(report: str) -> None:
    """Assert that the sum has hours, and that one replica ran where WVA would have run one."""
    (line,) = [text for text in report.splitlines() if text.startswith("  sum ")]
    hours, real, shadow, difference = line.split()[1:5]
    assert float(hours) >= 0.0
    assert (real, difference) == (shadow, "0.00")


def _active(scene: Scene) -> bool:
    (hpa,) = scene.api.list("HorizontalPodAutoscaler", namespace=scene.namespace)
    conditions = hpa.get("status", {}).get("conditions", [])
    return any(each["type"] == "ScalingActive" and each["status"] == "True" for each in conditions)


def _commands(directory: Path, port: str) -> Path:
    """Return a folder with kubectl, its plugin, and wva; both name the port that the metrics have on this machine."""
    folder = directory / "bin"
    folder.mkdir()
    (folder / "kubectl").symlink_to(tools.binary("kubectl"))
    wva = folder / "wva"
    python = shlex.quote(sys.executable)
    script = (
        f'#!/bin/sh\ncommand=$1\nshift\nport="--metrics-port {port}"\n[ "$command" = report ] && port=\n'
        f'exec {python} -m wva "$command" $port "$@"\n'
    )
    wva.write_text(script, encoding="utf-8")
    wva.chmod(0o755)
    (folder / "kubectl-wva").symlink_to(wva)
    return folder
