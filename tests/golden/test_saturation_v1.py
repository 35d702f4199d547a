"""The compatibility arithmetic equals that of v0.5.1 on every recorded case: analysis, targets and decisions."""

from __future__ import annotations

import pytest

from tests.golden.vectors import Case, near, parameters, tally, tally_of, worked_examples
from wva.decide.analyze.saturation_v05 import analyze
from wva.decide.assessment_v05 import ModelLoad, ReplicaLoad, Target, VariantState
from wva.decide.optimize.one_step_v05 import targets
from wva.model.policy import SaturationPolicy

NAME = "saturation_v1"


@pytest.mark.parametrize("case", parameters(NAME))
def test_recorded_case(case):
    """Analysis, targets and decisions are those of the original."""
    tally(NAME).run += 1
    config = case["config"]
    policy = SaturationPolicy(
        config["kv_cache_threshold"],
        config["queue_length_threshold"],
        config["kv_spare_trigger"],
        config["queue_spare_trigger"],
    )
    analysis = analyze([replica_load(row) for row in case["replicas"]], policy)
    found = targets(analysis, [VariantState(**state) for state in case["states"]])
    expected = case["expected"]
    assert as_recorded(analysis) == expected_analysis(expected["analysis"])
    assert {target.variant: target.target for target in found} == expected["targets"]
    assert [decision(target) for target in found] == expected_decisions(expected["decisions"])


@pytest.mark.parametrize("case", worked_examples("saturation_v1"), ids=lambda case: case["id"])
def test_worked_example(case):
    """What an example says of analysis and targets."""
    tally_of("engine_vectors.json.gz saturation_v1").run += 1
    policy = SaturationPolicy(**case["config"])
    analysis = analyze([replica_load(row) for row in case["replicas"]], policy)
    found = as_recorded(analysis)
    states = [VariantState(**state) for state in case["states"]]
    found["targets"] = {target.variant: target.target for target in targets(analysis, states)}
    for name, expected in case["expected"].items():
        assert found[name] == (near(expected) if isinstance(expected, float) else expected), name


def replica_load(row: Case) -> ReplicaLoad:
    """Return a replica as the arithmetic takes it."""
    return ReplicaLoad(row["pod"], row["variant"], row["accelerator"], row["cost"], row["kv"], row["queue"])


def as_recorded(analysis: ModelLoad) -> Case:
    """Return an analysis in the words of the recording."""
    return {
        "total_replicas": analysis.total_replicas,
        "non_saturated": analysis.non_saturated,
        "avg_spare_kv": analysis.mean_spare_kv,
        "avg_spare_queue": analysis.mean_spare_queue,
        "should_scale_up": analysis.should_scale_up,
        "scale_up_reason": analysis.scale_up_reason,
        "scale_down_safe": analysis.scale_down_safe,
        "variants": [
            {
                "variant": load.variant,
                "accelerator": load.accelerator,
                "cost": load.cost,
                "replica_count": load.replica_count,
                "non_saturated": load.non_saturated,
                "max_kv": load.max_kv_usage,
                "max_queue": load.max_queue_length,
                "avg_spare_kv": load.mean_spare_kv,
                "avg_spare_queue": load.mean_spare_queue,
                "saturated_pods": list(load.saturated_pods),
            }
            for load in analysis.variants
        ],
    }


def expected_analysis(row: Case) -> Case:
    """Return a recorded analysis with matchers for its floats."""
    return {**floats(row), "variants": [floats(variant) for variant in row["variants"]]}


def floats(row: Case) -> Case:
    """Replace the means by matchers."""
    return {key: near(value) if key.startswith(("avg_", "max_", "cost")) else value for key, value in row.items()}


def decision(target: Target) -> Case:
    """Return a target in the words of the recording."""
    return {
        "variant": target.variant,
        "action": target.action,
        "current": target.current,
        "target": target.target,
        "desired": target.desired,
        "accelerator": target.accelerator,
        "cost": target.cost,
        "spare_capacity": target.spare_capacity,
        "gpus_per_replica": target.gpus_per_replica,
        "reason": target.reason,
    }


def expected_decisions(rows: list[Case]) -> list[Case]:
    """Return recorded decisions with matchers for their floats."""
    floating = ("cost", "spare_capacity")
    return [{key: near(value) if key in floating else value for key, value in row.items()} for row in rows]
