"""What is possible without seeing the future, beside what is worked out by hand and what a run comes to."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.stage.scenes import ScriptedScale, evenly, of_times, scene, variant
from wva.model.records import replace
from wva.sim.stage.causal import causal_bound, surprises
from wva.sim.stage.demand import DemandOverTime
from wva.sim.stage.links import Reference
from wva.sim.stage.run import figures
from wva.sim.stage.scenario import Objectives, StartUp
from wva.sim.stage.world import StageWorld
from wva.sim.traffic.arrivals import renewal
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.streams import stream

TEN = 10.0
"""Requests per second that a replica carries in most of these tests: about what the engine of the scenes serves."""
SECONDS = 1200.0
STEP = RateProfile(((0.0, 5.0), (600.0, 5.0), (600.0, 30.0), (SECONDS, 30.0)))


def traffic(rate, seconds=SECONDS):
    """Return requests that come as the rate has it, without chance."""
    at = renewal(stream(0, "a"), rate, duration_seconds=seconds, gaps=lambda _, count: np.ones(count))
    return replace(of_times(at, seconds), rate=rate.points)


def bound(rate, *, seconds=SECONDS, capacity=TEN, **changes):
    """Return the bound for a variant that carries ten requests per second and starts in a minute."""
    setup = replace(variant(maximum=9), **changes)
    moments = int(seconds / 10)
    carried = np.full((moments, 1), capacity) if np.isscalar(capacity) else np.array(capacity).reshape(-1, 1)
    return causal_bound(scene(evenly(1, 1), setup), traffic(rate, seconds), DemandOverTime(np.zeros(moments), carried))


def test_nobody_serves_the_first_start_up_after_a_jump():
    """One replica is there when three are needed: for a minute what it cannot serve is late."""
    found = bound(STEP)
    missing = (30.0 - TEN) * 60.0
    assert 1.0 - found == pytest.approx(missing / (600 * 5 + 600 * 30), rel=0.25)
    assert bound(STEP, start_up=StartUp(120.0, 0.0)) < found
    assert bound(STEP, replicas=3, minimum=3) == 1.0, "spare replicas that nobody may take away"


def test_a_spread_of_start_ups_is_on_average():
    """With a spread the pods come one after the other; those that pull their image come later."""
    spread = bound(STEP, start_up=StartUp(60.0, 0.25))
    assert spread == pytest.approx(bound(STEP), abs=0.01)
    assert bound(STEP, start_up=StartUp(60.0, 0.25, pull_probability=0.5, pull_seconds=120.0)) < spread - 0.01


def test_what_is_known_beforehand_is_served():
    """A course without a surprise, such as a swing, costs nobody a request; neither does a fall."""
    swing = RateProfile(tuple((60.0 * step, 15.0 - 10.0 * np.cos(step / 3.0)) for step in range(21)))
    fall = RateProfile(((0.0, 30.0), (600.0, 30.0), (600.0, 5.0), (SECONDS, 5.0)))
    assert bound(swing, replicas=2, minimum=1) > 0.999
    assert bound(fall, replicas=3) == 1.0


def test_of_a_ramp_only_the_beginning_is_a_surprise():
    """A rise out of a level is a surprise when it begins, and known from then on: a ramp loses less than a jump."""
    ramp = RateProfile(((0.0, 5.0), (600.0, 5.0), (660.0, 30.0), (SECONDS, 30.0)))
    slow = RateProfile(((0.0, 5.0), (600.0, 5.0), (1100.0, 30.0), (SECONDS, 30.0)))
    assert bound(STEP) < bound(ramp) < bound(slow) == 1.0


def test_what_repeats_is_known_after_two_times():
    """Jumps at equal distances are surprises twice; at other distances each time."""
    even = np.ones((400, 1))

    def jumps(*times):
        points = [(0.0, 1.0)]
        for at in times:
            points += [(at, 1.0), (at, 9.0), (at + 100.0, 9.0), (at + 100.0, 1.0)]
        return RateProfile(tuple(points))

    assert surprises(jumps(300.0, 900.0, 1500.0, 2100.0), even) == (300.0, 900.0)
    assert surprises(jumps(300.0, 1000.0, 1500.0, 2100.0), even) == (300.0, 1000.0, 1500.0, 2100.0)


def test_requests_that_become_larger_are_a_surprise():
    """When a replica suddenly carries much less, that is a surprise, too; a little less is noise."""
    steady = RateProfile.constant(9.0)
    smaller = [10.0] * 60 + [9.5] * 60
    assert surprises(steady, np.array(smaller).reshape(-1, 1)) == ()
    halved = np.array([10.0] * 60 + [5.0] * 60).reshape(-1, 1)
    assert surprises(steady, halved) == (600.0,)


def test_prompts_that_are_late_on_an_idle_replica_are_late_for_everybody():
    """A third of the prompts takes longer than users accept, so two thirds at most are in time."""
    of = traffic(RateProfile.constant(9.0))
    of = replace(of, prompt_tokens=np.where(np.arange(of.count) % 3 == 0, 2000, 200))
    scenario = replace(scene(of), objectives=Objectives(ttft_seconds=0.15))
    needed = DemandOverTime(np.zeros(120), np.full((120, 1), TEN))
    assert causal_bound(scenario, of, needed) == pytest.approx(2 / 3, abs=0.001)


def test_of_an_unknown_rate_there_is_no_bound():
    """Of a trace nobody knows the rate, so nothing is said."""
    assert causal_bound(scene(evenly(1, 60)), evenly(1, 60), DemandOverTime(np.zeros(6), np.full((6, 1), TEN))) is None


def test_a_run_stays_below_it():
    """A policy that orders what is needed at the very moment of the jump comes near to the bound, and not above it."""
    of = traffic(STEP)
    scenario = scene(of, variant(maximum=9))
    reference = Reference.of(scenario, of)
    world = StageWorld(scenario, seed=1, traffic=of)
    world.run([ScriptedScale({600.0: {"a": int(reference.counts[80, 0])}})])
    found = figures(world, reference)
    assert found.causal_bound == reference.bound
    assert reference.bound - 0.08 < found.attainment <= reference.bound
