"""What the demo's run is compared with: the same requests, and the policies of the scorecard."""

from __future__ import annotations

import os
import signal
from multiprocessing import active_children

from wva.sim.stage.world import StageWorld
from wva.sim.world.baseline import COMPARED, ComparisonProcess, comparable, compared
from wva.sim.world.scenarios import SCENARIOS
from wva.sim.world.world import EmbeddedWorld

QUICK = SCENARIOS["quickstart"].lasting(120.0)


def test_the_requests_are_those_of_the_run():
    """As many arrive in the fleet of the world."""
    world = EmbeddedWorld(QUICK, seed=3)
    world.fleet.advance(120.0)
    assert StageWorld(QUICK, seed=3).traffic.count == world.model_now.arrived > 200


def test_both_policies_serve_them():
    """The fixed fleet costs what its replicas cost all the time."""
    found = compared(QUICK, 3)
    assert found.keys() == COMPARED.keys()
    assert all(figures.requests > 200 and figures.cost > 0 for figures in found.values())
    assert found["static-peak"].peak_replicas == found["static-peak"].mean_replicas


def test_incidents_are_not_compared():
    """The stage has no outage, and a run of a minute says nothing."""
    assert {name for name, each in SCENARIOS.items() if comparable(each, 3600.0)} == {
        "quickstart",
        "surge",
        "prefill-decode",
    }
    assert not comparable(QUICK, 60.0)


def test_ctrl_c_does_not_reach_the_process_beside():
    """Not while it starts either: a terminal sends it to all processes, and the run says what has become of it."""
    before = set(active_children())
    beside = ComparisonProcess(QUICK, 3)
    (process,) = set(active_children()) - before
    for _ in range(40):
        if process.is_alive():
            os.kill(process.pid, signal.SIGINT)
        process.join(0.05)
    found = beside.figures()
    assert found is not None
    assert found.keys() == COMPARED.keys()
