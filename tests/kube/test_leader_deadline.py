"""The deadline of a leader: when it begins, and that the leader writes nothing after it."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.kube.lease_world import LeaseWorld
from wva.kube.errors import Unreachable


@pytest.fixture(name="world")
def _world():
    world = LeaseWorld()
    with capture_logs():
        yield world
        world.close()


@pytest.fixture(name="leader")
def _leader(world):
    leader = world.start()
    assert leader.may_write
    return leader


def test_a_renewing_leader_may_write_all_the_time(world, leader):
    """The leader renews every retry period, long before its deadline."""
    for _ in range(100):
        world.advance(7.01)
        assert leader.may_write
    assert leader.client.sent == ["get", "create"] + ["update"] * 70


def test_a_leader_that_cannot_renew_gives_up_at_the_deadline(world, leader):
    """50 s after the last renewal the leader may not write, and ends."""
    leader.client.mode = "cut"
    world.advance(49.9)
    assert leader.may_write
    assert not leader.ended
    world.advance(0.2)
    assert not leader.may_write
    assert leader.ended == "wva-system/72dd1cf1.llm-d.ai: not renewed for 50 s"


def test_the_deadline_counts_from_the_start_of_the_renewal(world, leader):
    """An answer that comes 20 s late does not extend the deadline. Candidates may have seen the renewal 20 s ago."""
    leader.client.mode = "slow"
    world.advance(10.0)  # here the renewal starts
    (renewal,) = leader.client.calls
    renewal.deliver()
    world.advance(20.0)
    renewal.finish(renewal.outcome)
    world.turn()
    leader.client.mode = "cut"
    world.advance(29.9)
    assert leader.may_write
    world.advance(0.2)
    assert not leader.may_write


def test_a_hanging_api_server_does_not_hang_the_leader(world, leader):
    """Each request ends after half the renew deadline, and the last one at the deadline."""
    leader.client.mode = "slow"
    world.advance(10.0)
    assert len(leader.client.calls) == 1
    world.advance(24.9)
    assert len(leader.client.calls) == 1
    world.advance(0.2)
    assert len(leader.client.calls) == 2
    world.advance(14.7)
    assert not leader.ended
    world.advance(0.4)
    assert leader.ended


def test_one_failed_renewal_is_no_loss(world, leader):
    """A leader that was cut off until shortly before its deadline reads the Lease, renews it and goes on."""
    leader.client.mode = "cut"
    world.advance(48.0)
    leader.client.mode = "works"
    world.advance(1.9)
    assert leader.client.sent[-2:] == ["get", "update"]
    world.advance(100.0)
    assert leader.may_write


def test_failed_renewals_come_closer_together_but_not_arbitrarily(world, leader):
    """The leader retries faster near its deadline, but with a limit that spares the server."""
    leader.client.mode = "cut"
    tries = len(leader.client.sent)
    world.advance(40.5)
    assert len(leader.client.sent) == tries + 4
    world.advance(9.6)
    assert leader.ended
    assert tries + 6 <= len(leader.client.sent) <= tries + 10


def test_a_stopped_leader_may_not_write_when_it_wakes(world, leader):
    """After SIGSTOP beyond the deadline it may not write even before its timers fire, and it sends nothing."""
    leader.stopped = True
    sent = len(leader.client.sent)
    world.advance(60.0)
    assert not leader.elector.may_write()
    leader.stopped = False
    world.turn()
    assert leader.ended
    assert len(leader.client.sent) == sent


def test_a_leader_stopped_briefly_goes_on(world, leader):
    """After a pause within the deadline the leader goes on."""
    leader.stopped = True
    world.advance(45.0)
    leader.stopped = False
    world.advance(45.0)
    assert leader.may_write


def test_a_process_stopped_during_its_first_request_does_not_believe_to_lead(world):
    """The process reads a minute late that it has taken the Lease, so it has to renew the Lease first."""
    process = world.start(mode="slow")
    for expected in ("get", "create"):
        assert process.client.sent[-1] == expected
        call = process.client.calls.pop()
        call.deliver()
        process.stopped = expected == "create"
        world.advance(60.0 if process.stopped else 1.0)
        call.finish(call.outcome)
        world.turn()
    process.stopped = False
    process.client.mode = "works"
    world.turn()
    assert not process.may_write
    world.advance(15.0)
    assert process.may_write
    assert not process.ended


def test_a_lease_held_by_somebody_else_ends_leadership_at_once(world, leader):
    """A leader that sees another holder ends before its deadline."""
    lease = world.server.get()
    world.server.update(
        {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": {"holderIdentity": "other"}}
    )
    world.advance(10.1)
    assert not leader.may_write
    assert leader.ended == "wva-system/72dd1cf1.llm-d.ai: the Lease is held by other"


def test_a_foreign_change_of_the_lease_is_no_loss(world, leader):
    """A label that a user sets makes the renewal conflict. The leader repeats it at once, and keeps the label."""
    lease = world.server.get()
    body = {
        "metadata": {"resourceVersion": lease.metadata.resource_version, "labels": {"team": "ml"}},
        "spec": {"holderIdentity": lease.spec.holder_identity},
    }
    world.server.update(body)
    world.advance(10.1)
    assert leader.may_write
    assert leader.client.sent[-3:] == ["update", "get", "update"]
    assert world.server.get().metadata.labels == {"team": "ml"}


def test_a_deleted_lease_is_created_again_by_its_leader(world, leader):
    """The leader goes on with the same count of transitions."""
    world.server.delete()
    world.advance(10.1)
    assert leader.may_write
    assert leader.client.sent[-3:] == ["update", "get", "create"]
    assert world.server.get().spec.lease_transitions == 0


def test_a_renewal_whose_answer_is_lost_is_looked_into(world, leader):
    """The leader does not know whether it arrived. So it reads the Lease first, and finds itself as the holder."""
    leader.client.mode = "slow"
    world.advance(10.0)
    (renewal,) = leader.client.calls
    renewal.deliver()
    renewal.finish(Unreachable(0, "", "connection reset"))
    leader.client.mode = "works"
    world.advance(50.0)
    assert leader.may_write
    assert leader.client.sent[3:5] == ["get", "update"]
