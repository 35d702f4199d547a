"""A variant goes to zero, and comes back for the first request: KEDA, a gateway's queue and the controller."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from e2e.controlplane.polling import eventually
from e2e.gateway import PickerProcess, gateway
from e2e.load import PodReport
from e2e.manifests import MAIN_CONFIG_MAP, ManifestedVariant
from e2e.scene import Scene

MODEL = ManifestedVariant(name="model", minimum=0, loading="500ms")
ROUNDS = 20
WITHIN_SECONDS = 3.0
STAYS_SECONDS = 4.0
KEDA_POLLING_SECONDS = 1
"""The shortest interval of KEDA: it polls every second, so it also polls while a start is under way."""
SCRAPE_SECONDS = 1
"""The scrape interval that the documentation asks for, so that KEDA takes no start back."""
SCALE_TO_ZERO_CONFIG_MAP = "wva-model-scale-to-zero-config"
IDLE = PodReport(kv_usage=0.0)


@dataclass(frozen=True, slots=True)
class WakingRound:
    """The seconds until the replica was asked for, and every number of replicas asked for from then on."""

    took_seconds: float
    asked: tuple[int, ...]


@pytest.mark.disruptive  # it breaks no other test, but it measures times and needs the machine for itself
@pytest.mark.timeout(1200)
def test_to_zero_and_back_twenty_times(scene: Scene):
    """Each start comes within three seconds of the first waiting request, and KEDA takes no start back."""
    scene.configure(MAIN_CONFIG_MAP, {"GLOBAL_OPT_INTERVAL": "2s"})
    scene.configure(SCALE_TO_ZERO_CONFIG_MAP, {"default": "enable_scale_to_zero: true\nretention_period: 8s"})
    metrics = scene.fixed_metrics()
    metrics.set(MODEL.name, IDLE)
    scene.deploy(MODEL)
    scene.wait_ready(MODEL)
    scene.declare(MODEL)
    scene.scale_by_keda(MODEL)
    scene.scrape_seconds = SCRAPE_SECONDS
    scene.start_controller()
    with gateway(scene, MODEL) as queue:
        rounds = [_round(scene, queue, part=number / ROUNDS) for number in range(ROUNDS)]
    took = [each.took_seconds for each in rounds]
    print(f"from zero after {min(took):.2f} to {max(took):.2f} s")
    assert max(took) <= WITHIN_SECONDS, took
    assert all(set(each.asked) == {1} for each in rounds), rounds
    scene.assert_allowed()


def _round(scene: Scene, queue: PickerProcess, *, part: float) -> WakingRound:
    """Go to zero and back once, while KEDA polls at this fraction of every second."""
    scene.wait(lambda: scene.replicas(MODEL.name) == 0, timeout_seconds=90, what="scale to zero")
    _look_at(scene, part)
    time.sleep(1.0)
    queue.hold(2)
    asked = time.monotonic()
    eventually(lambda: scene.replicas(MODEL.name) >= 1, timeout_seconds=30, interval_seconds=0.05)
    took = time.monotonic() - asked
    started = scene.api.get("Deployment", MODEL.name, namespace=scene.namespace)
    time.sleep(STAYS_SECONDS)
    version = started["metadata"]["resourceVersion"]
    later = scene.api.changes("Deployment", namespace=scene.namespace, since=version)
    queue.hold(0)
    return WakingRound(took, tuple(state["spec"]["replicas"] for state in (started, *later)))


def _look_at(scene: Scene, part: float) -> None:
    """Let KEDA poll at this fraction of every second: a change of the ScaledObject restarts its polling."""
    time.sleep((part - time.time()) % 1.0)
    cooldown = 3 + round(part * ROUNDS) % 2
    spec = {"pollingInterval": KEDA_POLLING_SECONDS, "cooldownPeriod": cooldown}
    scene.api.patch("ScaledObject", MODEL.name, {"spec": spec}, namespace=scene.namespace)
