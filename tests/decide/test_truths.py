"""What a decision says in words is true of its cycle."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import NOW, variant
from tests.decide.pipelines import KINDS, cycles_of
from tests.decide.story import BUSY, IDLE, Story, snapshot
from tests.decide.test_replacements import MEASURED, A, B, SteadyAnalyzer
from wva.decide.measure import ANALYZERS
from wva.decide.measure.need import Capacity
from wva.decide.pipeline import decide
from wva.hindsight.cycle import Recording
from wva.model.decision import Reason
from wva.model.memory import Memory
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.variant import ModelKey

SHARE = 0.3


def waiting(recording: Recording, model: ModelKey) -> float:
    """Return how many requests wait for a model, as far as WVA knows."""
    keys = {each.key for each in recording.snapshot.variants if each.model == model}
    pods = [each.queue_length for each in recording.snapshot.replicas if each.variant in keys]
    queues = [each.size for each in recording.snapshot.queues if each.model == model]
    return math.fsum(each.fresh_value or 0.0 for each in (*pods, *queues))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=round(settings().max_examples * SHARE))
@given(data=st.data())
def test_words_are_true(kind, data):
    """No message says enough while requests wait, or blames GPUs where WVA does not count them."""
    recording = data.draw(cycles_of(kind))
    policy = recording.policy
    for decision in decide(recording.snapshot, recording.memory, policy, recording.now)[0]:
        if waiting(recording, decision.model) > 0:
            assert "enough capacity" not in decision.message
            assert "enough spare" not in decision.message
        if not policy.counts_gpus and kind.analyzer is not Analyzer.QUEUEING:
            assert "GPU" not in decision.message


def test_a_short_queue_is_told_instead_of_enough_capacity():
    """The percentage analyzer lets some requests wait at each replica, and the message says so."""
    decision = Story().cycle(variant(), a=[BUSY])["a"]
    assert decision.reason is Reason.STEADY
    assert decision.message.startswith("1 waiting in queues, which asks for no more replicas; 1 of 1 replicas report")


def test_a_replica_that_stays_because_of_the_tolerance_of_its_scaler_says_so(following):
    """One of twenty replicas could go, but an HPA takes three away or none."""
    carries = {A: Capacity(1.0, MEASURED)}
    found = following([17.3] * 20, variant("a", replicas=20), carries=carries)[-1]["a"]
    assert (found.desired, found.reason) == (20, Reason.STEADY)
    assert "enough capacity; its scaler ignores" not in found.message
    assert "1 replica less would do, but its scaler ignores a change of less than 3" in found.message


@pytest.fixture
def following(monkeypatch):
    """Return a function that decides on a demand every 15 s and returns all decisions by variant.

    Replicas are Ready in the next cycle.
    """

    def follow(demands, *variants, carries=None):
        policy = Policy(SaturationPolicy(analyzer_name=Analyzer.DEMAND))
        capacities = carries or {A: Capacity(3.0, MEASURED), B: Capacity(9.0, MEASURED)}
        memory, found = Memory(), []
        for turn, demand in enumerate(demands):
            monkeypatch.setitem(ANALYZERS, Analyzer.DEMAND, SteadyAnalyzer(demand, capacities))
            loads = {each.key.name: [IDLE] * each.ready_replicas for each in variants}
            decisions, memory = decide(snapshot(*variants, **loads), memory, policy, NOW + 15.0 * turn)
            found.append({decision.key.name: decision for decision in decisions})
            variants = tuple(
                replace(each, current_replicas=number, spec_replicas=number, ready_replicas=number)
                for each in variants
                for number in [found[-1][each.key.name].desired]
            )
        return found

    return follow


def test_what_stays_at_the_start_says_for_how_long(following):
    """The message is the same in each cycle, without a countdown."""
    first = following([4.0] * 20, variant("a", replicas=6))
    kept = [each["a"] for each in first if each["a"].reason is Reason.SHRINK_STABILIZED]
    assert {each.message for each in kept} == {
        "fewer replicas would carry the present demand; nothing shrinks before demand is known for 84 s"
    }
    assert [each["a"].reason for each in first].index(Reason.SCALE_DOWN) == 6


def test_what_stays_after_demand_has_fallen_says_for_how_long(following):
    """The message names two minutes, the assumed length of a start; then the replicas go."""
    found = [each["a"] for each in following([15.0] * 40 + [2.0] * 40, variant("a", replicas=7))]
    kept = [each for each in found if each.reason is Reason.SHRINK_STABILIZED]
    assert {each.message for each in kept[-7:]} == {
        "fewer replicas would carry the present demand; replicas stay for 120 s after demand has fallen"
    }
    assert (found[47].desired, found[47].reason) == (1, Reason.SCALE_DOWN)


def test_what_stays_for_a_demand_that_comes_back_says_so(following):
    """Much demand comes for five minutes in every twenty."""
    demands = ([15.0] * 20 + [2.0] * 60) * 5
    found = [each["a"] for each in following(demands, variant("a", replicas=7))]
    message = "demand often rises to what they carry, so replicas stay while that is likely"
    assert any(each.reason is Reason.SHRINK_STABILIZED and message in each.message for each in found[-60:])


def test_only_variants_that_could_go_say_that_they_stay(following):
    """The other variant is as small as it may be."""
    found = following([4.0] * 3, variant("a", replicas=6), variant("b"))[-1]
    assert {name: each.reason.value for name, each in found.items()} == {
        "a": "ScaleDownStabilized",
        "b": "Steady",
    }


def test_a_demand_that_stays_says_nothing_of_it(following):
    """From the third minute on WVA keeps no replica that the demand does not need."""
    found = [each["a"] for each in following([15.0] * 60, variant("a", replicas=6))]
    assert {each.reason for each in found[12:]} == {Reason.STEADY}


def test_a_withdrawn_shrink_that_covers_a_demand_is_no_lack_of_candidates(monkeypatch):
    """This also holds where capacities are known."""
    capacities = {A: Capacity(3.0, MEASURED), B: Capacity(9.0, MEASURED)}
    monkeypatch.setitem(ANALYZERS, Analyzer.DEMAND, SteadyAnalyzer(25.0, capacities))
    shrinking, other = variant("a", replicas=3, desired=2, cost=20), variant("b", replicas=2, cost=40)
    seen = snapshot(shrinking, other, a=[IDLE] * 3, b=[IDLE] * 2)
    policy = Policy(SaturationPolicy(analyzer_name=Analyzer.DEMAND))
    first, second = decide(seen, Memory(), policy, NOW)[0]
    assert (first.desired, first.reason, second.reason) == (3, Reason.SHRINK_WITHDRAWN, Reason.SIBLING_GROWS)
    assert "no variant can grow" not in first.message
    assert second.message.endswith("withdrawing the unfinished shrink of a covers that")
