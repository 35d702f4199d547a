"""The worlds of the scorecard in which something goes wrong: each does to a fleet what its title says."""

from __future__ import annotations

from statistics import fmean

import pytest

from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.fleet.users import Routing
from wva.sim.rivals import run
from wva.sim.scorecard.fleets import GATEWAY
from wva.sim.scorecard.learning import LEARNING
from wva.sim.scorecard.suites import SCENARIOS, SUITES
from wva.sim.scorecard.worlds import SHORT_WORLDS, WORLDS
from wva.sim.stage.scenario import WorldObservation


def outcome(scenario, policy="wva"):
    """Return the figures of one run of a policy."""
    return run(scenario, policy, 1).figures


def test_every_fault_and_load_has_a_short_version_in_the_quick_suite():
    """A short version has the kind of its world and the same kinds of faults, and is over within an hour."""
    worlds = {scenario.kind: scenario for scenario in (*WORLDS, *LEARNING)}
    assert set(SUITES["quick"]) >= {scenario.name for scenario in SHORT_WORLDS}
    assert set(SUITES["full"]) >= {scenario.name for scenario in WORLDS}
    assert set(SUITES["learning"]) == {scenario.name for scenario in LEARNING}
    for short in SHORT_WORLDS:
        assert [type(fault) for fault in worlds[short.kind].faults[:3]] == [type(fault) for fault in short.faults]
        assert short.traffic(1).duration_seconds <= 3600.0
    shortened = {short.kind for short in SHORT_WORLDS}
    assert not [scenario.name for scenario in WORLDS if scenario.faults and scenario.kind not in shortened]


@pytest.mark.parametrize("name", [scenario.name for scenario in SHORT_WORLDS if scenario.faults])
def test_faults_make_requests_late(name):
    """With the faults fewer requests are in time than without them."""
    scenario = SCENARIOS[name]
    assert outcome(scenario).attainment < outcome(replace(scenario, faults=())).attainment - 0.005


def test_at_half_speed_it_is_the_time_between_tokens_that_is_late():
    """On pods at half speed answers are slow, while most first tokens come in time."""
    found = outcome(SCENARIOS["half-speed-short"])
    assert found.itl_attainment < found.ttft_attainment
    assert found.itl_attainment < 0.99


def test_in_a_retry_storm_users_come_back():
    """Users who wait 4 s send far more attempts than patient ones, and fewer of them are served in time."""
    storm = SCENARIOS["retry-storm-short"]
    found, patient = outcome(storm), outcome(replace(storm, gateway=GATEWAY))
    assert found.retried > 3 * patient.retried
    assert found.timed_out > 0


def test_agents_depend_on_the_routing_by_prefix():
    """Sent to random replicas, prompts of agents are not in their caches, and fewer first tokens come in time."""
    scenario = SCENARIOS["agents-short"]
    scattered = replace(scenario, gateway=replace(scenario.gateway, routing=Routing.RANDOM))
    assert outcome(scenario, "hpa-inflight").attainment > outcome(scattered, "hpa-inflight").attainment + 0.01


@pytest.mark.parametrize("name", ["viral-short", "canary-short", "office-short"])
def test_the_fleet_follows_a_load_that_grows(name):
    """The fleet grows beyond its first replicas, and most requests are in time."""
    found = outcome(SCENARIOS[name])
    assert found.peak_replicas > len(SCENARIOS[name].variants)
    assert found.attainment > 0.6


def test_the_judge_measures_at_the_objective_of_the_scenario():
    """The same run has the more requests in time the later the first token may come."""
    scenario = SCENARIOS["upstream-ramp-short"]
    shares = [
        outcome(replace(scenario, objectives=Objectives(ttft_seconds=seconds)), "hpa-inflight").ttft_attainment
        for seconds in (0.3, 1.0, 3.0, 10.0)
    ]
    assert shares == sorted(set(shares))
    for name in ("upstream-ramp", "sine", "conversation"):
        told = [SCENARIOS[f"{name}{end}"].objectives.ttft_seconds for end in ("-300ms", "", "-3s", "-10s")]
        assert told == [0.3, 1.0, 3.0, 10.0]


def test_rare_scrapes_make_a_policy_late():
    """With a scrape per minute a jump is seen later than with six, whatever the phases are."""

    def in_time(scrape_seconds):
        scenario = replace(SCENARIOS["step-short"], observation=WorldObservation(scrape_seconds=scrape_seconds))
        return fmean(run(scenario, "wva", seed).figures.attainment for seed in (1, 2, 3))

    assert in_time(60.0) < in_time(10.0) - 0.03
    assert [SCENARIOS[f"scrapes-{seconds}s"].observation.scrape_seconds for seconds in (30, 60)] == [30.0, 60.0]
