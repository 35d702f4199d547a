"""Replicas that decisions count on no longer are told as late, with what keeps them."""

from __future__ import annotations

import pytest

from tests.builders import NAMESPACE, NOW, policy, variant
from tests.decide.story import BUSY, HOT, IDLE, Story
from wva.model.memory import Foresight
from wva.model.policy import Compatibility
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

DEADLINE = 600.0
STUCK = variant(replicas=4, ready_replicas=1, desired=4)


@pytest.fixture(params=[None, Compatibility.V0_5], ids=["engine", "v0.5"])
def story(request):
    """Return a story of either engine."""
    return Story(replace(policy(), compatibility=request.param))


def test_pods_past_the_deadline_are_late(story):
    """Three of four pods never become Ready: nothing is told until the deadline, and all three from then on."""
    story.cycle(STUCK, a=[BUSY])
    story.cycle(STUCK, after=DEADLINE - 1, a=[BUSY])
    assert story.late == {}
    decision = story.cycle(STUCK, after=DEADLINE, a=[BUSY])["a"]
    assert decision.desired == 4
    assert story.late["a"].reason == "ReplicasLate"
    assert story.late["a"].message == "3 of 4 replicas not Ready within the transition deadline"
    story.cycle(variant(replicas=4, desired=4), after=DEADLINE + 30, a=[BUSY] * 4)
    assert story.late == {}


def test_an_old_pod_is_late_although_its_sibling_made_progress():
    """A second pod becomes Ready, which starts the clock again. The pods that are left are as old as before."""
    story = Story()
    story.cycle(STUCK, a=[BUSY])
    further = replace(STUCK, ready_replicas=2, oldest_unready_since=NOW)
    decision = story.cycle(further, after=DEADLINE, a=[BUSY] * 2)["a"]
    assert (decision.desired, decision.settling_since) == (4, NOW + DEADLINE)
    words = "2 of 4 replicas not Ready, and the oldest of their pods is past the transition deadline"
    assert (story.late["a"].reason, story.late["a"].message) == ("ReplicasLate", words)


def learned(story, *starts):
    """Let the last pods of variant ``a`` have taken so long to start, in seconds."""
    model = ModelKey(NAMESPACE, "m")
    story.memory = replace(
        story.memory, foreseen=(Foresight(model, start_ups=((VariantKey(NAMESPACE, "a"), starts),)),)
    )


def together(story, seconds, starts, a=STUCK, b=None):
    """Decide on ``a``, whose pods began to start at 0, and on ``b``, after so many seconds."""
    learned(story, *starts)
    a = replace(a, oldest_unready_since=NOW)
    b = variant("b", cost=40.0) if b is None else b
    return story.cycle(a, b, after=seconds, a=[HOT], b=[HOT])


@pytest.mark.parametrize(("starts", "limit"), [((80.0, 100.0), 150), ((30.0, 20.0), 120), ((90.0, 380.0), 570)])
def test_pods_that_start_slower_than_ever_are_late_where_another_variant_can_serve(starts, limit):
    """Before the limit siblings wait for them; from then on a sibling grows instead."""
    story = Story()
    together(story, 0.0, starts)
    before = together(story, limit - 1.0, starts)
    assert (before["b"].desired, story.late) == (1, {})
    after = together(story, float(limit), starts)
    assert after["a"].desired == 4
    assert after["b"].desired > 1
    words = f"3 of 4 replicas not Ready within {limit} s, and the last ones took {max(starts):.0f} s at most"
    assert (story.late["a"].reason, story.late["a"].message) == ("ReplicasLate", words)


@pytest.mark.parametrize(
    ("a", "b", "starts"),
    [
        (STUCK, None, ()),
        (STUCK, None, (80.0,)),
        (STUCK, None, (500.0, 400.0)),
        (replace(STUCK, status_desired=5), None, (80.0, 70.0)),
        (STUCK, variant("b", maximum=1), (80.0, 70.0)),
    ],
    ids=[
        "nothing is known",
        "one start is known",
        "they start slowly",
        "the scaler has not created all",
        "no other variant may grow",
    ],
)
def test_else_the_deadline_counts(a, b, starts):
    """Pods are late when the transition deadline has passed, and not a second sooner."""
    story = Story()
    together(story, 0.0, starts, a, b)
    together(story, DEADLINE - 1.0, starts, a, b)
    assert story.late == {}


def test_a_scaler_that_does_not_create_the_replicas_is_told(story):
    """All replicas that exist are Ready, and the target is asked for fewer than the number."""
    unfollowed = variant(replicas=2, desired=3)
    story.cycle(unfollowed, a=[HOT] * 2)
    assert story.late == {}
    decision = story.cycle(unfollowed, after=DEADLINE, a=[HOT] * 2)["a"]
    assert decision.desired == 3
    words = "the number is 3, and after the transition deadline spec.replicas of the target is still 2"
    assert (story.late["a"].reason, story.late["a"].message) == ("ScalerNotFollowing", words)


def test_replicas_that_the_target_asks_for_in_vain_are_late():
    """The scaler has done its part, but a quota forbids the pods."""
    story = Story()
    refused = variant(replicas=2, desired=3, spec_replicas=3)
    story.cycle(refused, a=[HOT] * 2)
    story.cycle(refused, after=DEADLINE, a=[HOT] * 2)
    assert story.late["a"].message == "1 of 3 replicas not Ready within the transition deadline"


def test_replicas_that_nobody_asks_for_any_more_are_not_late():
    """The load has gone: the growth that was not reached in time is withdrawn."""
    story = Story()
    story.cycle(variant(), a=[HOT])
    decision = story.cycle(variant(), after=DEADLINE, a=[IDLE])["a"]
    assert decision.desired == 1
    assert story.late == {}


def test_a_shrink_that_its_scaler_delays_is_no_delay_of_replicas(story):
    """A scaler may shrink as slowly as its window says."""
    shrinking = variant(replicas=3, desired=1)
    for seconds in (0.0, DEADLINE, 2 * DEADLINE):
        story.cycle(shrinking, after=seconds, a=[IDLE] * 3)
    assert story.late == {}


@pytest.mark.parametrize(("count", "words"), [(1, "1 pod has no node to run on"), (2, "2 pods have no node to run on")])
def test_pods_without_a_node_are_told_at_once(story, count, words):
    """Decisions count on none of them, so nothing waits for the deadline."""
    story.cycle(replace(STUCK, unschedulable_pods=count), a=[BUSY])
    assert (story.late["a"].reason, story.late["a"].message) == ("PodsUnschedulable", words)


@pytest.mark.parametrize(("count", "words"), [(1, "1 pod fails"), (2, "2 pods fail")])
def test_pods_whose_containers_do_not_run_are_told_at_once(story, count, words):
    """The number stays as it is without this knowledge."""
    without = story.cycle(STUCK, a=[BUSY])["a"]
    why = "container vllm of pod a-1: CrashLoopBackOff"
    found = story.cycle(replace(STUCK, failing_pods=count, failure=why), a=[BUSY])["a"]
    assert (story.late["a"].reason, story.late["a"].message) == ("ContainersFailing", f"{words}: {why}")
    assert (found.desired, found.message) == (without.desired, without.message)


def test_a_variant_at_zero_waits_for_no_pod(story):
    """The pod that is left of it may have no node."""
    story.cycle(variant(replicas=0, unschedulable_pods=1, failing_pods=1))
    assert story.late == {}
