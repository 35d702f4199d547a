"""The compatibility arithmetic equals that of v0.5.1 on every recorded case: analysis, targets and decisions.

The recording has replicas and states by the name of the variant; a variant may lack either. If no replica reports, the
recorded targets are the current replicas. WVA's engine computes no targets then, so ``numbers`` and ``unasked`` supply
the recorded answer.
"""

from __future__ import annotations

import pytest

from tests.builders import replica, standing, variant
from tests.golden.vectors import Case, near, parameters, tally, tally_of, worked_examples
from wva.decide.trust import VariantReadings
from wva.decide.v05 import Analysis, VariantLoad, analyze, decide_model, targets, usage
from wva.model.decision import Decision, Reason
from wva.model.policy import SaturationPolicy
from wva.model.variant import Variant

NAME = "saturation_v1"


@pytest.mark.long_story
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
    model = standings(case)
    analysis = analyze(model, policy)
    found = [each for each in decide_model(model, policy, None) if each.reason is Reason.COMPATIBILITY]
    expected = case["expected"]
    assert as_recorded(analysis, model, policy) == expected_analysis(expected["analysis"])
    assert numbers(analysis, model) == expected["targets"]
    variants = {each.key.name: each.progress.variant for each in model}
    recorded = [decision(each, variants[each.key.name]) for each in found] or [unasked(each) for each in model]
    assert recorded == expected_decisions(expected["decisions"])


@pytest.mark.parametrize("case", worked_examples("saturation_v1"), ids=lambda case: case["id"])
def test_worked_example(case):
    """Analysis and targets are those of the example."""
    tally_of("engine_vectors.json.gz saturation_v1").run += 1
    policy, model = SaturationPolicy(**case["config"]), standings(case)
    analysis = analyze(model, policy)
    found = {**as_recorded(analysis, model, policy), "targets": numbers(analysis, model)}
    for name, expected in case["expected"].items():
        assert found[name] == (near(expected) if isinstance(expected, float) else expected), name


def standings(case: Case) -> list[VariantReadings]:
    """Return the variants of a case with their pods, sorted by name."""
    states = {state["variant"]: state for state in case["states"]}
    rows: dict[str, list[Case]] = {name: [] for name in states}
    for row in case["replicas"]:
        rows.setdefault(row["variant"], []).append(row)
    return [_standing(name, states.get(name, {}), rows[name]) for name in sorted(rows)]


def _standing(name: str, state: Case, rows: list[Case]) -> VariantReadings:
    current = state.get("current", 0)
    found = variant(
        name,
        replicas=current,
        ready_replicas=current - state.get("pending", 0),
        desired=state.get("desired", 0),
        gpus_per_replica=state.get("gpus_per_replica", 1),
        accelerator=rows[0]["accelerator"] if rows else "",
        cost=rows[0]["cost"] if rows else 0.0,
    )
    pods = tuple(replica(row["pod"], variant=name, kv=row["kv"], queue=row["queue"]) for row in rows)
    return standing(found, pods)


def numbers(analysis: Analysis, model: list[VariantReadings]) -> dict[str, int]:
    """Return the targets; without a reporting replica the original's, which are the current replicas."""
    return targets(analysis) or {each.key.name: each.progress.current for each in model}


def as_recorded(analysis: Analysis, model: list[VariantReadings], policy: SaturationPolicy) -> Case:
    """Return an analysis with the names of the recording."""
    pods = {each.key: each.replicas for each in model}
    return {
        "total_replicas": sum(load.pods for load in analysis.loads),
        "non_saturated": analysis.open,
        "avg_spare_kv": analysis.spare_kv,
        "avg_spare_queue": analysis.spare_queue,
        "should_scale_up": bool(analysis.shortage),
        "scale_up_reason": analysis.shortage,
        "scale_down_safe": analysis.may_shrink,
        "variants": [_load(load, pods[load.variant.key], policy) for load in analysis.loads],
    }


def _load(load: VariantLoad, pods, policy: SaturationPolicy) -> Case:
    usages = [(pod.pod, usage(pod)) for pod in pods]
    full, long = policy.kv_cache_threshold, policy.queue_length_threshold
    return {
        "variant": load.variant.key.name,
        "accelerator": load.variant.accelerator,
        "cost": load.variant.cost,
        "replica_count": load.pods,
        "non_saturated": load.open,
        "max_kv": max(kv for _, (kv, _) in usages),
        "max_queue": max(queue for _, (_, queue) in usages),
        "avg_spare_kv": load.spare_kv,
        "avg_spare_queue": load.spare_queue,
        "saturated_pods": [name for name, (kv, queue) in usages if kv >= full or queue >= long],
    }


def expected_analysis(row: Case) -> Case:
    """Return a recorded analysis with matchers for its floats."""
    return {**floats(row), "variants": [floats(variant) for variant in row["variants"]]}


def floats(row: Case) -> Case:
    """Replace the means by matchers."""
    return {key: near(value) if key.startswith(("avg_", "max_", "cost")) else value for key, value in row.items()}


def decision(found: Decision, seen: Variant) -> Case:
    """Return a decision with the names of the recording."""
    return {
        "variant": found.key.name,
        "action": found.action.value,
        "current": found.current,
        "target": found.desired,
        "desired": seen.status_desired,
        "accelerator": seen.accelerator,
        "cost": found.cost,
        "spare_capacity": found.spare_capacity,
        "gpus_per_replica": max(1, seen.gpus_per_replica),
        "reason": found.message.split(";")[0],
    }


def unasked(standing: VariantReadings) -> Case:
    """Return the original's decision on a variant of a model without any reporting replica."""
    seen = standing.progress.variant
    return {
        "variant": seen.key.name,
        "action": "no-change",
        "current": seen.current_replicas,
        "target": seen.current_replicas,
        "desired": seen.status_desired,
        "accelerator": "",
        "cost": 0.0,
        "spare_capacity": 0.0,
        "gpus_per_replica": max(1, seen.gpus_per_replica),
        "reason": "saturation-only mode: no-change",
    }


def expected_decisions(rows: list[Case]) -> list[Case]:
    """Return recorded decisions with matchers for their floats."""
    floating = ("cost", "spare_capacity")
    return [{key: near(value) if key in floating else value for key, value in row.items()} for row in rows]
