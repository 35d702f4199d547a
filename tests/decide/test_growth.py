"""When a model grows, and which of its variants grows."""

from __future__ import annotations

import pytest

from tests.builders import policy, stale, variant
from tests.decide.story import BUSY, FULL, HOT, IDLE, SILENT, TIGHT, Story, numbers, reasons
from wva.decide.failed import Outcome
from wva.model.decision import Action, Reason, Source
from wva.model.memory import Memory


def test_low_kv_spare_grows_the_only_variant():
    """Mean spare KV 0.05 is below the trigger 0.1: one replica more, with the words to it."""
    decision = Story().cycle(variant(replicas=2, cost=20), a=[TIGHT, TIGHT])["a"]
    assert (decision.desired, decision.reason, decision.source) == (3, Reason.SCALE_UP, Source.MEASURED)
    assert decision.action is Action.SCALE_UP
    assert decision.message == (
        "mean spare KV 0.05 below trigger 0.1 on 2 replicas; 1 replica more, the cheapest that can grow: a (cost 20)"
    )
    assert [(step.stage, step.before, step.after) for step in decision.steps] == [
        ("measure", 2, 2),
        ("allocate", 2, 3),
        ("settle", 3, 3),
    ]


def test_low_queue_spare_grows():
    """A mean queue of 3 leaves a spare of 2, below 3."""
    decision = Story().cycle(variant(replicas=2), a=[(0.1, 3), (0.1, 3)])["a"]
    assert decision.desired == 3
    assert "mean spare queue 2 below trigger 3 on 2 replicas" in decision.message


def test_both_shortages_are_named():
    """A user who reads the message sees all causes."""
    message = Story().cycle(variant(replicas=2), a=[(0.75, 3), (0.75, 3)])["a"].message
    assert "mean spare KV 0.05" in message
    assert "mean spare queue 2" in message


@pytest.mark.parametrize(("kv", "queue"), [(0.7, 0), (0.0, 2)])
def test_spare_at_the_trigger_does_not_grow(kv, queue):
    """The comparison is strict."""
    assert Story().cycle(variant(), a=[(kv, queue)])["a"].desired == 1


def test_cheapest_variant_grows_and_the_other_waits():
    """The cheaper variant grows, and the sibling's message names it."""
    story = Story()
    decisions = story.cycle(variant("a", cost=20), variant("b", cost=5), a=[FULL], b=[FULL])
    assert numbers(decisions) == {"a": 1, "b": 3}
    assert reasons(decisions) == {"a": "SiblingGrows", "b": "ScaleUp"}
    assert "b (cost 5)" in decisions["a"].message


def test_equal_costs_grow_the_variant_with_most_spare_kv():
    """Of variants at equal cost, the one whose replicas have the most room grows."""
    decisions = Story().cycle(variant("a"), variant("b"), a=[(0.79, 0)], b=[(0.74, 0)])
    assert numbers(decisions) == {"a": 1, "b": 2}


def test_equal_kv_spare_grows_the_variant_with_most_spare_queue():
    """The queue is the second tie-break."""
    decisions = Story().cycle(variant("a"), variant("b"), a=[(0.75, 2)], b=[(0.75, 1)])
    assert numbers(decisions) == {"a": 1, "b": 2}


def test_full_ties_grow_the_first_name():
    """The name is the last tie-break, so chance decides nothing."""
    assert numbers(Story().cycle(variant("b"), variant("a"), a=[TIGHT], b=[TIGHT])) == {"a": 2, "b": 1}


def test_a_variant_that_nobody_can_judge_grows_last_among_equals():
    """A variant without samples has no known room, and sorts behind every variant with known room."""
    decisions = Story().cycle(variant("a"), variant("b"), a=[SILENT], b=[HOT])
    assert numbers(decisions) == {"a": 1, "b": 2}


def test_variants_at_their_maximum_are_passed_over():
    """The next cheapest variant grows instead."""
    decisions = Story().cycle(variant("a", cost=5, maximum=1), variant("b", cost=50), a=[FULL], b=[FULL])
    assert numbers(decisions) == {"a": 1, "b": 3}


def test_nobody_left_to_grow_is_said_aloud():
    """A saturated model that cannot grow gives a reason for each variant."""
    decisions = Story().cycle(variant("a", replicas=2, maximum=2), variant("b", maximum=1), a=[FULL, FULL], b=[FULL])
    assert reasons(decisions) == {"a": "NoCandidate", "b": "NoCandidate"}
    assert "no variant can grow (a: at the maximum 2; b: at the maximum 1)" in decisions["a"].message
    assert numbers(decisions) == {"a": 2, "b": 1}


def test_growth_needs_only_partial_evidence():
    """Three of four replicas report and are full; WVA grows without waiting for the fourth."""
    decision = Story().cycle(variant(replicas=4), a=[FULL, FULL, FULL, SILENT])["a"]
    assert (decision.desired, decision.coverage.fresh, decision.coverage.expected) == (8, 3, 4)


def test_one_fresh_signal_is_enough_to_be_saturated():
    """A queue of 9 is too long whatever the KV usage is."""
    assert Story().cycle(variant(), a=[(None, 9)])["a"].reason is Reason.SCALE_UP
    assert Story().cycle(variant(), a=[(0.9, stale(0))])["a"].reason is Reason.SCALE_UP


def test_a_signal_without_any_fresh_sample_asks_for_nothing():
    """Unknown queues do not count as short of spare, and the known KV usage is low enough."""
    assert Story().cycle(variant(), a=[(0.1, None)])["a"].reason is Reason.METRICS_INCOMPLETE


def test_all_saturated_grows_whatever_the_triggers_are():
    """With triggers of 0 no mean is below them, but the model still has no room."""
    decision = Story(policy(kv_spare_trigger=0.0, queue_spare_trigger=0.0)).cycle(variant(), a=[FULL])["a"]
    assert decision.desired == 2
    assert "1 of 1 reporting replicas saturated" in decision.message


def test_models_do_not_influence_each_other():
    """Of two models, the full one grows and the idle one does not."""
    decisions = Story().cycle(variant("a", model="m"), variant("b", model="n"), a=[FULL], b=[IDLE])
    assert numbers(decisions) == {"a": 2, "b": 1}
    assert decisions["b"].reason is Reason.STEADY


def test_enough_spare_is_steady():
    """Nothing to do is a reason too, with the measurement in the first step."""
    decision = Story().cycle(variant(), a=[BUSY])["a"]
    assert (decision.desired, decision.reason) == (1, Reason.STEADY)
    assert decision.steps[0].reason == "1 of 1 replicas report, 0 saturated, mean spare KV 0.3, mean spare queue 4"


def test_a_cycle_that_asks_for_more_than_the_one_before_has_grown():
    """The first number of a variant is no growth, and neither is one that stays."""
    story, grew = Story(), []
    for usage in (IDLE, FULL, FULL):
        decisions = story.cycle(variant(), a=[usage])
        grew.append(Outcome(tuple(decisions.values()), Memory()).grew)
    assert grew == [False, True, False]
