"""The queueing model on the real control plane: alone for latency targets, and beside the percentage analyzer (HYBRID).

The ConfigMaps give the model its input: targets by service class, and the speed of an engine. The simulated engines
have this speed, so the latencies of their users can be compared with what the model computes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from e2e.controller import ControllerProcess
from e2e.load import Lengths
from e2e.manifests import SATURATION_CONFIG_MAP, SERVICE_CLASSES_CONFIG_MAP, ManifestedVariant
from e2e.scene import Scene
from wva.model.records import replace
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.traffic.lengths import TokenLengths

QUEUEING_CONFIG_MAP = "wva-queueing-model-config"
PERFORMANCE_CONFIG_MAP = "wva-model-performance-config"
CHAT = ManifestedVariant(name="chat", model="demo/chat", accelerator="L40S", cost=5)
CODE = ManifestedVariant(name="code", model="demo/code", accelerator="L40S", cost=5)
ENGINE = EngineParameters(
    alpha_seconds=0.02,
    beta_seconds_per_sequence=0.0005,
    prefill_seconds_per_token=0.000002,
    num_gpu_blocks=24576,
    max_num_seqs=256,
)
LENGTHS = Lengths(TokenLengths(128, sigma=0.3), TokenLengths(64, sigma=0.3))
# A request that is computed with 31 others has an ITL of 36 ms and stays for 2.3 s, so one replica takes about 14
# requests per second within the target, and the KV cache is nearly empty.
TTFT_MILLISECONDS, ITL_MILLISECONDS = 500, 36
LOW_RATE, HIGH_RATE, NEEDED = 4.0, 32.0, 3
AS_CONFIGURED = {"default": "tuningEnabled: false"}
GONE_FOR_A_MINUTE = "keepWarm: 1m"  # WVA keeps replicas for past demand one minute instead of three
# A request that arrives during a step of the engine waits for the end of the step.
STEP_IS_NO_QUEUE = "analyzerName: percentage\nqueueLengthThreshold: 15"
# Twice what keeps the target. Nothing waits and the KV cache is nearly empty: saturation has no reason to grow.
LATE_RATE = 18.0
# Its KV cache holds about 12 requests. With 6.5 per second eight are inside in the mean, and now and then ten or more:
# saturation grows. Its targets are wide, and so few wait that what the queueing model needs stays below that.
SMALL = replace(ENGINE, num_gpu_blocks=128, max_model_len=1024)
FULL_RATE = 6.5
IDLE_RATE = 0.5


@dataclass(frozen=True, slots=True)
class Explained:
    """A variant's number on one page of metrics, with its reason and the number after each stage."""

    desired: int
    reason: str
    stages: dict[str, int]


def test_replicas_follow_latency_targets(scene: Scene):
    """The queueing ConfigMap selects the analyzer. WVA adds replicas to meet the targets, and removes them later."""
    _tell(scene, {CHAT.model: (TTFT_MILLISECONDS, ITL_MILLISECONDS)})
    scene.configure(QUEUEING_CONFIG_MAP, AS_CONFIGURED)
    scene.configure(SATURATION_CONFIG_MAP, {"default": GONE_FOR_A_MINUTE})
    fleet = scene.fleet()
    fleet.add(CHAT, ENGINE)
    fleet.offer(LOW_RATE, model=CHAT.model, lengths=LENGTHS)
    scene.deploy(CHAT)
    scene.wait_ready(CHAT)
    scene.declare(CHAT)
    scene.scale_by_keda(CHAT)
    scene.start_controller()
    scene.wait_measured(CHAT)

    fleet.offer(HIGH_RATE, model=CHAT.model)
    late = "latencies beyond the targets"
    scene.wait(lambda: _itl(scene) > ITL_MILLISECONDS, timeout_seconds=60, what=late)
    scene.wait(lambda: scene.ready_replicas(CHAT.name) >= NEEDED, timeout_seconds=120, what="growth to the targets")
    scene.wait(
        lambda: _ttft(scene) <= TTFT_MILLISECONDS and _itl(scene) <= ITL_MILLISECONDS,
        timeout_seconds=120,
        what="latencies within the targets",
    )
    targets = f"within TTFT {TTFT_MILLISECONDS} ms and ITL {ITL_MILLISECONDS} ms (its service class)"
    growth = scene.events("ScaleUpRecommended")
    assert any("requests/s arrive" in message and targets in message for message in growth), growth

    fleet.offer(LOW_RATE, model=CHAT.model)
    scene.wait(lambda: scene.replicas(CHAT.name) == 1, timeout_seconds=180, what="shrink with the load")
    fall = scene.events("ScaleDownRecommended")
    assert any("1 replica can carry the load" in message and targets in message for message in fall), fall
    assert targets in scene.condition(CHAT.name, "OptimizationReady").message
    assert _itl(scene) <= ITL_MILLISECONDS


def test_the_larger_of_two_needs_counts(scene: Scene):
    """HYBRID: the queueing model's need counts where users wait, the percentage analyzer's where memory is short.

    The step ``measure`` of both decisions names both needs, the larger one first.
    """
    _tell(scene, {CHAT.model: (TTFT_MILLISECONDS, ITL_MILLISECONDS), CODE.model: (60_000, 5_000)})
    scene.configure(QUEUEING_CONFIG_MAP, AS_CONFIGURED)  # the models' own entries keep their analyzer
    entries = {variant.name: f"model_id: {variant.model}\nanalyzerName: percentage" for variant in (CHAT, CODE)}
    scene.configure(SATURATION_CONFIG_MAP, {"default": STEP_IS_NO_QUEUE, **entries})
    fleet = scene.fleet()
    for variant, engine in ((CHAT, ENGINE), (CODE, SMALL)):
        fleet.add(variant, engine)
        fleet.offer(IDLE_RATE, model=variant.model, lengths=LENGTHS)
    scene.deploy(CHAT, CODE)
    scene.wait_ready(CHAT, CODE)
    scene.declare(CHAT, CODE)
    scene.scale_by_keda(CHAT, CODE)
    environment = {"EXPERIMENTAL_PROACTIVE_MODEL": "true", "LOG_LEVEL": "debug"}
    controller = scene.start_controller(environment=environment)
    scene.wait_measured(CHAT, CODE)

    fleet.offer(LATE_RATE, model=CHAT.model)
    fleet.offer(FULL_RATE, model=CODE.model)
    for name, seen in _wait_grown(scene, controller, CHAT.name, CODE.name).items():
        assert seen.stages["measure"] == 1, (name, seen)
        assert seen.stages["allocate"] == seen.stages["settle"] == seen.desired, (name, seen)
    for variant in (CHAT, CODE):
        scene.wait(lambda name=variant.name: scene.ready_replicas(name) >= 2, timeout_seconds=60, what="growth")
    late, full = _first_growth(controller, CHAT.name), _first_growth(controller, CODE.name)
    assert "requests/s arrive" in late.partition("Hybrid mode: ")[0], late
    assert "requests/s arrive" in full.partition("Hybrid mode: ")[2], full
    assert "KV" in full.partition("Hybrid mode: ")[0], full


def _tell(scene: Scene, targets: dict[str, tuple[int, int]]) -> None:
    """Write the service class with the targets (TTFT and ITL in ms) of the models, and how fast the engines are."""
    models = [
        f"  - model: {model}\n    slo-ttft: {ttft}\n    slo-tpot: {itl}\n" for model, (ttft, itl) in targets.items()
    ]
    premium = "name: Premium\npriority: 1\ndata:\n" + "".join(models)
    scene.configure(SERVICE_CLASSES_CONFIG_MAP, {"premium.yaml": premium})
    # The prompt is computed within one step, whose length follows from the batch like that of any other.
    speed = "acc: L40S\nalpha: 20\nbeta: 0.5\ngamma: 20\ndelta: 0.004\nmaxBatchSize: 256\n"
    entries = {model.replace("/", "-"): f"model_id: {model}\n{speed}" for model in targets}
    scene.configure(PERFORMANCE_CONFIG_MAP, entries)


def _wait_grown(scene: Scene, controller: ControllerProcess, *names: str) -> dict[str, Explained]:
    """Wait until each variant has grown, and return what the metrics said then."""
    found: dict[str, Explained] = {}

    def grown() -> bool:
        for name in names:
            seen = _explained(controller, name)
            if seen.reason == "ScaleUp" and seen.desired > 1:
                found.setdefault(name, seen)
        return found.keys() == set(names)

    scene.wait(grown, timeout_seconds=120, what=f"growth of {names}")
    return found


def _first_growth(controller: ControllerProcess, name: str) -> str:
    """Return what the step ``measure`` of the first growth of a variant says, from the log."""
    for line in controller.process.log_path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line) if line.startswith("{") else {}
        if entry.get("reason") == "ScaleUp" and str(entry.get("variant", "")).endswith(f"/{name}"):
            return next(step for step in entry["steps"] if step.startswith("measure: "))
    return ""


def _explained(controller: ControllerProcess, variant: str) -> Explained:
    page = controller.metrics()
    name = {"variant_name": variant}
    return Explained(
        desired=int(page.value("wva_desired_replicas", **name) or 0),
        reason="".join(series.labels["reason"] for series in page.series("wva_desired_reason", **name)),
        stages={
            series.labels["stage"]: int(series.value) for series in page.series("wva_desired_step_replicas", **name)
        },
    )


def _itl(scene: Scene) -> float:
    return _mean_milliseconds(scene, "vllm:inter_token_latency_seconds")


def _ttft(scene: Scene) -> float:
    return _mean_milliseconds(scene, "vllm:time_to_first_token_seconds")


def _mean_milliseconds(scene: Scene, histogram: str) -> float:
    """Return the mean of the last 20 s. Without requests it is NaN, which is neither below nor above a target."""
    series = f'{{namespace="{scene.namespace}"}}[20s]'
    query = f"sum(rate({histogram}_sum{series})) / sum(rate({histogram}_count{series}))"
    found = scene.plane.prometheus_api.query(query)
    return 1000 * found[0].value if found else float("nan")
