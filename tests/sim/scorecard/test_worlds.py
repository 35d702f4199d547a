"""The worlds of the scorecard in which something goes wrong: each does to a fleet what its title says."""

from __future__ import annotations

import pytest

from wva.model.records import replace
from wva.sim.rivals import run
from wva.sim.scorecard.suites import SCENARIOS, SUITES
from wva.sim.scorecard.worlds import SHORT_WORLDS, WORLDS


def outcome(scenario, policy="wva"):
    """Return the figures of one run of a policy."""
    return run(scenario, policy, 1).figures


def test_every_world_has_a_short_version_in_the_quick_suite():
    """A world's short version has its kind and its faults, and is over in at most an hour."""
    short = {scenario.kind: scenario for scenario in SHORT_WORLDS}
    assert set(SUITES["quick"]) >= {scenario.name for scenario in SHORT_WORLDS}
    assert set(SUITES["full"]) >= {scenario.name for scenario in WORLDS}
    assert short.keys() <= {scenario.kind for scenario in WORLDS}
    for scenario in WORLDS:
        if scenario.faults:
            assert {type(fault) for fault in scenario.faults} == {type(each) for each in short[scenario.kind].faults}
    for scenario in SHORT_WORLDS:
        assert scenario.traffic(1).duration_seconds <= 3600.0


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
