"""With a leader and a standby, one ends and the other keeps publishing the same numbers."""

from __future__ import annotations

import os
import signal
import time

from e2e.controlplane.audit import writes
from e2e.scene import CYCLE_SECONDS, Scene
from e2e.succession import VARIANT, assert_unmoved, start_pair, start_standby, wait_leader

LEASE_SECONDS, RETRY_SECONDS = 8.0, 1.0
ELECTION = (
    "--leader-elect",
    f"--leader-election-lease-duration={LEASE_SECONDS:g}s",
    "--leader-election-renew-deadline=6s",
    f"--leader-election-retry-period={RETRY_SECONDS:g}s",
)
CRASH_SECONDS = LEASE_SECONDS + 1.5
STOP_SECONDS = 5.0


def test_leader_killed_then_stopped(scene: Scene):
    """The standby leads after a kill, and after a stop. One process publishes; number and start of the change stay."""
    pair = start_pair(scene, *ELECTION)
    pair.leader.process.kill()
    wait_leader(scene, pair.standby, timeout_seconds=CRASH_SECONDS)
    scene.wait_measured(VARIANT)
    time.sleep(2 * CYCLE_SECONDS)
    assert_unmoved(scene, pair.since)

    third = start_standby(scene, *ELECTION, name="third")
    pair.standby.process.stop()
    wait_leader(scene, third, timeout_seconds=STOP_SECONDS)
    scene.wait_measured(VARIANT)
    time.sleep(2 * CYCLE_SECONDS)
    assert_unmoved(scene, pair.since)


def test_stopped_leader_is_succeeded_at_once_with_the_default_times(scene: Scene):
    """The leader releases the Lease. The standby sees this without waiting for its next poll or the Lease's end."""
    pair = start_pair(scene, "--leader-elect")
    pid = pair.leader.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    wait_leader(scene, pair.standby, timeout_seconds=STOP_SECONDS)
    scene.wait_measured(VARIANT)
    time.sleep(2 * CYCLE_SECONDS)
    assert_unmoved(scene, pair.since)
    said = [
        event["message"].split(" ", 1)[1]
        for event in scene.api.list("Event", namespace=scene.namespace)
        if event["reason"] == "LeaderElection"
    ]
    assert sorted(said) == ["became leader", "became leader", "stopped leading"]


def test_paused_leader_does_not_come_back(scene: Scene):
    """A leader that was paused until another one led ends itself. None of its late writes reaches the API server."""
    pair = start_pair(scene, *ELECTION)
    audit = scene.plane.layout.audit_log
    assert writes(audit, kubeconfig=pair.identity), "the record knows this process"
    pair.leader.process.pause()
    paused = time.time()
    wait_leader(scene, pair.standby, timeout_seconds=CRASH_SECONDS)
    pair.leader.process.resume()
    scene.wait(lambda: not pair.leader.process.running, timeout_seconds=20, what="the former leader has ended")
    assert "leadership_lost" in pair.leader.log(5)
    time.sleep(2 * CYCLE_SECONDS)
    assert writes(audit, kubeconfig=pair.identity, since_seconds=paused) == []
    assert_unmoved(scene, pair.since)
