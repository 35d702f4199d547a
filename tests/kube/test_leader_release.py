"""Releasing the Lease: only its holder does it, there are never two writers, and the exit does not hang."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.kube.lease_world import DURATIONS, KEY, LEASES, LeaseWorld
from wva.api.core import ObjectReference
from wva.kube.leader import Durations, LeaderElector


@pytest.fixture(name="world")
def _world():
    world = LeaseWorld()
    with capture_logs() as world.logs:
        yield world
        world.close()


class EventMemory:
    """Records events."""

    def __init__(self):
        """Start without events."""
        self.events = []

    def event(self, ref, type_, reason, message):
        """Record an event."""
        self.events.append((ref, type_, reason, message))


def test_a_clean_exit_lets_the_lease_go(world):
    """The holder is emptied, the duration is short, and the count of transitions stays.

    The next candidate leads with its next read.
    """
    leader, candidate = world.start(), world.start()
    world.advance(25.0)
    leader.leave()
    world.turn()
    spec = world.server.get().spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("", 1, 0)
    assert leader.ended == "left"
    world.advance(12.1)
    assert candidate.may_write
    assert world.server.get().spec.lease_transitions == 1


def test_nothing_may_be_written_while_the_release_is_under_way(world):
    """The leader stops writing before it sends the release, because a standby takes a free Lease at once."""
    leader = world.start()
    leader.client.mode = "slow"
    leader.leave()
    world.turn()
    assert leader.client.sent[-1] == "update"
    assert not leader.may_write


def test_a_leader_that_slept_past_its_deadline_looks_before_it_lets_go(world):
    """Another process leads by then. The old leader reads the Lease, and does not write it."""
    leader, candidate = world.start(), world.start()
    leader.stopped = True
    world.advance(80.0)
    assert candidate.may_write
    leader.stopped = False
    world.turn()
    assert leader.ended
    sent = len(leader.client.sent)
    leader.let_go()
    assert leader.client.sent[sent:] == ["get"]
    assert world.server.get().spec.holder_identity == candidate.elector.identity


def test_a_leader_that_lost_touch_lets_go_of_what_nobody_took(world):
    """The old leader releases a Lease that it still holds, so its successor need not wait."""
    leader = world.start()
    leader.stopped = True
    world.advance(55.0)
    leader.stopped = False
    world.turn()
    assert leader.ended
    leader.let_go()
    assert world.server.get().spec.holder_identity == ""


@pytest.mark.parametrize(("seconds", "allowed"), [(49.0, True), (51.0, False)])
def test_the_lease_itself_is_not_renewed_past_the_deadline(world, seconds, allowed):
    """A renewal that was not sent before the process was stopped is not sent after the deadline."""
    leader = world.start()
    leader.stopped = True
    world.advance(seconds)
    assert leader.elector.may_claim() is allowed


def test_a_candidate_may_claim(world):
    """A candidate has no deadline, so it may write the Lease."""
    world.start()
    assert world.start().elector.may_claim()


def test_a_candidate_releases_nothing(world):
    """A candidate that never held the Lease sends no request when it leaves."""
    leader, candidate = world.start(), world.start()
    sent = len(candidate.client.sent)
    candidate.leave()
    world.turn()
    assert candidate.ended == "left"
    assert len(candidate.client.sent) == sent
    assert leader.may_write


def test_a_lease_that_somebody_else_took_is_left_alone(world):
    """The release conflicts, the leader reads another holder, and leaves the Lease alone."""
    leader = world.start()
    version = world.server.get().metadata.resource_version
    world.server.update({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": "other"}})
    leader.leave()
    world.turn()
    assert world.server.get().spec.holder_identity == "other"
    assert leader.client.sent[-2:] == ["update", "get"]


def test_a_renewal_still_on_its_way_does_not_prevent_the_release(world):
    """The renewal arrives first, and the release conflicts with it. The leader reads the Lease and releases it."""
    leader = world.start()
    leader.client.mode = "slow"
    world.advance(10.1)
    (renewal,) = leader.client.calls
    renewal.deliver()
    leader.client.mode = "works"
    leader.leave()
    world.turn()
    assert world.server.get().spec.holder_identity == ""
    assert leader.client.sent[-3:] == ["update", "get", "update"]


def test_a_lease_won_without_knowing_it_is_released_too(world):
    """The write that took the Lease arrived, but its answer did not.

    So the process reads the Lease before it leaves.
    """
    process = world.start(mode="slow")
    process.elector.recorder = EventMemory()
    for _ in range(2):
        (call,) = process.client.calls
        process.client.calls.clear()
        call.deliver()
        if call.outcome is not world.server.lease:
            call.finish(call.outcome)
            world.turn()
    process.client.mode = "works"
    process.leave()
    world.turn()
    assert world.server.get().spec.holder_identity == ""
    assert process.elector.recorder.events == []


def test_a_process_that_never_saw_the_lease_leaves_at_once(world):
    """A process that has written nothing sends no further request."""
    process = world.start(mode="slow")
    process.leave()
    world.turn()
    assert process.ended == "left"
    assert process.client.sent == ["get"]


def test_a_deleted_lease_is_not_created_for_its_release(world):
    """The process leaves without a write."""
    leader = world.start()
    world.server.delete()
    leader.leave()
    world.turn()
    assert world.server.lease is None
    assert leader.ended == "left"


@pytest.mark.parametrize(("mode", "seconds"), [("cut", 0.0), ("slow", 5.1)])
def test_an_api_server_that_does_not_answer_does_not_hold_up_the_exit(world, mode, seconds):
    """The process tries for at most 5 s, and leaves the Lease to expire."""
    leader = world.start()
    leader.client.mode = mode
    leader.leave()
    world.advance(seconds)
    assert leader.ended == "left"
    assert [line["event"] for line in world.logs][-1] == "lease_not_released"


def test_events_and_gauge_tell_who_leads(world):
    """The end of leadership is an event on the Lease, if the process may still write. The gauge shows who leads."""

    def gauge():
        return world.instruments.registry.get_sample_value("wva_leader")

    first = world.start()
    first.elector.recorder = EventMemory()
    assert gauge() == 1
    first.elector.say_goodbye()
    first.leave()
    world.turn()
    assert gauge() == 0
    second = world.start()
    assert gauge() == 1
    second.elector.recorder = EventMemory()
    second.client.mode = "cut"
    world.advance(60.0)
    second.elector.say_goodbye()
    assert gauge() == 0
    lease = ObjectReference("coordination.k8s.io/v1", "Lease", KEY.name, KEY.namespace, "uid")
    assert first.elector.recorder.events == [(lease, "Normal", "LeaderElection", "p0 stopped leading")]
    assert second.elector.recorder.events == []  # this process may not write any more


def test_becoming_leader_is_an_event(world):
    """The message names the process."""
    world.start().leave()
    world.turn()
    world.server.delete()
    process = world.start(mode="cut")
    process.elector.recorder = EventMemory()
    process.client.mode = "works"
    world.advance(15.0)
    assert [event[1:] for event in process.elector.recorder.events] == [
        ("Normal", "LeaderElection", "p1 became leader"),
    ]


@pytest.mark.parametrize(
    ("durations", "complaint"),
    [
        (Durations(), ""),
        (Durations(15, 10, 2), ""),
        (
            Durations(50, 50, 10),
            "--leader-election-lease-duration=50s must be longer than --leader-election-renew-dead",
        ),
        (Durations(60, 12, 10), "deadline=12s must be longer than 1.2 times --leader-election-retry-period=10s"),
        (Durations(60, 50, 0), "--leader-election-retry-period=0s must be greater than 0"),
        (Durations(-1, -2, -3), "greater than 0"),
        (Durations(float("nan"), 50, 10), "greater than 0"),
    ],
)
def test_durations_that_cannot_work_are_named(durations, complaint):
    """The Lease must be longer than the deadline, and the deadline longer than 1.2 retry periods.

    All are greater than 0.
    """
    problems = durations.validate()
    assert bool(problems) is bool(complaint)
    assert all(complaint in problem for problem in problems)


@pytest.mark.parametrize(("identity", "durations"), [("", DURATIONS), ("me", Durations(1, 2, 3))])
def test_an_elector_that_could_never_work_is_not_built(world, identity, durations):
    """Wrong settings raise at the start, not at the first election."""
    with pytest.raises(ValueError, match="must"):
        LeaderElector(None, LEASES, KEY, identity, durations, instruments=world.instruments)
