"""WVA on the stage: the shipped decisions, and the way of its number to the Deployment."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.sim.stage.scenes import evenly, of_times, scene, variant
from wva.decide.pipeline import conclude
from wva.model.records import replace
from wva.sim.fleet.users import GatewaySettings
from wva.sim.rivals import wva as rival
from wva.sim.rivals.wva import SETUPS, controllers
from wva.sim.scorecard.suites import SCENARIOS
from wva.sim.stage.run import figures
from wva.sim.stage.world import StageWorld


def play(name, scenario, *more, seed=1):
    """Run a configuration in a scene and return its world."""
    world = StageWorld(scenario, seed=seed)
    world.run([*controllers(SETUPS[name], scenario), *more])
    return world


@pytest.mark.parametrize("name", SETUPS)
def test_every_configuration_grows_under_overload_and_shrinks_after_it(name):
    """One replica carries ten requests per second. At thirty WVA adds replicas, and removes them afterwards."""
    times = [
        evenly(2, 300).arrival_seconds,
        300 + evenly(30, 600).arrival_seconds,
        900 + evenly(1, 1800).arrival_seconds,
    ]
    traffic = of_times([at for part in times for at in part], 2700.0)
    world = play(name, scene(traffic, variant("a", price=10.0), variant("b", price=20.0, minimum=0, replicas=0)))
    totals = [sum(moment.asked) for moment in world.moments]
    assert max(totals) >= 3
    assert totals[-1] < max(totals)


def test_the_number_takes_its_time_to_the_deployment():
    """The number passes the cycle, the scrape of the controller, the adapter and the HPA's poll, which take time."""
    scenario = scene(evenly(40, 600), gateway=GatewaySettings(), interval_seconds=30.0)
    world = StageWorld(scenario, seed=3)
    cycles, *others = controllers(SETUPS["wva"], scenario)
    world.run([cycles, *others])
    decided = next(at for at, number in cycles._shown["a"] if number > 1)
    applied = world.asked[0].at_seconds
    assert applied > decided + scenario.observation.adapter_seconds
    assert applied < decided + scenario.observation.adapter_seconds + 10.0 + scenario.hpa_seconds


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_rise_between_two_cycles_is_decided_on_within_seconds_of_the_scrape_that_shows_it(seed):
    """The fast lane looks every four seconds, and begins the next cycle; without it the rise waits for a minute."""
    times = [evenly(2, 400).arrival_seconds, 400 + evenly(40, 200).arrival_seconds]
    traffic = of_times([at for part in times for at in part], 600.0)
    waits = []
    for fast_lane_seconds in (4.0, 0.0):
        scenario = scene(traffic, interval_seconds=60.0)
        world = StageWorld(scenario, seed=seed)
        world.run(controllers(replace(SETUPS["wva"], fast_lane_seconds=fast_lane_seconds), scenario))
        waits.append(next(change.at_seconds for change in world.wanted if change.after > change.before) - 400.0)
        between = [later - earlier for (earlier, _), (later, _) in pairwise(world.looks) if earlier > 200.0]
        assert max(between) <= (fast_lane_seconds or 60.0) + 1.5
    assert waits[0] <= waits[1]
    assert waits[0] <= scenario.observation.scrape_seconds + 6.0


def test_a_cycle_that_the_fast_lane_has_begun_puts_off_the_next_one():
    """An interval lies between a cycle and the next one, whoever began it, unless the fast lane begins that too."""
    setup, scenario = SETUPS["wva"], scene(evenly(40, 600), interval_seconds=30.0)
    cycles, *others = controllers(setup, scenario)
    begun = []
    cycle = cycles._cycle

    def noted(stage, now_seconds, urgent):
        begun.append((now_seconds, cycles.due))
        cycle(stage, now_seconds, urgent)

    cycles._cycle = noted
    StageWorld(scenario, seed=1).run([cycles, *others])
    woken = [at for at, due in begun if at < due]
    assert woken
    assert all(due == before + 30.0 for (before, _), (_, due) in pairwise(begun))


def test_the_engine_is_told_which_cycles_the_fast_lane_has_begun(monkeypatch):
    """Those that begin less than an interval after the one before."""
    told = []

    def concluding(snapshot, memory, policy, now):
        told.append((now, snapshot.woken))
        return conclude(snapshot, memory, policy, now)

    monkeypatch.setattr(rival, "conclude", concluding)
    times = [evenly(2, 400).arrival_seconds, 400 + evenly(40, 200).arrival_seconds]
    play("wva", scene(of_times([at for part in times for at in part], 600.0), interval_seconds=60.0))
    early = [after - before < 59.9 for (before, _), (after, _) in pairwise(told)]
    assert [woken for _, woken in told[1:]] == early
    assert {woken for _, woken in told} == {True, False}


@pytest.mark.parametrize(("name", "told"), [("half-speed-short", True), ("random-routing-short", False)])
def test_pods_at_half_speed_are_named_and_busy_ones_are_not(monkeypatch, name, told):
    """In one world every second pod is slow; in the other chance decides how many requests a pod gets."""
    slow, scenario = [], SCENARIOS[name]

    def concluding(snapshot, memory, policy, now):
        outcome = conclude(snapshot, memory, policy, now)
        slow.extend(each.engines.message for each in outcome.decisions if each.engines.reason == "EnginesSlow")
        return outcome

    monkeypatch.setattr(rival, "conclude", concluding)
    play("wva", scenario)
    assert bool(slow) is told
    assert all("(2 times as long" in words or "(1.9 times as long" in words for words in slow[-1:])


def test_the_adapter_knows_the_last_scrape_before_its_own_look():
    """Prometheus scrapes the page every ten seconds, and the adapter's answer is five seconds old."""
    scenario = scene(evenly(1, 60))
    _, scalers, _ = controllers(SETUPS["wva"], scenario)
    assert [scalers.scraped(now) for now in (99.0, 104.9, 105.0, 114.9, 115.1)] == [90.0, 90.0, 100.0, 100.0, 110.0]


def test_the_cheaper_variant_grows_first():
    """Of two variants, the cheaper one grows first."""
    traffic = evenly(25, 1200)
    world = play("wva", scene(traffic, variant("dear", price=40.0), variant("cheap", price=20.0)))
    assert world.asked[0].variant == "cheap"


def test_a_model_at_zero_is_started_and_goes_to_zero_again():
    """One request starts the model. Ten minutes after the last request it goes to zero."""
    setup = variant(minimum=0, replicas=0)
    gateway = GatewaySettings(patience_seconds=300.0)
    world = play("wva", scene(of_times([100.0, 500.0], 3600.0), setup, gateway=gateway))
    assert [(change.before, change.after) for change in world.asked] == [(0, 1), (1, 0)]
    up, down = (change.at_seconds for change in world.asked)
    assert 100.0 <= up <= 120.0
    assert 500.0 + 600.0 < down < 500.0 + 600.0 + 400.0
    assert figures(world).served == 2


def test_without_scrapes_nothing_moves():
    """Without scrapes WVA keeps the numbers."""
    scenario = scene(evenly(2, 900), variant(replicas=3))
    world = StageWorld(scenario, seed=1)
    world._lost = lambda: True
    world.run(controllers(SETUPS["wva"], scenario))
    assert world.asked == []


def test_v0_5_decides_as_often_as_it_did() -> None:
    """WVA 0.5 ignored the setting and had 30 s built in. The two configurations differ in the HPA's window."""
    slow, fast = SETUPS["wva-v0.5"], SETUPS["wva-v0.5-fast-hpa"]
    assert (slow.interval_seconds, fast.interval_seconds) == (30.0, 30.0)
    assert (slow.up_seconds, slow.down_seconds, fast.up_seconds, fast.down_seconds) == (240.0, 240.0, 0.0, 0.0)
