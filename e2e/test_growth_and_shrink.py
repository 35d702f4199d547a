"""The percentage analyzer with simulated load, vLLM metrics, Prometheus, controller, KEDA, HPA and Deployment."""

from __future__ import annotations

import time

import pytest

from e2e.load import FleetProcess
from e2e.manifests import SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene
from wva.sim.fleet.parameters import EngineParameters

CHEAP = ManifestedVariant(name="cheap", cost=5, accelerator="L40S")
DEAR = ManifestedVariant(name="dear", cost=50, accelerator="H100", replicas=2)
# Some hundred sequences at once, for about 11 s each: the usage of the KV cache then follows the rate within seconds
# and varies by a few percent only. 28 requests per second keep a good half of it in use, 35 seven tenths. Requests
# wait only for the end of a step of the engine: one or two, now and then six.
ENGINE = EngineParameters(
    alpha_seconds=0.04,
    beta_seconds_per_sequence=0.00001,
    prefill_seconds_per_token=0.000002,
    num_gpu_blocks=24576,
    max_num_seqs=1024,
)
STEADY_RATE, HIGH_RATE = 28.0, 35.0  # per replica
SATURATION = "analyzerName: percentage\nqueueLengthThreshold: 15"  # by the default, 5, a step would count as a queue


@pytest.mark.smoke
def test_growth_under_load_and_shrink_after_it(scene: Scene):
    """With two variants of a model the cheapest grows first, and when the load ends the dearest shrinks first."""
    scene.configure(SATURATION_CONFIG_MAP, {"default": SATURATION})
    fleet = scene.fleet()
    for variant in (CHEAP, DEAR):
        fleet.add(variant, ENGINE)
    scene.deploy(CHEAP, DEAR)
    scene.wait_ready(CHEAP, DEAR)
    fleet.offer(STEADY_RATE * 3)
    scene.wait(lambda: _usage(scene) > 0.52, timeout_seconds=60, what="KV usage of a steady load")

    scene.declare(CHEAP, DEAR)
    scene.scale_by_keda(CHEAP, DEAR)
    scene.start_controller()
    scene.wait_measured(CHEAP, DEAR)
    time.sleep(2 * CYCLE_SECONDS)  # a load that fits changes nothing
    assert not scene.history.changes()

    fleet.offer(HIGH_RATE * 3)
    scene.wait(lambda: scene.ready_replicas("cheap") >= 2, timeout_seconds=120, what="growth of the cheaper variant")
    growth = scene.history.changes()
    assert growth, "replicas came without a published number"
    assert {change.variant for change in growth} == {"cheap"}
    assert all(change.new == change.old + 1 for change in growth)

    _end_load(scene, fleet)
    falls = [change for change in scene.history.changes() if change.new < change.old]
    assert all(change.new == change.old - 1 for change in falls)
    order = [change.variant for change in falls]
    assert order == ["dear"] + ["cheap"] * (len(order) - 1), order
    assert all(change.variant == "cheap" for change in scene.history.changes() if change.new > change.old)
    assert {"ScaleUpRecommended", "ScaleDownRecommended"} <= _events(scene)


def _end_load(scene: Scene, fleet: FleetProcess) -> None:
    """Stop the load and wait until one replica of each variant is left; peaks count for a minute."""
    fleet.offer(0)
    scene.wait(lambda: scene.replicas("dear") == 1, timeout_seconds=150, what="shrink of the dearer variant")
    scene.wait(lambda: scene.replicas("cheap") == 1, timeout_seconds=120, what="shrink of the cheaper variant")


def _usage(scene: Scene) -> float:
    query = f'avg(vllm:kv_cache_usage_perc{{namespace="{scene.namespace}"}})'
    return sum(sample.value for sample in scene.plane.prometheus_api.query(query))


def _events(scene: Scene) -> set[str]:
    """Return the reasons of the events about our variants."""
    return {
        event["reason"]
        for event in scene.api.list("Event", namespace=scene.namespace)
        if event["involvedObject"]["kind"] == "VariantAutoscaling"
    }
