"""The Kubernetes events for the change from one decision to the next."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.builders import variant
from tests.publish.decisions import decision, decisions, held
from wva.model.decision import Aim, Reason, Source, Step
from wva.model.records import replace
from wva.publish.announce import announcements
from wva.publish.ledger import Ledger


def test_more_replicas_are_recommended():
    """A higher number gives a Normal event with both numbers, the message and the steps."""
    (event,) = announcements(decision(2), decision(4))
    assert event == (
        "Normal",
        "ScaleUpRecommended",
        "desired replicas 2 -> 4: 2 of 2 reporting replicas saturated (steps: analyze 2, optimize 2 -> 4)",
    )


def test_fewer_replicas_are_recommended():
    """A lower number gives an event with another reason."""
    (event,) = announcements(decision(4), decision(2, message="room on 2 replicas", steps=()))
    assert event == ("Normal", "ScaleDownRecommended", "desired replicas 4 -> 2: room on 2 replicas")


def test_a_first_decision_is_compared_with_what_was_published_before():
    """After a restart WVA compares with the number of the status, if there is one."""
    assert announcements(None, decision(4, previous=4)) == []
    assert announcements(None, decision(4, previous=None)) == []
    assert [event.reason for event in announcements(None, decision(4, previous=3))] == ["ScaleUpRecommended"]


def test_holding_is_a_warning_once():
    """The first hold gives a warning with its reason, later holds give no event."""
    (event,) = announcements(decision(3), held(3, steps=(Step("hold", "kept", 3, 3),)))
    assert event == ("Warning", "DesiredReplicasHeld", "PrometheusError: Prometheus did not answer (steps: hold 3)")
    assert announcements(held(3), held(3, message="still no answer")) == []


def test_a_growth_that_is_refused_is_a_warning_once():
    """If no GPU or no candidate is there, the number stays and an event says why."""
    steps = (Step("optimize", "", 2, 4), Step("limit", "", 4, 2, "gpu-limiter A100", 2))
    refused = decision(2, reason=Reason.GPU_LIMITED, message="limited to 2", steps=steps)
    (event,) = announcements(decision(2), refused)
    told = "(steps: optimize 2 -> 4, limit 4 -> 2 (limited by gpu-limiter A100: 2 fewer))"
    assert event == ("Warning", "ScaleUpLimited", f"GpuLimited: limited to 2 {told}")
    assert announcements(refused, refused) == []
    assert [event.reason for event in announcements(refused, decision(2, reason=Reason.NO_CANDIDATE))] == [
        "ScaleUpLimited"
    ]


def test_an_objective_that_nobody_reaches_is_a_warning_once():
    """The nearest may change a little from cycle to cycle; that is no news."""
    unreached = decision(3, aim=Aim(words="asked", beyond="no number of replicas reaches 1 ms"))
    (event,) = announcements(decision(3), unreached)
    assert event == ("Warning", "ObjectiveUnreachable", "no number of replicas reaches 1 ms")
    assert announcements(unreached, replace(unreached, aim=Aim(words="asked", beyond="nor 2 ms"))) == []
    assert announcements(unreached, decision(3, aim=Aim(words="asked"))) == []


def test_another_reason_to_hold_is_no_other_hold():
    """A hold with a new reason gives no event; the condition shows the new reason."""
    assert announcements(held(3), held(3, reason=Reason.METRICS_STALE)) == []


def test_a_hold_that_loses_its_last_measurement_warns_again():
    """The safety net warns when it takes over a hold, and not when some measurements come back."""
    partly = held(3, reason=Reason.METRICS_INCOMPLETE, source=Source.HELD)
    (event,) = announcements(partly, held(3))
    assert event.reason == "DesiredReplicasHeld"
    assert announcements(held(3), partly) == []


def test_the_end_of_a_hold_is_told():
    """When measurements are back, there is a Normal event."""
    assert [event.reason for event in announcements(held(3), decision(3))] == ["DesiredReplicasMeasured"]


def test_the_end_of_a_hold_with_another_number_tells_both():
    """The change of the number and the end of the hold are two events."""
    found = [event.reason for event in announcements(held(3), decision(5))]
    assert found == ["ScaleUpRecommended", "DesiredReplicasMeasured"]


def test_the_first_decision_after_the_start_is_no_resumption():
    """A variant without a decision was not held, so its first decision ends no hold."""
    first = Ledger().hold(variant("va", replicas=2))
    assert announcements(first, decision(2)) == []
    assert [event.reason for event in announcements(first, held(2))] == ["DesiredReplicasHeld"]


def test_a_long_reason_does_not_push_out_the_steps():
    """The API server limits an event to a kilobyte; the reason is cut, the steps stay."""
    (event,) = announcements(decision(2), decision(4, message="x" * 3000))
    assert len(event.message) == 1000
    assert event.message.endswith("x (steps: analyze 2, optimize 2 -> 4)")


@given(decisions())
def test_nothing_new_is_no_event(same):
    """A decision that equals the previous one gives no event."""
    assume(same.reason is not Reason.NOT_DECIDED)  # no cycle makes such a decision
    assert announcements(same, same) == []


@given(st.none() | decisions(), decisions())
def test_a_change_of_the_number_is_told_exactly_once(old, new):
    """A number that differs from the one before gives one event, else there is none."""
    told = [event.reason for event in announcements(old, new) if event.reason.endswith("Recommended")]
    before = new.previous if old is None else old.desired
    if before is None or before == new.desired:
        assert told == []
    else:
        assert told == ["ScaleUpRecommended" if new.desired > before else "ScaleDownRecommended"]
