"""To zero when nobody asks, and back for the first who does: KEDA, a gateway's queue and the controller together."""

from __future__ import annotations

import time

import pytest

from e2e.gateway import Gateway, gateway
from e2e.load import Reading
from e2e.manifests import MAIN_CONFIG_MAP, Variant
from e2e.scene import Scene

MODEL = Variant(name="model", minimum=0, loading="500ms")
ROUNDS = 20
WITHIN_SECONDS = 3.0
STAYS_SECONDS = 4.0
TAKEN_BACK = 2
"""How often KEDA may, in all rounds: it looks at Prometheus, then acts, and a start may fall in between."""
SCALE_TO_ZERO_CONFIG_MAP = "wva-model-scale-to-zero-config"
IDLE = Reading(kv_usage=0.0)


@pytest.mark.disruptive  # not to others: it measures times, and needs the machine for itself
@pytest.mark.timeout(1200)
def test_to_zero_and_back_twenty_times(scene: Scene):
    """Each time within three seconds of the first waiting request; what KEDA takes back is made again at once."""
    scene.configure(MAIN_CONFIG_MAP, {"GLOBAL_OPT_INTERVAL": "2s"})
    scene.configure(SCALE_TO_ZERO_CONFIG_MAP, {"default": "enable_scale_to_zero: true\nretention_period: 8s"})
    metrics = scene.fixed_metrics()
    metrics.set(MODEL.name, IDLE)
    scene.deploy(MODEL)
    scene.wait_ready(MODEL)
    scene.declare(MODEL)
    scene.scale_by_keda(MODEL)
    scene.start_controller()
    with gateway(scene, MODEL) as queue:
        rounds = [_round(scene, queue) for _ in range(ROUNDS)]
    took = [seconds for seconds, _ in rounds]
    print(f"from zero after {min(took):.2f} to {max(took):.2f} s, {sum(back for _, back in rounds)} taken back")
    assert max(took) <= WITHIN_SECONDS, took
    assert sum(back for _, back in rounds) <= TAKEN_BACK, rounds
    scene.assert_allowed()


def _round(scene: Scene, queue: Gateway) -> tuple[float, bool]:
    """Go to zero and back once; return the seconds until the replica was asked for, and whether KEDA took it back."""
    scene.wait(lambda: scene.replicas("model") == 0, timeout_seconds=90, what="scale to zero")
    time.sleep(1.0)
    queue.hold(2)
    asked = time.monotonic()
    scene.wait(lambda: scene.replicas("model") >= 1, timeout_seconds=30, what="start from zero")
    took = time.monotonic() - asked
    until = time.monotonic() + STAYS_SECONDS
    taken_back = False
    while time.monotonic() < until:
        taken_back = taken_back or scene.replicas("model") == 0
        time.sleep(0.1)
    scene.wait(lambda: scene.replicas("model") >= 1, timeout_seconds=5, what="the start made again")
    queue.hold(0)
    return took, taken_back
