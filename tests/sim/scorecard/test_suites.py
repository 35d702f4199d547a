"""Each scenario has its own name, and every engine can hold each of its requests."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from wva.model.records import replace
from wva.sim.scorecard.card import CLOSE
from wva.sim.scorecard.suites import DEFAULT_SEEDS, SCENARIOS, SUITES
from wva.sim.stage.causal import causal_bound
from wva.sim.stage.demand import STEP_SECONDS, DemandOverTime


def test_names_are_unique_and_every_scenario_is_in_a_suite():
    """Names are unique, because they are file names, too. Every scenario is in a suite; those of roles are in two."""
    names = [name for suite in SUITES.values() for name in suite if suite != SUITES["roles"]]
    assert len(set(names)) == len(names) == len(SCENARIOS)
    assert set(SUITES["roles"]) <= set(SUITES["full"])
    assert all(name == scenario.name for name, scenario in SCENARIOS.items())
    assert all(name.replace("-", "").isalnum() and name.islower() for name in names)
    assert len(SUITES["quick"]) >= 8
    assert DEFAULT_SEEDS.keys() == SUITES.keys()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_can_be_run(name):
    """Other processes can load it, its engines hold its longest request, and only the seed changes its traffic."""
    scenario = SCENARIOS[name]
    traffic = pickle.loads(pickle.dumps(scenario)).traffic(1)  # noqa: S301 - our own
    assert (traffic.arrival_seconds == scenario.traffic(1).arrival_seconds).all()
    assert not np.intersect1d(scenario.traffic(2).arrival_seconds, traffic.arrival_seconds).size
    longest = int((traffic.prompt_tokens + traffic.output_tokens).max())
    assert longest <= min(variant.parameters.max_model_len for variant in scenario.variants)
    assert traffic.duration_seconds > 2 * scenario.measured_from_seconds
    assert len({variant.name for variant in scenario.variants}) == len(scenario.variants) >= 2


@pytest.mark.parametrize("name", SUITES["learning"])
def test_a_scenario_to_learn_from_is_long(name):
    """Scenarios to learn from take hours: what a policy has learned counts in most of the time."""
    assert SCENARIOS[name].traffic(1).duration_seconds >= 4 * 3600.0


@pytest.mark.parametrize("name", ["bursts-regular", "bursts-slow-pods"])
def test_who_learns_is_told_from_who_does_not(name):
    """Who knows jumps that come again serves visibly more than the best of those to whom each is a surprise."""
    scenario = SCENARIOS[name]
    traffic = scenario.traffic(1)
    needed = DemandOverTime(np.zeros(int(traffic.duration_seconds / STEP_SECONDS)), np.empty(0))
    needed = replace(needed, capacity=np.tile([3.2, 5.9], (len(needed.rate), 1)))
    learns, forgets = (causal_bound(scenario, traffic, needed, learns=learns) for learns in (True, False))
    assert learns - forgets > 4 * CLOSE
