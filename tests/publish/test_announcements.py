"""The Kubernetes events for the step from one decision to the next."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.builders import variant
from tests.publish.decisions import decision, decisions, held
from wva.model.decision import Reason, Source, Step
from wva.publish.announce import announcements
from wva.publish.ledger import Ledger


def test_more_replicas_are_recommended():
    """A higher number is a Normal event with old number, new number, reason in words and the steps."""
    (event,) = announcements(decision(2), decision(4))
    assert event == (
        "Normal",
        "ScaleUpRecommended",
        "desired replicas 2 -> 4: 2 of 2 reporting replicas saturated (steps: analyze 2, optimize 2 -> 4)",
    )


def test_fewer_replicas_are_recommended():
    """A lower number has its own reason."""
    (event,) = announcements(decision(4), decision(2, message="room on 2 replicas", steps=()))
    assert event == ("Normal", "ScaleDownRecommended", "desired replicas 4 -> 2: room on 2 replicas")


def test_a_first_decision_is_compared_with_what_was_published_before():
    """After a restart the number of the status counts; without one there is nothing to compare with."""
    assert announcements(None, decision(4, previous=4)) == []
    assert announcements(None, decision(4, previous=None)) == []
    assert [event.reason for event in announcements(None, decision(4, previous=3))] == ["ScaleUpRecommended"]


def test_holding_is_a_warning_once():
    """The first hold warns with its reason, the next ones with the same reason are silent."""
    (event,) = announcements(decision(3), held(3, steps=(Step("hold", "kept", 3, 3),)))
    assert event == ("Warning", "DesiredReplicasHeld", "PrometheusError: Prometheus did not answer (steps: hold 3)")
    assert announcements(held(3), held(3, message="still no answer")) == []


def test_a_growth_that_is_refused_is_a_warning_once():
    """No GPU or no candidate: the number does not change, and an event says why."""
    steps = (Step("optimize", "", 2, 4), Step("limit", "", 4, 2, "gpu-limiter A100", 2))
    refused = decision(2, reason=Reason.GPU_LIMITED, message="limited to 2", steps=steps)
    (event,) = announcements(decision(2), refused)
    told = "(steps: optimize 2 -> 4, limit 4 -> 2 (limited by gpu-limiter A100: 2 fewer))"
    assert event == ("Warning", "ScaleUpLimited", f"GpuLimited: limited to 2 {told}")
    assert announcements(refused, refused) == []
    assert [event.reason for event in announcements(refused, decision(2, reason=Reason.NO_CANDIDATE))] == [
        "ScaleUpLimited"
    ]


def test_another_reason_to_hold_is_no_other_hold():
    """Stale samples on their way to missing ones are one outage; the condition tells today's reason."""
    assert announcements(held(3), held(3, reason=Reason.METRICS_STALE)) == []


def test_a_hold_that_loses_its_last_measurement_warns_again():
    """Now the safety net holds the number; measurements that come back in part are not worth an event."""
    partly = held(3, reason=Reason.METRICS_INCOMPLETE, source=Source.HELD)
    (event,) = announcements(partly, held(3))
    assert event.reason == "DesiredReplicasHeld"
    assert announcements(held(3), partly) == []


def test_the_end_of_a_hold_is_told():
    """When the evidence is back there is a Normal event."""
    assert [event.reason for event in announcements(held(3), decision(3))] == ["DesiredReplicasMeasured"]


def test_the_end_of_a_hold_with_another_number_tells_both():
    """Change and resumption are two events."""
    found = [event.reason for event in announcements(held(3), decision(5))]
    assert found == ["ScaleUpRecommended", "DesiredReplicasMeasured"]


def test_the_first_decision_after_the_start_is_no_resumption():
    """A variant not decided on yet was not held for lack of evidence."""
    first = Ledger().hold(variant("va", replicas=2))
    assert announcements(first, decision(2)) == []
    assert [event.reason for event in announcements(first, held(2))] == ["DesiredReplicasHeld"]


def test_a_long_reason_does_not_push_out_the_steps():
    """The API server takes a kilobyte."""
    (event,) = announcements(decision(2), decision(4, message="x" * 3000))
    assert len(event.message) == 1000
    assert event.message.endswith("x (steps: analyze 2, optimize 2 -> 4)")


@given(decisions())
def test_nothing_new_is_no_event(same):
    """A decision of a cycle after an equal one says nothing."""
    assume(same.reason is not Reason.NOT_DECIDED)  # that is no decision of a cycle
    assert announcements(same, same) == []


@given(st.none() | decisions(), decisions())
def test_a_change_of_the_number_is_told_exactly_once(old, new):
    """One event for the direction when there was a number before and it differs, else none."""
    told = [event.reason for event in announcements(old, new) if event.reason.endswith("Recommended")]
    before = new.previous if old is None else old.desired
    if before is None or before == new.desired:
        assert told == []
    else:
        assert told == ["ScaleUpRecommended" if new.desired > before else "ScaleDownRecommended"]
