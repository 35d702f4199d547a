"""Runs are made once, on several processes, and kept in files that are the same each time."""

from __future__ import annotations

from functools import partial

import grimp
import pytest

from tests.sim.scorecard import fakes
from wva.model.records import replace
from wva.sim.scorecard.runs import PACKAGE, Job, Workshop, outcomes, program_digest, simulator_digest

POLICIES = ("wva", "hpa-kv")


def jobs(of=None, seeds=(0, 1)):
    """Return a job for each policy and seed."""
    return [Job(of or fakes.scenario(), policy, seed) for seed in seeds for policy in POLICIES]


def made(workshop, wanted, workers=1):
    """Make jobs and return how they ended, in a fixed order."""
    found = outcomes(wanted, workshop, workers=workers)
    return sorted(found, key=lambda outcome: (outcome.policy, outcome.seed))


def contents(folder):
    """Return the bytes of every file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_two_processes_write_what_one_does(tmp_path):
    """Byte by byte, and no file beside the results."""
    one = made(Workshop(fakes.run, tmp_path / "one", "p"), jobs())
    two = made(Workshop(fakes.run, tmp_path / "two", "p"), jobs(), workers=2)
    assert one == two
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert set(contents(tmp_path / "one")) == {f"waves/{policy}.{seed}.json" for policy in POLICIES for seed in (0, 1)}


def test_what_is_kept_is_not_made_again(tmp_path):
    """An interrupted command continues."""
    first = made(Workshop(fakes.run, tmp_path, "p"), jobs(seeds=(0,)))
    again = made(Workshop(fakes.no_run, tmp_path, "p"), jobs(seeds=(0,)))
    assert [outcome.result for outcome in again] == [outcome.result for outcome in first]
    assert all(outcome.kept for outcome in again)


@pytest.mark.parametrize(
    ("program", "of"),
    [
        ("another", fakes.scenario()),
        ("p", fakes.scenario(count=41)),
        ("p", replace(fakes.scenario(), interval_seconds=60.0)),
        ("p", replace(fakes.scenario(), traffic=partial(fakes.requests_of, seconds=601.0))),
    ],
)
def test_what_determines_a_run_makes_it_stale(tmp_path, program, of):
    """The program, the traffic, the scenario."""
    made(Workshop(fakes.run, tmp_path, "p"), jobs())
    again = made(Workshop(fakes.run, tmp_path, program), jobs(of))
    assert not any(outcome.kept for outcome in again)


@pytest.mark.parametrize(
    "content", [b'{"key": ', b'{"key": "\xff"}', b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"]
)
def test_a_file_that_holds_no_result_is_made_again(tmp_path, content):
    """As after a full disk, or a disk that has changed some bytes."""
    workshop = Workshop(fakes.run, tmp_path, "p")
    made(workshop, jobs())
    workshop.file(jobs()[0]).write_bytes(content)
    assert [outcome.kept for outcome in made(workshop, jobs())].count(False) == 1


def test_one_run_that_fails_is_told_and_the_others_go_on(tmp_path):
    """With its scenario, policy and seed."""
    found = made(Workshop(fakes.broken_run, tmp_path, "p"), jobs())
    (failed,) = [outcome for outcome in found if outcome.result is None]
    assert (failed.scenario, failed.policy, failed.seed) == ("waves", "hpa-kv", 1)
    assert failed.problem.startswith("RuntimeError: a bug (fakes.py:")
    assert len(found) == 4


def test_a_process_that_is_killed_is_told(tmp_path):
    """As by a system that has no memory left. What was not made has no result."""
    found = made(Workshop(fakes.killed_run, tmp_path, "p"), jobs(), workers=2)
    assert len(found) == 4
    lost = [outcome for outcome in found if outcome.result is None]
    assert lost
    assert all(outcome.problem.startswith("a process was killed") for outcome in lost)


def test_the_program_is_what_decides_and_simulates(tmp_path):
    """A change of how results are shown keeps them."""
    for name in ("decide/a.py", "cli/b.py", "sim/scorecard/c.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("1", encoding="utf-8")
    before = program_digest(tmp_path)
    (tmp_path / "cli/b.py").write_text("2", encoding="utf-8")
    (tmp_path / "sim/scorecard/c.py").write_text("2", encoding="utf-8")
    assert program_digest(tmp_path) == before
    (tmp_path / "decide/a.py").write_text("2", encoding="utf-8")
    assert program_digest(tmp_path) != before


def test_a_change_of_a_decision_keeps_the_runs_of_rivals(tmp_path):
    """And of nothing else."""
    rivals = {"hpa-kv"}
    made(Workshop(fakes.run, tmp_path, "p", "s", rivals), jobs(seeds=(0,)))
    again = made(Workshop(fakes.run, tmp_path, "q", "s", rivals), jobs(seeds=(0,)))
    assert {outcome.policy: outcome.kept for outcome in again} == {"hpa-kv": True, "wva": False}
    other = made(Workshop(fakes.run, tmp_path, "q", "t", rivals), jobs(seeds=(0,)))
    assert {outcome.policy: outcome.kept for outcome in other} == {"hpa-kv": False, "wva": True}


def test_the_simulator_is_all_that_rivals_import(tmp_path):
    """What they import, directly or not, is in the digest, but for the module that runs the shipped decisions."""
    graph = grimp.build_graph("wva")
    of_wva = "wva.sim.rivals.wva"
    to_see = ["wva.sim.stage.run", "wva.sim.rivals"]
    seen = {of_wva}
    while to_see:
        module = to_see.pop()
        if module not in seen:
            seen.add(module)
            to_see += graph.find_modules_directly_imported_by(module)
    for module in sorted(seen):
        place = PACKAGE.parent / module.replace(".", "/")
        source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        copy = tmp_path / source.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        before = simulator_digest(tmp_path)
        copy.write_text("1", encoding="utf-8")
        assert (simulator_digest(tmp_path) != before) == (module != of_wva), module
