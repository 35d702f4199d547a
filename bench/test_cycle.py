"""A cycle's decisions: the cost per model stays the same from 30 to 300 models."""

from __future__ import annotations

from bench.paired import cpu_seconds
from wva.decide.pipeline import decide
from wva.model.memory import Memory
from wva.model.metrics import ReplicaMetrics, Sample, SampleState
from wva.model.policy import Policy
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, Variant, VariantKey

NOW = 1_767_225_600.0
REPLICAS = 3


def _fresh(value: float) -> Sample:
    return Sample(SampleState.FRESH, value, NOW - 5)


def _snapshot(models: int) -> Snapshot:
    variants, replicas = [], []
    for number in range(models):
        model = ModelKey("llm", f"model-{number}")
        for cost, name in ((20.0, "a100"), (40.0, "h100")):
            key = VariantKey("llm", f"model-{number}-{name}")
            variant = Variant(
                key, model, key.name, name, cost, REPLICAS, current_replicas=REPLICAS, ready_replicas=REPLICAS
            )
            variants.append(variant)
            replicas += [
                ReplicaMetrics(f"{key.name}-{index}", key, _fresh(0.3 + 0.1 * index), _fresh(1.0))
                for index in range(REPLICAS)
            ]
    return Snapshot.of(variants, replicas)


def _seconds(models: int) -> float:
    snapshot = _snapshot(models)
    return min(cpu_seconds(lambda: decide(snapshot, Memory(), Policy(), NOW)) for _ in range(5))


def test_the_cost_of_a_decision_does_not_grow_with_the_fleet() -> None:
    """Ten times the models take at most fifteen times as long."""
    few, many = _seconds(30), _seconds(300)
    print(f"\n30 models: {few * 1e3:.1f} ms, 300 models: {many * 1e3:.1f} ms, ratio {many / few:.1f}")
    assert many / few < 15
