"""The results of a run: figures and the timeline."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.stage.scenes import ScriptedScale, evenly, of_times, scene, variant
from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.fleet.users import GatewaySettings
from wva.sim.stage.faults import SlowPods
from wva.sim.stage.run import figures, timeline
from wva.sim.stage.world import StageWorld


def outcome(scenario, *controllers, seed=1):
    """Return figures and timeline of a scene."""
    world = StageWorld(scenario, seed=seed)
    world.run(controllers)
    return figures(world), timeline(world)


def test_a_light_load_is_served_in_time():
    """A light load is served in time, and one replica costs its price per hour."""
    found, _ = outcome(scene(evenly(2, 1800), variant(price=12.0)))
    assert (found.requests, found.served) == (3600, 3600)
    assert (found.ttft_attainment, found.itl_attainment, found.attainment) == (1.0, 1.0, 1.0)
    assert found.cost == pytest.approx(6.0)
    assert found.gpu_hours == pytest.approx(0.5)
    assert found.goodput_per_second == pytest.approx(2.0)
    assert found.ttft_p50_seconds < found.ttft_p99_seconds < 0.2


def test_failed_requests_have_missed_their_objectives():
    """Latencies are of answers alone. Shares are of all requests, so failed ones miss their objectives."""
    found, _ = outcome(scene(evenly(30, 120), gateway=GatewaySettings(patience_seconds=5.0)))
    assert found.timed_out > 500
    assert found.served + found.timed_out == found.requests
    assert found.ttft_attainment < 0.2
    assert found.itl_attainment <= found.served / found.requests < 1.0
    assert found.attainment <= found.ttft_attainment
    assert found.ttft_p99_seconds <= 5.5


def test_half_speed_pods_are_named():
    """Tokens that come slowly from slow pods have these pods as their cause, though enough pods are Ready."""
    scenario = replace(scene(evenly(12, 900), variant(replicas=4)), objectives=Objectives(1.0, 0.035))
    ordinary, _ = outcome(scenario)
    assert ordinary.late_tokens_by_cause["slow pod"] == ordinary.late_by_cause["slow pod"] == 0
    slow, _ = outcome(replace(scenario, faults=(SlowPods("a", every=2, speed=0.5),)))
    tokens = slow.late_tokens_by_cause
    assert slow.ttft_attainment - slow.attainment > 0.3
    assert sum(tokens.values()) == round((slow.ttft_attainment - slow.attainment) * slow.requests)
    assert tokens["slow pod"] > 0.95 * sum(tokens.values())


def test_a_batch_that_is_too_large_is_a_cause():
    """With enough pods by the demand, slow tokens of an ordinary pod are due to its batch."""
    scenario = replace(scene(of_times(np.sort(np.tile(np.arange(10.0, 900.0, 20.0), 14)), 900.0)))
    found, _ = outcome(replace(scenario, objectives=Objectives(1.0, 0.0215)))
    assert found.late_tokens_by_cause["batch"] > 0
    assert found.late_tokens_by_cause["slow pod"] == 0


def test_what_comes_before_the_measured_time_does_not_count():
    """Before the measured time neither requests, replicas nor shortages count."""
    found, _ = outcome(scene(evenly(2, 1000), measured_from_seconds=400.0))
    assert found.requests == 1200
    assert found.cost == pytest.approx(10.0 * 600 / 3600)
    early, late = np.linspace(100.0, 130.0, 900), np.linspace(500.0, 530.0, 900)
    arrivals = np.sort(np.concatenate([evenly(2, 1000).arrival_seconds, early, late]))
    both, _ = outcome(scene(of_times(arrivals, 1000.0)))
    one, _ = outcome(scene(of_times(arrivals, 1000.0), measured_from_seconds=400.0))
    assert (len(both.seconds_to_capacity), len(one.seconds_to_capacity)) == (2, 1)


def test_replicas_cost_until_they_have_ended():
    """Replicas of both variants cost their price until they have ended."""
    script = ScriptedScale({100.0: {"a": 2, "b": 3}, 400.0: {"a": 1}})
    found, _ = outcome(scene(evenly(1, 1000), variant("a", price=10.0), variant("b", price=30.0)), script)
    assert found.replica_hours["a"] == pytest.approx((1000 + 300) / 3600, rel=0.01)
    assert found.replica_hours["b"] == pytest.approx((1000 + 2 * 900) / 3600, rel=0.01)
    assert found.cost == pytest.approx(10 * found.replica_hours["a"] + 30 * found.replica_hours["b"])
    assert found.peak_replicas == 5
    assert (found.scale_ups, found.scale_downs) == (2, 1)


def test_what_is_asked_for_at_most_counts_by_price():
    """The most asked for is that of a moment after all its changes, in the measured time, pods Ready or not."""
    variants = variant("a", price=10.0, replicas=2), variant("b", price=30.0, minimum=0, replicas=0)
    steps = {10.0: {"a": 9}, 20.0: {"a": 4}, 200.0: {"b": 1, "a": 1}, 300.0: {"a": 3}, 320.0: {"a": 1}}
    traffic = evenly(25, 600)
    found, _ = outcome(scene(traffic, *variants), ScriptedScale(steps))
    assert found.most_asked == 90.0
    found, _ = outcome(scene(traffic, *variants, measured_from_seconds=100.0), ScriptedScale(steps))
    assert found.most_asked == 60.0
    assert found.most_needed == 30.0, "three of the cheap variant carry the load"
    still, _ = outcome(scene(traffic, *variants, measured_from_seconds=100.0))
    assert still.most_asked == 20.0


def test_a_replica_that_is_terminated_costs_while_it_finishes_what_it_has():
    """The replica occupies its GPUs until its process has ended, here until the end of the grace period."""
    traffic = of_times(np.linspace(20.0, 20.5, 80), 120.0, output=1000)
    found, _ = outcome(scene(traffic, variant(replicas=2, gpus=4), drain_seconds=30.0), ScriptedScale({21.0: {"a": 1}}))
    assert found.broken > 0
    seconds = 3600 * found.replica_hours["a"]
    assert 120.0 + 21.0 + 30.0 <= seconds <= 120.0 + 22.0 + 30.0
    assert found.gpu_hours == pytest.approx(4 * found.replica_hours["a"])


def test_reversals_are_turns_of_the_total():
    """A reversal is a turn of the total. A change of variants alone is none."""
    steps = {10.0: {"a": 3}, 20.0: {"a": 2, "b": 2}, 30.0: {"a": 5}, 40.0: {"a": 1}, 50.0: {"a": 2}, 60.0: {"a": 3}}
    found, _ = outcome(scene(evenly(1, 100), variant("a"), variant("b")), ScriptedScale(steps))
    assert found.reversals == 2


def test_no_request_is_no_failure():
    """Without requests no request is late, so the run is no failure."""
    found, drawn = outcome(scene(of_times(np.empty(0), 120.0)))
    assert (found.requests, found.attainment, found.ttft_p50_seconds) == (0, 1.0, None)
    assert set(drawn.late_share) == {None}


def test_the_timeline_has_load_replicas_and_lateness():
    """The timeline has load, replicas and lateness for each instant."""
    times = np.concatenate([evenly(1, 300).arrival_seconds, np.linspace(150.0, 160.0, 600)])
    found, drawn = outcome(
        scene(of_times(np.sort(times), 300.0), gateway=GatewaySettings()), ScriptedScale({100.0: {"a": 2}})
    )
    assert len(drawn.offered_per_second) == len(drawn.waiting) == len(drawn.late_share) == 11
    assert sum(drawn.offered_per_second) * drawn.step_seconds == found.requests
    assert max(share for share in drawn.late_share if share is not None) > 0.5
    assert drawn.late_share[2] == 0.0
    only = drawn.variants[0]
    assert only.asked[0] == only.ready[0] == 1
    assert (only.asked[5], only.existing[5], only.ready[5], only.ready[7]) == (2, 2, 1, 2)
