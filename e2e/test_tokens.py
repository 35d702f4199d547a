"""The token analyzer on the real control plane: its queries to the real Prometheus, and its numbers."""

from __future__ import annotations

from e2e.counting_proxy import counting
from e2e.manifests import SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import Scene
from wva.sim.fleet.parameters import EngineParameters

SCALE_TO_ZERO_CONFIG_MAP = "wva-model-scale-to-zero-config"
MAX_QUERIES = 6
VARIANT = ManifestedVariant(name="chat", cost=5, accelerator="L40S")
ENGINE = EngineParameters(
    alpha_seconds=0.04,
    beta_seconds_per_sequence=0.00001,
    prefill_seconds_per_token=0.000002,
    num_gpu_blocks=24576,
    max_num_seqs=1024,
)
RATE, SURGE_RATE = 10.0, 150.0


def test_the_token_analyzer_sees_a_surge_with_six_queries_at_most(scene: Scene):
    """Six queries include those for scale to zero. The condition counts tokens, and the variant grows."""
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: saturation"})
    scene.configure(SCALE_TO_ZERO_CONFIG_MAP, {"default": "enable_scale_to_zero: true\nretention_period: 10m"})
    fleet = scene.fleet()
    fleet.add(VARIANT, ENGINE)
    scene.deploy(VARIANT)
    scene.wait_ready(VARIANT)
    fleet.offer(RATE)
    scene.declare(VARIANT)
    plane = scene.plane
    with counting(plane.prometheus_api.url, authority=plane.layout.authority) as proxy:
        scene.start_controller(environment={"PROMETHEUS_BASE_URL": proxy.url, "PROMETHEUS_ALLOW_HTTP": "true"})
        scene.wait_measured(VARIANT)
        fleet.offer(SURGE_RATE)
        scene.wait(
            lambda: "tokens missing" in scene.condition(VARIANT.name, "OptimizationReady").message,
            timeout_seconds=120,
            what="growth by tokens",
        )
        scene.wait(lambda: any(change.new > 1 for change in scene.history.changes()), timeout_seconds=30, what="growth")
        assert 4 < max(proxy.queries_by_cycle()) <= MAX_QUERIES
