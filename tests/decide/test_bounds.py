"""WVA publishes no number that the scaler cannot reach."""

from __future__ import annotations

from tests.builders import variant
from tests.decide.story import BUSY, FULL, IDLE, Story
from wva.model.decision import Reason


def test_a_published_number_above_the_maximum_comes_down():
    """The scaler's maximum was lowered to 3, so a published 5 would never be reached."""
    decision = Story().cycle(variant(replicas=3, desired=5, maximum=3), a=[(0.6, 1)] * 3)["a"]
    assert (decision.desired, decision.reason) == (3, Reason.BOUNDED)
    assert decision.message.startswith("5 is above the maximum 3 of the scaler; ")
    assert (decision.steps[-1].stage, decision.steps[-1].before, decision.steps[-1].after) == ("settle", 5, 3)


def test_a_published_number_below_the_minimum_comes_up():
    """The number rises to the minimum; the variant is settled, because that many replicas exist."""
    decision = Story().cycle(variant(replicas=2, desired=1, minimum=2), a=[BUSY] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.BOUNDED)
    assert decision.message.startswith("1 is below the minimum 2 of the scaler; ")
    assert decision.settling_since is None


def test_a_number_out_of_reach_does_not_freeze_the_variant():
    """The variant is saturated at number 1 with two replicas and a minimum of 2: it grows at once."""
    decision = Story().cycle(variant(replicas=2, desired=1, minimum=2), a=[FULL] * 2)["a"]
    assert (decision.desired, decision.reason) == (4, Reason.SCALE_UP)


def test_an_idle_variant_published_above_its_maximum_shrinks():
    """The number is 4, the maximum 3, and three replicas are idle: the variant shrinks."""
    decision = Story().cycle(variant(replicas=3, desired=4, maximum=3), a=[IDLE] * 3)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.SCALE_DOWN)


def test_more_replicas_than_the_maximum_are_asked_to_go():
    """A user scaled the target by hand; the scaler will undo that."""
    decision = Story().cycle(variant(replicas=5, maximum=3), a=[FULL] * 5)["a"]
    assert (decision.desired, decision.reason) == (3, Reason.BOUNDED)


def test_a_held_number_is_bounded_too_but_stays_held():
    """The bounds change the number, but the reason stays that nothing was measured."""
    decision = Story().cycle(variant(replicas=3, desired=5, maximum=3), failure="refused")["a"]
    assert (decision.desired, decision.reason) == (3, Reason.PROMETHEUS_ERROR)
    assert decision.message.startswith("5 is above the maximum 3 of the scaler; refused")


def test_what_a_maximum_takes_away_is_no_part_of_what_serves():
    """Four of nine replicas leave because their pods find no node; the other variant takes their place."""
    at_most_one = variant("a", replicas=5, maximum=1, unschedulable_pods=1)
    decisions = Story().cycle(at_most_one, variant("b", replicas=4), a=[FULL] * 5, b=[FULL] * 4)
    assert decisions["a"].desired == 1
    assert decisions["b"].desired > 4
