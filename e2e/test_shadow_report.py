"""``wva report --shadow`` on a real Prometheus: the counters of two leaders, one after the other, make one sum."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.controller import ControllerProcess
from e2e.load import PodReport
from e2e.manifests import ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene

VARIANT = ManifestedVariant(name="variant")
HOURS = "wva_shadow_hours_total"
_SECONDS_PER_HOUR = 3600.0


def test_leaders_that_follow_each_other_make_one_sum(scene: Scene, tmp_path: Path):
    """The second leader begins at 0, and the report has the time of both; the page is written."""
    scene.fixed_metrics().set(VARIANT.name, PodReport(kv_usage=0.5))
    scene.deploy(VARIANT)
    scene.wait_ready(VARIANT)
    scene.declare(VARIANT)
    annotation = {"metadata": {"annotations": {"wva.llmd.ai/mode": "shadow"}}}
    scene.api.patch("VariantAutoscaling", VARIANT.name, annotation, namespace=scene.namespace)
    first = scene.start_controller("--leader-elect", name="first")
    least = _counted(scene, first)
    second = scene.start_controller("--leader-elect", name="second")
    most = _hours(first)  # it went on counting
    first.process.stop()
    least += _counted(scene, second)
    page = tmp_path / "report.html"
    (found,) = _report(scene, page)["variants"]
    most += _hours(second)
    assert (found["namespace"], found["name"], found["model"]) == (scene.namespace, VARIANT.name, VARIANT.model)
    hours = found["sum"]["hours"]
    slack = 3 * CYCLE_SECONDS / _SECONDS_PER_HOUR  # before the first scrape, and after the last one
    assert least - slack <= hours <= most + slack
    assert least > 7 * CYCLE_SECONDS / _SECONDS_PER_HOUR, "both counted"
    gpu_hours = found["sum"]["gpu_hours"]
    assert gpu_hours["real"] == pytest.approx(hours * VARIANT.replicas * VARIANT.gpus, rel=0.3)
    assert "Content-Security-Policy" in page.read_text(encoding="utf-8")


def _counted(scene: Scene, controller: ControllerProcess) -> float:
    """Wait for a few cycles of a leader, and return the hours that it has counted and Prometheus has."""
    enough = 4 * CYCLE_SECONDS / _SECONDS_PER_HOUR
    scene.wait(lambda: _hours(controller) >= enough, timeout_seconds=60, what=f"{controller.name} counts")
    counted = _hours(controller)
    time.sleep(2 * scene.scrape_seconds)
    return counted


def _hours(controller: ControllerProcess) -> float:
    return controller.metrics().value(HOURS, variant_name=VARIANT.name) or 0.0


def _report(scene: Scene, page: Path) -> dict[str, Any]:
    """Run the command, and return its document."""
    where = ["--prometheus", scene.plane.prometheus_api.url, "--namespace", scene.namespace]
    where += ["--controller-namespace", scene.namespace]
    done = subprocess.run(
        [sys.executable, "-m", "wva", "report", "--shadow", *where, "--days", "2", "--output", "json", "--html", page],
        env={**os.environ, "PROMETHEUS_CA_CERT_PATH": str(scene.plane.layout.authority)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document
