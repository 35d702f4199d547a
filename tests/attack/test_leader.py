"""A standby replaces a leader that is killed, with the default times of the election."""

from __future__ import annotations

import pytest

from tests.kube.lease_world import LeaseWorld
from wva.app.election import _durations
from wva.config import Given, load


@pytest.mark.parametrize("crash_seconds", [100.0, 100.7, 101.9])
@pytest.mark.parametrize(("watches", "limit_seconds"), [(True, 15.0), (False, 17.5)], ids=["watching", "polling"])
def test_a_leader_that_is_killed_is_replaced(watches, limit_seconds, crash_seconds):
    """The standby leads within 15 s of the kill, or 17.5 s if it may not watch the Lease."""
    world = LeaseWorld(_durations(load(Given({}, {}, {})).settings))
    try:
        leader, standby = world.start(), world.start(offset=1e6)
        if watches:
            world.server.watchers.append(standby)
        world.advance(crash_seconds)
        assert leader.may_write
        assert not standby.may_write
        leader.kill()
        world.advance(limit_seconds + 0.01)
        assert standby.may_write
    finally:
        world.close()
