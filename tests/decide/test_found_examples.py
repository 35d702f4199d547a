"""Cycles on which a property of the whole pipeline once failed, each as the test found it."""

from __future__ import annotations

import pytest

from tests.builders import NOW, sample, variant
from tests.decide.pipelines import (
    COST_AWARE,
    GREEDY,
    HYBRID,
    HYBRID_TOKENS,
    KINDS,
    PROFILES,
    QUEUEING,
    QUEUEING_GREEDY,
    TARGETS,
    PipelineKind,
    known_for_long,
    policy_of,
    under,
)
from tests.decide.queueing.samples import steady
from wva.decide.pipeline import decide
from wva.hindsight.cycle import Recording
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import Memory, VariantMemory
from wva.model.metrics import ReplicaMetrics
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, QueueingPolicy, QueueingRules, ScaleToZeroEntry, ScaleToZeroRules
from wva.model.records import replace
from wva.model.snapshot import RequestCounts, Snapshot
from wva.model.variant import ModelKey, Variant

MODEL = ModelKey("ns", "m")


def cycle(kind: PipelineKind, *, load: float, **numbers: int) -> Recording:
    """Return a cycle of equal variants with these numbers of replicas, which have reported the same for an hour."""
    variants: list[Variant] = [variant(name, replicas=count) for name, count in numbers.items()]
    pods = [ReplicaMetrics(f"{each.key.name}-{n}", each.key) for each in variants for n in range(each.current_replicas)]
    entries = tuple(VariantMemory(each.key, each.current_replicas, None, each.current_replicas) for each in variants)
    queueing = QueueingRules(QueueingPolicy(tuning_enabled=False) if kind.analyzer is Analyzer.QUEUEING else None)
    policy = replace(
        policy_of(kind, Policy()), queueing=queueing, profiles=PROFILES, service_targets=TARGETS, enable_limiter=True
    )
    memory = Memory(entries, known_for_long([MODEL]))
    snapshot = replace(Snapshot.of(variants, pods), inventory=Inventory.of([AcceleratorPool("A100", 1000, 0)]))
    found = under(Recording(NOW, policy, memory, snapshot), load)
    before = steady(found.snapshot, policy)
    return replace(found, memory=replace(memory, demand=before.demand, foreseen=before.foreseen))


def decided(recording: Recording) -> dict[str, int]:
    """Return the number of every variant."""
    decisions, _ = decide(recording.snapshot, recording.memory, recording.policy, recording.now)
    return {decision.key.name: decision.desired for decision in decisions}


@pytest.mark.parametrize("kind", [QUEUEING, HYBRID, HYBRID_TOKENS], ids=str)
def test_what_the_model_adds_goes_to_whoever_has_fewer(kind):
    """The queueing model once gave every replica to the first of equal variants, which then had two more."""
    assert decided(cycle(kind, load=0.9, a=2, b=1)) == {"a": 2, "b": 2}


@pytest.mark.parametrize("kind", [GREEDY, QUEUEING_GREEDY], ids=str)
def test_what_is_shared_among_models_is_shared_among_equal_variants(kind):
    """Sharing by score once gave every replica to the first of equal variants."""
    numbers = decided(cycle(kind, load=1.5, a=2, b=2, c=1))
    assert sum(numbers.values()) > 5
    assert max(numbers.values()) - min(numbers.values()) <= 1


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_shrink_takes_from_whoever_has_more(kind):
    """Equal variants stay equal, whatever shrinks their model."""
    numbers = decided(cycle(kind, load=0.05, a=3, b=4, c=4))
    assert sum(numbers.values()) < 11
    assert max(numbers.values()) - min(numbers.values()) <= 1


def test_an_idle_model_rests_whatever_is_known_of_its_capacity():
    """A model that holds no requests, with none waiting, may go to zero; its capacity does not matter."""
    recording = cycle(COST_AWARE, load=0.0, a=2)
    first, second = recording.snapshot.replicas
    blind = replace(second, engine=replace(second.engine, kv_capacity_tokens=sample(None)))
    allowed = ScaleToZeroRules(ScaleToZeroEntry("default", "", None, True, 600.0))
    snapshot = replace(
        recording.snapshot,
        replicas=(first, blind),
        request_counts=(RequestCounts(MODEL, 600.0, 0.0, 0.0, covered_seconds=600.0),),
    )
    policy = replace(recording.policy, scale_to_zero=allowed)
    assert decided(replace(recording, snapshot=snapshot, policy=policy)) == {"a": 0}
    unasked = replace(snapshot, request_counts=())
    assert decided(replace(recording, snapshot=unasked, policy=policy)) == {"a": 2}
