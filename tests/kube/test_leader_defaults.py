"""The default durations of an election.

A crash costs 15 s at most, and a slow server or a busy loop does not lose the Lease.
"""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.kube.lease_world import LeaseWorld
from wva.kube.leader_times import Durations


@pytest.fixture(name="world")
def _world():
    world = LeaseWorld(Durations())
    with capture_logs():
        yield world
        world.close()


def successor_after(world, *, watches, crash):
    """Return how many seconds after a crash at ``crash`` another process may write."""
    leader = world.start()
    candidate = world.start(offset=1e6)
    if watches:
        world.server.watchers.append(candidate)
    world.advance(crash)
    leader.kill()
    while not candidate.may_write:
        world.advance(0.05)
    return world.time - crash


@pytest.mark.parametrize("crash", [20.0 + step / 4 for step in range(9)])
def test_a_crash_costs_fifteen_seconds_at_most(world, crash):
    """It takes at least 13 s, because the last renewal is at most two seconds old and lasts for 15 s."""
    assert 12.9 <= successor_after(world, watches=True, crash=crash) <= 15.1


@pytest.mark.parametrize("crash", [20.1, 20.6, 21.2, 21.9])
def test_without_a_watch_it_costs_a_look_more(world, crash):
    """A candidate that may not watch the Lease sees the last renewal up to 2.4 s later."""
    assert 12.9 <= successor_after(world, watches=False, crash=crash) <= 17.5


def test_a_busy_leader_keeps_the_lease(world):
    """The leader goes on, though its event loop is blocked for almost eight seconds before a renewal."""
    leader, candidate = world.start(), world.start()
    world.server.watchers.append(candidate)
    world.advance(21.9)
    leader.stopped = True
    world.advance(7.9)
    leader.stopped = False
    world.turn()
    world.advance(20.0)
    assert leader.may_write
    assert not candidate.may_write


def test_a_leader_that_stood_still_for_longer_stops_before_another_begins(world):
    """Between its deadline and the end of the Lease no process may write."""
    leader, candidate = world.start(), world.start()
    world.server.watchers.append(candidate)
    world.advance(20.1)
    leader.stopped = True
    world.advance(10.0)
    assert not leader.may_write
    assert not candidate.may_write
    world.advance(4.8)
    assert not candidate.may_write
    world.advance(0.2)
    assert candidate.may_write


@pytest.mark.parametrize("seconds", [1.0, 4.0])
def test_a_slow_api_server_does_not_cost_the_lease(world, seconds):
    """The next renewal begins in time, although an answer takes seconds."""
    leader = world.start()
    leader.client.mode = "slow"
    for _ in range(200):
        world.advance(0.5)
        for call in list(leader.client.calls):
            call.deliver()
            call.age = getattr(call, "age", 0.0) + 0.5
            if call.age >= seconds:
                leader.client.calls.remove(call)
                call.finish(call.outcome)
        world.turn()
        assert leader.may_write
