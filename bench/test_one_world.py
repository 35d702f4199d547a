"""Eight scenarios on the stage and in the embedded world: users in time and cost of the default policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.world.both import COST, SHARE, EmbeddedRun, StageRun
from wva import log
from wva.model.records import replace
from wva.sim.scorecard.suites import SCENARIOS

NAMES = (
    "sine-short",
    "step-short",
    "bursts-short",
    "ramp-short",
    "slow-pods-short",
    "prompts-short",
    "random-routing-short",
    "flash-crowd-short",
)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_both_cost_and_serve_the_same(name: str, tmp_path: Path) -> None:
    """With one seed; the cost is that of the cheapest sufficient fleet, times a number."""
    log.configure(level="error", encoding="console")
    scenario = replace(SCENARIOS[name], measured_from_seconds=0.0)
    stage, embedded = StageRun(scenario, seed=1), EmbeddedRun(scenario, tmp_path, seed=1)
    told = [f"{100 * one.share:.1f} % at {one.cost / stage.ideal:.3f}" for one in (stage, embedded)]
    print(f"\n{name:22} stage {told[0]}   embedded {told[1]}")
    assert embedded.cost == pytest.approx(stage.cost, rel=COST)
    assert embedded.share == pytest.approx(stage.share, abs=SHARE)
