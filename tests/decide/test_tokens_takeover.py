"""A change of leader under the token analyzer, through the whole of ``decide``: no number falls or jumps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, variant
from tests.decide.test_tokens_properties import learned_capacities, models
from tests.decide.tokens import pod
from wva.decide.measure.tokens import RELEARNING_SECONDS
from wva.decide.pipeline import decide
from wva.model.decision import Action
from wva.model.memory import CapacityMemory, EngineKind, K2History, LearnedCapacity, LengthBucket, Memory
from wva.model.policy import Analyzer, Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey

CYCLE_SECONDS = 30.0
POLICY = Policy(SaturationPolicy(analyzer_name=Analyzer.TOKENS))


def snapshot_of(reports) -> Snapshot:
    """Return a snapshot of the reports of variants."""
    return Snapshot.of(
        [report.progress.variant for report in reports], [pod for report in reports for pod in report.replicas]
    )


@given(models(queues=st.sampled_from([0.0, 1.0, 4.0, 5.0, 60.0, 1e9])), st.none() | learned_capacities())
def test_the_first_cycles_neither_shrink_nor_jump(reports, learned):
    """Whatever the predecessor knew, the new leader lowers no number and adds one replica at most."""
    snapshot = snapshot_of(reports)
    before = Memory(capacity=CapacityMemory(() if learned is None else (replace(learned, since=NOW),)))
    decisions, _ = decide(snapshot, before, POLICY, NOW)
    added = 0
    for decision in decisions:
        started_from = decision.current if decision.previous is None else decision.previous
        if decision.action is not Action.NO_CHANGE:
            assert decision.desired >= min(started_from, decision.current)
        added += max(0, decision.desired - max(1, decision.current, started_from))
    assert added <= 1


def test_a_number_held_down_by_k2_outlives_its_leader():
    """Six replicas are full at 8,000 tokens, as the predecessor knew; to a successor they look half empty."""
    model, kind = ModelKey("ns", "m"), EngineKind("A100", 1, 1, LengthBucket.SHORT)
    history = K2History(kind, (8_000,) * 5, NOW)
    informed = Memory(capacity=CapacityMemory((LearnedCapacity(model, NOW - 3600, (), (history,)),)))
    pods = [pod(f"a-{number}", kv=0.4) for number in range(6)]
    snapshot = Snapshot.of([variant("a", replicas=6, desired=6)], pods)
    numbers = []
    memory = informed
    for cycle in range(20):
        if cycle == 10:
            memory = Memory()
        decisions, memory = decide(snapshot, memory, POLICY, NOW + cycle * CYCLE_SECONDS)
        numbers.append(decisions[0].desired)
    assert numbers == [6] * 20
    late = NOW + 10 * CYCLE_SECONDS + RELEARNING_SECONDS
    decisions, _ = decide(snapshot, memory, POLICY, late)
    assert decisions[0].desired == 5
