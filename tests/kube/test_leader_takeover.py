"""When a candidate takes the Lease, what it writes into it, and how often it reads it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from tests.kube.lease_world import LeaseWorld
from wva.api.meta import format_micro_time


@pytest.fixture(name="world")
def _world():
    world = LeaseWorld()
    with capture_logs():
        yield world
        world.close()


def write(world, **spec):
    """Write a record into the Lease, as another program does."""
    if world.server.lease is None:
        world.server.create({"metadata": {"name": "lease"}, "spec": spec})
    else:
        version = world.server.lease.metadata.resource_version
        world.server.update({"metadata": {"resourceVersion": version}, "spec": spec})


def test_a_missing_lease_is_created(world):
    """The first process leads at once, and its record is complete."""
    process = world.start()
    assert process.may_write
    spec = world.server.get().spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("p0", 60, 0)
    assert spec.acquire_time == spec.renew_time == format_micro_time(1_700_000_000.0)


def test_an_empty_holder_is_taken_at_once(world):
    """A candidate takes a released Lease without waiting, and counts a transition."""
    write(world, holderIdentity="", leaseDurationSeconds=1, leaseTransitions=4)
    process = world.start()
    assert process.may_write
    assert world.server.get().spec.lease_transitions == 5


def test_a_renewal_keeps_the_time_of_acquisition(world):
    """A renewal changes only renewTime."""
    world.start()
    world.advance(30.5)
    spec = world.server.get().spec
    assert spec.acquire_time == format_micro_time(1_700_000_000.0)
    assert spec.renew_time == format_micro_time(1_700_000_030.0)
    assert spec.lease_transitions == 0


def test_a_dead_holder_is_replaced_after_the_lease_duration(world):
    """The time begins when the candidate first sees the last record, on the clock of the candidate."""
    world.start()
    candidate = world.start(offset=1e6)
    world.advance(10.5)  # the holder has renewed at 10; the candidate saw the record of 0
    world.processes[0].kill()
    world.advance(11.5)  # the candidate polls every 8 to 12 s, so it has seen the last record by now
    seen_at = candidate.elector._seen_at - 1e6
    assert 10.0 <= seen_at <= 22.0
    world.advance(seen_at + 59.9 - world.time)
    assert not candidate.may_write
    world.advance(0.2)
    assert candidate.may_write
    assert world.server.get().spec.lease_transitions == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_candidate_that_watches_takes_over_when_the_last_renewal_expires(world, seed):
    """It takes the Lease exactly 60 s after the last renewal, whenever its own reads are due."""
    leader = world.start()
    candidate = world.start(offset=1e6)
    world.server.watchers.append(candidate)
    crash = 100.2 + seed / 2
    world.advance(crash)
    leader.kill()
    renewed = crash - crash % 10.0
    world.advance(renewed + 59.99 - world.time)
    assert not candidate.may_write
    world.advance(0.02)
    assert candidate.may_write


def test_an_old_record_from_a_slow_watch_only_makes_a_candidate_wait_longer(world):
    """The watch reports an old record after the candidate has read a newer one.

    The candidate waits longer, and takes over.
    """
    write(world, holderIdentity="other", leaseDurationSeconds=60, leaseTransitions=1)
    old = world.server.get()
    write(world, holderIdentity="other", leaseDurationSeconds=60, leaseTransitions=2)
    candidate = world.start()
    world.advance(30.0)
    candidate.elector.observe(old)
    world.advance(59.9)
    assert not candidate.may_write
    world.advance(15.0)
    assert candidate.may_write


def test_what_a_leader_hears_of_its_own_lease_changes_nothing(world):
    """The watch reports the leader's own renewals, and the leader ignores them."""
    leader = world.start()
    world.server.watchers.append(leader)
    world.advance(200.0)
    assert leader.may_write
    assert leader.client.sent[-3:] == ["update"] * 3


def test_wall_clocks_do_not_matter(world):
    """The renewTime of a record may be in the past or in the future. Only changes of the record count."""
    write(world, holderIdentity="other", renewTime="2020-01-01T00:00:00.000000Z", leaseDurationSeconds=15)
    candidate = world.start()
    world.advance(59.0)
    assert not candidate.may_write
    write(world, holderIdentity="other", renewTime="2099-01-01T00:00:00.000000Z", leaseDurationSeconds=15)
    world.advance(59.9)
    assert not candidate.may_write
    world.advance(2.0)
    assert candidate.may_write


def test_a_longer_recorded_duration_is_respected(world):
    """The candidate waits for the duration in the record if that is longer than its own."""
    write(world, holderIdentity="other", leaseDurationSeconds=120)
    candidate = world.start()
    world.advance(119.9)
    assert not candidate.may_write
    world.advance(0.2)
    assert candidate.may_write


def test_a_lease_that_disappears_is_not_free(world):
    """The former holder may write until its deadline, so the candidate waits as after a changed record."""
    write(world, holderIdentity="other", leaseDurationSeconds=60)
    candidate = world.start()
    world.advance(50.0)
    world.server.delete()
    world.advance(60.0)
    assert not candidate.may_write
    world.advance(13.0)
    assert candidate.may_write


def test_a_lease_that_was_free_when_last_seen_and_disappears_is_not_free(world):
    """Another process may have taken the Lease without the candidate seeing it, so the candidate waits."""
    write(world, holderIdentity="", leaseDurationSeconds=1)
    candidate = world.start(mode="slow")
    (look,) = candidate.client.calls
    look.deliver()
    write(world, holderIdentity="faster", leaseDurationSeconds=60)
    candidate.client.calls.clear()
    look.finish(look.outcome)
    world.turn()
    candidate.client.mode = "works"
    world.server.delete()
    world.advance(60.0)
    assert not candidate.may_write
    world.advance(40.0)
    assert candidate.may_write


def test_our_own_record_needs_no_waiting(world):
    """The answer to the first write was lost. The next read shows the process as the holder, so it leads at once."""
    write(world, holderIdentity="p0", leaseDurationSeconds=60, acquireTime="2026-01-01T00:00:00Z", leaseTransitions=2)
    process = world.start()
    assert process.may_write
    spec = world.server.get().spec
    assert (spec.lease_transitions, spec.acquire_time) == (2, "2026-01-01T00:00:00Z")


def test_candidates_poll_every_retry_period_with_jitter(world):
    """The pause differs from 10 s by at most 20 %, and is not always the same."""
    write(world, holderIdentity="other", leaseDurationSeconds=100_000)
    candidate = world.start()
    times = []
    for _ in range(400):
        before = len(candidate.client.sent)
        world.advance(0.5)
        times += [world.time] * (len(candidate.client.sent) - before)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps) >= 7.5
    assert max(gaps) <= 12.5
    assert max(gaps) - min(gaps) > 1.0


def test_a_nudge_makes_a_candidate_look_at_once(world):
    """A watch that sees the release nudges the candidate. One nudge causes one read."""
    write(world, holderIdentity="other", leaseDurationSeconds=60)
    candidate = world.start()
    world.advance(1.0)
    candidate.elector.nudge()
    world.turn()
    assert candidate.client.sent == ["get", "get"]
    write(world, holderIdentity="")
    candidate.elector.nudge()
    world.turn()
    assert candidate.may_write


def test_a_nudge_during_a_look_is_not_lost(world):
    """The candidate reads again, because the Lease may have changed after the first read."""
    write(world, holderIdentity="other", leaseDurationSeconds=60)
    candidate = world.start()
    candidate.client.mode = "slow"
    candidate.elector.nudge()
    world.turn()
    (look,) = candidate.client.calls
    look.deliver()
    write(world, holderIdentity="")
    candidate.elector.nudge()
    candidate.client.mode = "works"
    look.finish(look.outcome)
    world.turn()
    assert candidate.may_write


def test_of_two_that_are_equally_fast_one_wins(world):
    """Both processes read a free Lease and write it.

    The second write conflicts, and its process remains a candidate.
    """
    write(world, holderIdentity="other", leaseDurationSeconds=60)
    first, second = world.start(), world.start()
    first.client.mode = second.client.mode = "slow"
    write(world, holderIdentity="")
    first.elector.nudge()
    second.elector.nudge()
    world.turn()
    for _ in range(3):
        calls = [call for process in (first, second) for call in process.client.calls]
        first.client.calls, second.client.calls = [], []
        for call in calls:
            call.deliver()
        for call in calls:
            call.finish(call.outcome)
        world.turn()
    assert first.may_write
    assert not second.may_write
    assert not second.ended


def test_a_candidate_survives_an_api_server_that_does_not_answer(world):
    """The candidate retries after refused and hanging requests, without end."""
    process = world.start(mode="cut")
    world.advance(300.0)
    process.client.mode = "slow"
    world.advance(300.0)
    assert not process.ended
    assert not process.may_write
    process.client.mode = "works"
    world.advance(40.0)
    assert process.may_write
