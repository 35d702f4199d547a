"""A crash of the leader with the times that the manifests ship; apart, as it takes more than a minute of waiting."""

from __future__ import annotations

import time

from e2e.scene import CYCLE_SECONDS, Scene
from e2e.succession import VARIANT, assert_unmoved, start_pair, wait_leader
from wva.kube.leader_times import Durations

TIMES = Durations()
CRASH_SECONDS = TIMES.lease_seconds + 1.2 * TIMES.retry_period_seconds + 5


def test_killed_leader_is_succeeded_when_its_lease_ends(scene: Scene):
    """Lease duration, at most 1.2 retry periods and a moment later the standby publishes the same number."""
    pair = start_pair(scene, "--leader-elect")
    pair.leader.process.kill()
    wait_leader(scene, pair.standby, timeout_seconds=CRASH_SECONDS)
    scene.wait_measured(VARIANT)
    time.sleep(2 * CYCLE_SECONDS)
    assert_unmoved(scene, pair.since)
