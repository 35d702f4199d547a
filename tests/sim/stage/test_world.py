"""Pods start and end on the stage, and are scraped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.stage.scenes import ENGINE, PATIENT, ScriptedScale, evenly, of_times, scene, variant
from wva.sim.fleet.columns import BROKEN, REFUSED, SERVED, TIMED_OUT
from wva.sim.fleet.users import GatewaySettings, Routing
from wva.sim.stage.scenario import StartUp, WorldObservation
from wva.sim.stage.view import ScrapedSignal
from wva.sim.stage.world import StageWorld


def play(scenario, *controllers, seed=1):
    """Run a scene and return its world."""
    world = StageWorld(scenario, seed=seed)
    world.run(controllers)
    return world


def states(world):
    """Return the number of requests in each state."""
    return np.bincount(np.asarray(world.service.columns.state, dtype=int), minlength=9)


def test_first_replicas_serve_from_the_start():
    """The first replicas are Ready from the start, without a start-up."""
    world = play(scene(evenly(2, 60), variant(replicas=2)))
    assert states(world)[SERVED] == 120
    assert [replica.ready_seconds for replica in world.replicas] == [0.0, 0.0]
    assert all(replica.created_seconds < 0 for replica in world.replicas)


def test_a_new_pod_serves_after_its_start_up():
    """A new pod exists and costs at once, and serves after its start-up."""
    script = ScriptedScale({10.0: {"a": 2}})
    world = play(scene(evenly(2, 200)), script)
    new = world.replicas[1]
    assert new.created_seconds == pytest.approx(10.5, abs=0.5)
    assert new.ready_seconds == pytest.approx(new.created_seconds + 60.0)
    before = [pods["a"][1].ready for at, pods in script.seen if new.created_seconds < at < new.ready_seconds]
    after = [pods["a"][1].ready for at, pods in script.seen if at > new.ready_seconds]
    assert not any(before)
    assert all(after)
    assert new.row in list(world.service.columns.engine)


def test_a_variant_looks_new_only_after_a_change():
    """Some policies look each second: a look at what has not changed makes nothing new, and each change is seen."""
    script = ScriptedScale({10.0: {"a": 2}, 120.0: {"a": 1}})
    seen = []

    class EachSecond:
        period_seconds = 1.0

        def act(self, stage, now):
            view = stage.variants["a"]
            seen.append((now, view))
            assert view.replicas == len(view.pods)
            for pod in view.pods:
                ready = next(one.ready_seconds for one in world.replicas if one.name == pod.name)
                assert pod.ready_since == (ready if ready <= now else None)

    world = StageWorld(scene(evenly(2, 200)), seed=1)
    world.run((script, EachSecond()))
    assert len(seen) > 190
    assert len({id(view) for _, view in seen}) == 4  # one pod, another, both Ready, one


def test_start_up_has_a_spread_and_a_tail():
    """Most pods take about the median; some take longer, because they must pull the image."""
    start_up = StartUp(60.0, 0.2, pull_probability=0.3, pull_seconds=500.0)
    setup = variant(maximum=200)
    scenario = scene(evenly(1, 30), type(setup)("a", "A100", ENGINE, 1.0, maximum=200, start_up=start_up))
    world = play(scenario, ScriptedScale({1.0: {"a": 200}}))
    took = np.array([one.ready_seconds - one.created_seconds for one in world.replicas[1:]])
    slow = took > 400
    assert 0.15 < slow.mean() < 0.45
    assert np.median(took[~slow]) == pytest.approx(60.0, rel=0.1)
    assert took[~slow].std() > 5


def test_pods_that_do_not_serve_go_first_then_the_youngest():
    """As with a real Deployment, pods that do not serve are removed first, then the youngest."""
    script = ScriptedScale({5.0: {"a": 3}, 100.0: {"a": 5}, 110.0: {"a": 2}, 150.0: {"a": 1}})
    world = play(scene(evenly(1, 200)), script)
    assert [one.terminated_seconds is None for one in world.replicas] == [True, False, False, False, False]
    assert world.replicas[3].ended_seconds == world.replicas[4].ended_seconds == pytest.approx(110.5, abs=0.5)
    assert {world.replicas[1].terminated_seconds, world.replicas[2].terminated_seconds} != {None}
    ended = sorted(world.replicas[1:3], key=lambda one: one.terminated_seconds)
    assert ended[0].created_seconds >= ended[1].created_seconds


def test_of_pods_of_one_age_the_one_that_was_made_last_goes_first():
    """Also beyond nine pods, whose names are in another order than their numbers; the embedded world does the same."""
    world = play(scene(evenly(1, 100), variant(replicas=12)), ScriptedScale({50.0: {"a": 10}}))
    gone = [replica.number for replica in world.replicas if replica.terminated_seconds is not None]
    assert gone == [10, 11]


def test_a_pod_that_is_terminated_finishes_what_it_has():
    """A terminated pod takes no new requests, and ends when it is empty."""
    traffic = of_times(np.linspace(20.0, 20.5, 40), 60.0)
    world = play(scene(traffic, variant(replicas=2)), ScriptedScale({21.0: {"a": 1}}))
    gone = next(one for one in world.replicas if one.terminated_seconds is not None)
    assert states(world)[SERVED] == 40
    assert gone.terminated_seconds < gone.ended_seconds < gone.terminated_seconds + 15


def test_what_is_left_after_the_grace_period_is_broken():
    """Requests that are left after the grace period fail."""
    traffic = of_times(np.linspace(20.0, 20.5, 80), 120.0, output=400)
    world = play(scene(traffic, variant(replicas=2), drain_seconds=2.0), ScriptedScale({21.0: {"a": 1}}))
    assert states(world)[BROKEN] > 0
    assert states(world)[BROKEN] + states(world)[SERVED] + states(world)[TIMED_OUT] == 80


def test_without_replicas_requests_wait_at_the_gateway():
    """Requests wait at the gateway, up to its limit, until a pod becomes Ready."""
    setup = variant(replicas=0, minimum=0)
    gateway = GatewaySettings(queue_limit=5, patience_seconds=300.0)
    world = play(scene(evenly(1, 100), setup, gateway=gateway), ScriptedScale({3.0: {"a": 1}}))
    ready = world.replicas[0].ready_seconds
    assert states(world)[REFUSED] == pytest.approx(ready - 5, abs=2)
    assert states(world)[SERVED] == 100 - states(world)[REFUSED]


class Watcher:
    """A controller that records the newest scrape of the first pod at every call."""

    period_seconds = 5.0

    def __init__(self):
        """Nothing is noted yet."""
        self.found = []

    def act(self, stage, now_seconds):
        """Record the newest scrape."""
        scrapes = stage.scrapes("a-1-001")
        self.found.append((now_seconds, len(scrapes), scrapes[-1] if scrapes else None))


def test_scrapes_have_a_period_and_see_what_runs():
    """Scrapes have an even period, their counters only grow, and they see running requests."""
    watcher = Watcher()
    world = play(scene(evenly(5, 300)), watcher)
    scrapes = world.replicas[0].scrapes
    gaps = np.diff([scrape.at_seconds for scrape in scrapes])
    assert np.allclose(gaps, 15.0)
    success = [scrape.values[ScrapedSignal.SUCCESS] for scrape in scrapes]
    assert success == sorted(success)
    assert success[-1] > 1300
    assert all(0 <= scrape.values[ScrapedSignal.KV_USAGE] <= 1 for scrape in scrapes)
    assert any(scrape.values[ScrapedSignal.RUNNING] > 0 for scrape in scrapes)


def test_lost_scrapes_are_seen_as_lost():
    """About the given share of scrapes is lost."""
    world = play(scene(evenly(1, 3000), observation=WorldObservation(lost_share=0.2)))
    lost = [not scrape.values for scrape in world.replicas[0].scrapes]
    assert 0.02 < np.mean(lost) < 0.5


def test_scrapes_of_pods_are_not_in_step():
    """Prometheus scrapes each pod at its own phase."""
    world = play(scene(evenly(1, 100), variant(replicas=3)))
    phases = {round(replica.scrapes[0].at_seconds % 15.0, 3) for replica in world.replicas}
    assert len(phases) == 3


class Looker:
    """A controller that records the times of its calls and the gateway's queue."""

    def __init__(self, period_seconds=15.0):
        """Nothing is noted yet."""
        self.period_seconds = period_seconds
        self.at, self.queues = [], []

    def act(self, stage, now_seconds):
        """Look."""
        self.at.append(now_seconds)
        self.queues.append(stage.gateway_queue())


def test_controllers_are_out_of_step():
    """Each controller keeps its period. The seed chooses its phase, so that it is not in step with the scrapes."""
    first = []
    for seed in range(1, 9):
        lookers = Looker(30.0), Looker(15.0), Looker(15.0)
        play(scene(evenly(0, 120)), *lookers, seed=seed)
        assert all(np.allclose(np.diff(one.at), one.period_seconds) for one in lookers)
        assert all(0.0 <= one.at[0] < one.period_seconds for one in lookers)
        first.append([one.at[0] for one in lookers])
    moments = np.array(first)
    assert len(np.unique(moments)) == moments.size
    assert (np.abs(moments[:, 1] - moments[:, 2]) > 1.0).mean() > 0.5
    assert np.ptp(moments[:, 0]) > 10.0


def test_a_lost_scrape_of_the_gateway_is_no_queue_of_before():
    """After a lost scrape the queue is unknown: neither the former number nor zero."""
    gateway = GatewaySettings(queue_limit=1000, patience_seconds=1000.0)
    scenario = scene(
        evenly(1, 900), variant(replicas=0, minimum=0), gateway=gateway, observation=WorldObservation(lost_share=0.3)
    )
    looker = Looker()
    play(scenario, looker)
    known = [queue for queue in looker.queues[1:] if queue is not None]
    assert 0.1 < 1 - len(known) / len(looker.queues[1:]) < 0.5
    assert known == sorted(set(known))
    assert known[0] > 0


def test_a_new_pod_is_scraped_once_it_has_been_discovered():
    """Prometheus takes time to discover a new pod. It knows the pods that serve from the start."""
    observation = WorldObservation(scrape_seconds=1.0, discovery_seconds=10.0)
    world = play(scene(evenly(1, 120), observation=observation), ScriptedScale({10.0: {"a": 4}}))
    waits = [one.scrapes[0].at_seconds - one.ready_seconds for one in world.replicas]
    assert 0.0 <= waits[0] < 1.0
    assert all(10.0 <= wait < 11.0 for wait in waits[1:])


def test_a_pod_that_is_terminated_is_no_longer_scraped():
    """A terminated pod leaves the endpoints at once, although it still finishes its requests."""
    traffic = of_times(np.linspace(20.0, 20.5, 40), 60.0)
    scenario = scene(traffic, variant(replicas=2), observation=WorldObservation(scrape_seconds=0.1))
    world = play(scenario, ScriptedScale({21.0: {"a": 1}}))
    gone = next(one for one in world.replicas if one.terminated_seconds is not None)
    assert gone.ended_seconds - gone.terminated_seconds > 0.3
    assert gone.terminated_seconds - 0.11 < gone.scrapes[-1].at_seconds <= gone.terminated_seconds


@settings(max_examples=25, deadline=None)
@given(
    rates=st.lists(st.sampled_from([0.5, 4.0, 12.0, 40.0]), min_size=1, max_size=4),
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    routing=st.sampled_from(Routing),
    patience=st.sampled_from([2.0, 10.0, 60.0]),
    attempts=st.integers(1, 3),
)
def test_no_request_is_lost(rates, sizes, routing, patience, attempts):
    """In the end every request is served, timed out, refused or broken."""
    arrival = np.concatenate([60.0 * step + np.arange(int(rate * 60)) / rate for step, rate in enumerate(rates)])
    gateway = GatewaySettings(20, routing, 1.0, 0.5, patience_seconds=patience, attempts=attempts)
    script = ScriptedScale({20.0 + 35.0 * step: {"a": size} for step, size in enumerate(sizes)})
    world = play(scene(of_times(arrival, 60.0 * len(rates)), gateway=gateway, drain_seconds=5.0), script)
    ends = states(world)
    assert ends[SERVED] + ends[TIMED_OUT] + ends[REFUSED] + ends[BROKEN] == len(arrival)
    alive = [one.row for one in world.replicas if one.terminated_seconds is None]
    assert all(world.service.columns.used[row] == 0 for row in alive)


def test_the_same_seed_gives_the_same_world():
    """The same seed gives the same world, another seed another one."""
    scenario = scene(evenly(5, 300), observation=WorldObservation(lost_share=0.1))
    first, second, other = (play(scenario, ScriptedScale({50.0: {"a": 3}}), seed=seed) for seed in (1, 1, 2))
    assert first.moments == second.moments
    assert [one.scrapes for one in first.replicas] == [one.scrapes for one in second.replicas]
    assert [one.scrapes for one in first.replicas] != [one.scrapes for one in other.replicas]


def test_a_retry_is_the_same_user():
    """A retry is of the same user, whom the figures count once."""
    gateway = GatewaySettings(queue_limit=0, patience_seconds=30.0, attempts=3, retry_seconds=30.0)
    world = play(scene(evenly(1, 10), variant(replicas=0, minimum=0), gateway=gateway), ScriptedScale({1.0: {"a": 1}}))
    assert states(world)[SERVED] + states(world)[REFUSED] == 10
    assert max(world.service.columns.attempts) == 3
    assert PATIENT.attempts == 1
