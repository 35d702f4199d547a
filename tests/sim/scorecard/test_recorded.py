"""Recorded runs join a scorecard where they are comparable and say something new."""

from __future__ import annotations

import pytest

from tests.sim.scorecard import fakes
from wva.model.records import replace
from wva.sim.rivals import POLICIES
from wva.sim.scorecard.quality import SuitePlan, judge, write
from wva.sim.scorecard.recorded import (
    FOLDER,
    NO_TIMELINE,
    WITNESS,
    RecordedRun,
    RecordedRuns,
    joining,
    record,
    recordings,
    save,
)
from wva.sim.scorecard.runs import RunJob, Workshop
from wva.sim.scorecard.suites import SCENARIOS

SCENARIO = fakes.scenario()
SEEDS = (1, 2)


def result(policy, seed, **changes):
    """Return a made-up run with some figures changed."""
    found = fakes.run(SCENARIO, policy, seed)
    return replace(found, figures=replace(found.figures, **changes))


def recording(*policies, seeds=SEEDS, ending="-v0.6.0", witness=None, **changes):
    """Return recorded runs of policies, whose figures are those of a run now but for the changes."""
    runs = tuple(
        RecordedRun(
            SCENARIO.name,
            policy,
            seed,
            result(policy, seed, **changes).figures,
            result(WITNESS, seed, **(witness or {})).figures,
        )
        for policy in policies
        for seed in seeds
    )
    return RecordedRuns("WVA 0.6.0", "a command", ending, runs)


def joined(*found, policies=("wva", WITNESS)):
    """Return the names and seeds of what joins the runs of policies."""
    now = [result(policy, seed) for policy in policies for seed in SEEDS]
    return [(run.policy, run.seed) for run in joining(found, SCENARIO, now)]


def test_a_policy_that_is_gone_joins_under_the_name_of_its_release() -> None:
    """A recorded policy that runs no more is beside the present ones, with every seed."""
    assert joined(recording("wva-queueing")) == [("wva-queueing-v0.6.0", 1), ("wva-queueing-v0.6.0", 2)]
    assert joined(recording("planner", ending="")) == [("planner", 1), ("planner", 2)]


def test_a_policy_that_does_the_same_now_says_nothing_new() -> None:
    """Of a policy that still runs, the record shows once its figures differ."""
    assert joined(recording("wva")) == []
    assert joined(recording("wva", attainment=0.9)) == [("wva-v0.6.0", 1), ("wva-v0.6.0", 2)]


def test_runs_of_another_world_stay_out() -> None:
    """What the witness did then has to be what it does now; without the witness nobody knows."""
    assert joined(recording("wva-queueing", witness={"cost": 1.0})) == []
    assert joined(recording("wva-queueing", witness={"ideal_cost": 1.0})) == []
    assert joined(recording("wva-queueing"), policies=("wva",)) == []


def test_a_policy_that_lacks_a_seed_stays_out() -> None:
    """Policies are compared seed by seed."""
    assert joined(recording("wva-queueing", seeds=(1,))) == []
    assert joined(recording("wva-queueing", seeds=(1, 2, 3))) == [
        ("wva-queueing-v0.6.0", 1),
        ("wva-queueing-v0.6.0", 2),
    ]


def test_a_file_keeps_the_runs(tmp_path) -> None:
    """A file is read as it was written, but for the digits that nobody needs; and still tells its world."""
    save(recording("wva-queueing"), tmp_path / "folder" / "0.6.0.json")
    (found,) = recordings(tmp_path / "folder")
    assert found.policies == ("wva-queueing-v0.6.0",)
    assert [run.seed for run in found.runs] == [1, 2]
    exact = result("wva-queueing", 1).figures
    assert found.runs[0].figures.cost == pytest.approx(exact.cost, rel=1e-5)
    assert found.runs[0].figures.late_by_cause == exact.late_by_cause
    assert len(joined(found)) == 2
    assert (tmp_path / "folder" / "0.6.0.json").read_text(encoding="utf-8").count("\n") < 12


def test_a_file_that_is_none_is_named(tmp_path) -> None:
    """A broken file is an error that names it."""
    (tmp_path / "broken.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"broken\.json: .*expected recorded runs"):
        recordings(tmp_path)


def test_the_runs_of_a_release_are_recorded_with_their_witness(tmp_path) -> None:
    """RecordedRuns takes the kept runs, and makes those of the witness where they are missing."""
    workshop = Workshop(fakes.run, tmp_path, "p")
    made = record([RunJob(SCENARIO, "wva", 1)], workshop, source="WVA 0.6.0", command="c", ending="-v0.6.0")
    assert made.runs == recording("wva", seeds=(1,)).runs


def test_a_run_that_fails_is_not_recorded(tmp_path) -> None:
    """An error names the run."""
    workshop = Workshop(fakes.broken_run, tmp_path, "p")
    with pytest.raises(ValueError, match="waves, hpa-kv, seed 1: RuntimeError: a bug"):
        record([RunJob(SCENARIO, "hpa-kv", 1)], workshop, source="s", command="c", ending="")


def test_a_scorecard_has_the_recorded_runs_and_says_whose_they_are(tmp_path) -> None:
    """They are in the tables and in the comparisons, and the plots, which they lack, do without them."""
    plan = SuitePlan(
        title="Scorecard",
        scenarios=(SCENARIO,),
        policies=("wva", WITNESS, "clairvoyant"),
        families=(),
        seeds=SEEDS,
        order=("wva",),
        recorded=(recording("wva-queueing"),),
    )
    found = judge(plan, Workshop(fakes.run, tmp_path / "runs", "p"), workers=1, progress=lambda *_: None)
    (part,) = found.parts
    cell = part.cell("wva-queueing-v0.6.0")
    assert cell is not None
    assert len(cell.attainments) == 2
    assert "wva-queueing-v0.6.0" not in part.timelines
    assert "WVA 0.6.0: recorded by `a command` in 1 of these scenarios" in found.notes[0]
    write(found, tmp_path)
    page = (tmp_path / "scorecard.html").read_text(encoding="utf-8")
    assert "wva-queueing-v0.6.0" in page
    assert '<option value="wva-queueing-v0.6.0"' not in page


def test_the_recorded_runs_are_of_known_scenarios() -> None:
    """Each file of the repository is readable, has runs of scenarios that exist, and the witness is a policy."""
    assert WITNESS in POLICIES
    assert NO_TIMELINE.variants == ()
    for found in recordings(FOLDER):
        assert {run.scenario for run in found.runs} <= set(SCENARIOS)
        assert found.source
        assert found.command
