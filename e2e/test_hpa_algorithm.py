"""The HorizontalPodAutoscaler of the simulation decides as kube-controller-manager does, with a metric of pods."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.custom_metrics import METRIC, PodMetric, custom_metrics
from e2e.manifests import ManifestedVariant
from e2e.scene import Scene
from wva.sim.rivals.hpa import Behavior, PerPod, SimulatedHpa

VARIANT = ManifestedVariant(name="variant", replicas=4, gpus=0)
TARGET = 500
"""In thousandths, as all values of this module."""
MAXIMUM = 12
AT_ONCE = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": MAXIMUM, "periodSeconds": 1}]}
BEHAVIOR = {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE}

STEPS = (
    (4, (1000, 1000, 1000, 1000), 8),  # twice the target
    (8, (200, 200, 200, 200), 6),  # pods without a value count as on target: 2.8 over 0.5
    (6, (1000, 1000, 1000), 6),  # counted as idle, pods without a value make up for the others: no change
    (6, (1000, 1000, 1000, 1000), 8),  # 4.0 over 0.5
    (8, (540, 540, 540, 540, 540, 540, 540, 540), 8),  # within the tolerance
    (8, (1000, 200, 200), 8),  # three pods ask for less; with five more on target the mean is within the tolerance
    (8, (), 8),  # nothing is known
    (8, (50, 50, 50, 50, 50, 50, 50, 50), 1),
)
"""Replicas, values of the first of their pods, and the replicas that the HPA then asks for."""


@pytest.mark.disruptive
@pytest.mark.timeout(400)
def test_both_ask_for_the_same(scene: Scene, tmp_path: Path) -> None:
    """Both ask for the same replicas in each step: growth, shrinking, tolerance, and pods without a value."""
    scene.deploy(VARIANT)
    scene.wait_ready(VARIANT)
    ours = SimulatedHpa(1, MAXIMUM, Behavior.parse(BEHAVIOR))
    with custom_metrics(scene.api, scene.namespace, tmp_path) as metric:
        on_target(scene, metric, replicas=4)
        scene.api.apply(scaler(scene.namespace))
        scene.wait(lambda: metric.asked, timeout_seconds=120, what="the HPA controller asks for the metric")
        for replicas, values, expected in STEPS:
            pods = on_target(scene, metric, replicas=replicas)
            time.sleep(1.5)  # longer than the period of the rates, which count what was before
            metric.values = dict(zip(pods, values, strict=False))
            wanted = ours.look(
                [PerPod([value / 1000 for value in values], TARGET / 1000, missing=replicas - len(values))],
                current=replicas,
                exists=replicas,
                now=time.monotonic(),
            )
            assert wanted == expected
            assert decided(scene, metric, before=replicas) == expected, values


def on_target(scene: Scene, metric: PodMetric, *, replicas: int) -> Sequence[str]:
    """Let all pods have the target's value, once there are so many, and return their names."""
    what = f"{replicas} ready pods"
    scene.wait(lambda: scene.ready_replicas(VARIANT.name) == replicas, timeout_seconds=30, what=what)
    found = scene.api.list("Pod", namespace=scene.namespace, labels=f"app={VARIANT.name}")
    pods = sorted(pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"])
    assert len(pods) == replicas
    metric.values = dict.fromkeys(pods, TARGET)
    return pods


def decided(scene: Scene, metric: PodMetric, *, before: int) -> int:
    """Return the replicas that the HPA sets, or keeps after it has read the metric twice. Then clear the metric.

    Without the metric, the HPA makes no further step with the new pods, which have no value yet.
    """
    asked = metric.asked
    deadline = time.monotonic() + 30.0
    while metric.asked < asked + 2 and scene.replicas(VARIANT.name) == before:
        assert time.monotonic() < deadline, "the HPA controller asks no more"
        time.sleep(0.1)
    metric.values = {}
    return scene.replicas(VARIANT.name)


def scaler(namespace: str) -> dict[str, object]:
    """Describe the HPA."""
    target = {"type": "AverageValue", "averageValue": f"{TARGET}m"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": VARIANT.name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": VARIANT.name},
            "minReplicas": 1,
            "maxReplicas": MAXIMUM,
            "behavior": BEHAVIOR,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": target}}],
        },
    }
