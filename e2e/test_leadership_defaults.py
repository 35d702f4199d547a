"""A crash of the leader with the times that the manifests ship, several times over."""

from __future__ import annotations

import time

from e2e.scene import CYCLE_SECONDS, Scene
from e2e.succession import VARIANT, assert_unmoved, start_pair, start_standby, wait_leader
from wva.kube.leader_times import Durations

TIMES = Durations()
CRASH_SECONDS = TIMES.lease_seconds + 1.0
"""From the crash to the first scrape of the successor that has the number: a standby publishes in its first second."""
ROUNDS = 3


def test_killed_leader_is_succeeded_when_its_lease_ends(scene: Scene):
    """The Lease ends 13 to 15 s after the crash, and the standby publishes the same number at once."""
    pair = start_pair(scene, "--leader-elect")
    leader, standby = pair.leader, pair.standby
    took = []
    for number in range(ROUNDS):
        time.sleep(number * TIMES.retry_period_seconds / ROUNDS)  # varies the time since the last renewal
        leader.process.kill()
        killed = time.monotonic()
        wait_leader(scene, standby, timeout_seconds=CRASH_SECONDS)
        took.append(time.monotonic() - killed)
        scene.wait_measured(VARIANT)
        leader, standby = standby, start_standby(scene, "--leader-elect", name=f"standby-{number}")
    print("seconds from the crash to the successor's series:", [f"{seconds:.1f}" for seconds in took])
    time.sleep(2 * CYCLE_SECONDS)
    assert_unmoved(scene, pair.since)
