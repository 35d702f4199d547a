"""Each run is made once, on several processes, and its file has the same bytes each time."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from tests.sim.scorecard import fakes
from wva.model.records import replace
from wva.sim.scorecard.runs import RunJob, Workshop, outcomes

POLICIES = ("wva", "hpa-kv")


def jobs(of=None, seeds=(0, 1)):
    """Return a job for each policy and seed."""
    return [RunJob(of or fakes.scenario(), policy, seed) for seed in seeds for policy in POLICIES]


def made(workshop, wanted, workers=1):
    """Make jobs and return how they ended, in a fixed order."""
    found = outcomes(wanted, workshop, workers=workers)
    return sorted(found, key=lambda outcome: (outcome.policy, outcome.seed))


def contents(folder):
    """Return the bytes of every file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_two_processes_write_what_one_does(tmp_path):
    """Two processes write the same bytes as one, and no file beside the results."""
    one = made(Workshop(fakes.run, tmp_path / "one", "p"), jobs())
    two = made(Workshop(fakes.run, tmp_path / "two", "p"), jobs(), workers=2)
    assert one == two
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert set(contents(tmp_path / "one")) == {f"waves/{policy}.{seed}.json" for policy in POLICIES for seed in (0, 1)}


def test_what_is_kept_is_not_made_again(tmp_path):
    """A run whose result is kept is not made again, so an interrupted command continues."""
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
    """A run is stale after a change of the program, the traffic or the scenario."""
    made(Workshop(fakes.run, tmp_path, "p"), jobs())
    again = made(Workshop(fakes.run, tmp_path, program), jobs(of))
    assert not any(outcome.kept for outcome in again)


@pytest.mark.parametrize(
    "content", [b'{"key": ', b'{"key": "\xff"}', b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"]
)
def test_a_file_that_holds_no_result_is_made_again(tmp_path, content):
    """A damaged file, as after a full disk, is made again."""
    workshop = Workshop(fakes.run, tmp_path, "p")
    made(workshop, jobs())
    workshop.file(jobs()[0]).write_bytes(content)
    assert [outcome.kept for outcome in made(workshop, jobs())].count(False) == 1


def test_one_run_that_fails_is_told_and_the_others_go_on(tmp_path):
    """The error names scenario, policy and seed of the failed run. The others go on."""
    found = made(Workshop(fakes.broken_run, tmp_path, "p"), jobs())
    (failed,) = [outcome for outcome in found if outcome.result is None]
    assert (failed.scenario, failed.policy, failed.seed) == ("waves", "hpa-kv", 1)
    assert failed.problem.startswith("RuntimeError: a bug (fakes.py:")
    assert len(found) == 4


def test_a_process_that_is_killed_is_told(tmp_path):
    """The error names a killed process, as after a lack of memory. Unfinished runs have no result."""
    found = made(Workshop(fakes.killed_run, tmp_path, "p"), jobs(), workers=2)
    assert len(found) == 4
    lost = [outcome for outcome in found if outcome.result is None]
    assert lost
    assert all(outcome.problem.startswith("a process was killed") for outcome in lost)


def test_each_policy_has_its_own_program(tmp_path):
    """A run depends on the digest of its own policy, where it has one, and else on that of the program."""
    programs = {"hpa-kv": "s"}
    made(Workshop(fakes.run, tmp_path, "p", programs), jobs(seeds=(0,)))
    again = made(Workshop(fakes.run, tmp_path, "q", programs), jobs(seeds=(0,)))
    assert {outcome.policy: outcome.kept for outcome in again} == {"hpa-kv": True, "wva": False}
    other = made(Workshop(fakes.run, tmp_path, "q", {"hpa-kv": "t"}), jobs(seeds=(0,)))
    assert {outcome.policy: outcome.kept for outcome in other} == {"hpa-kv": False, "wva": True}


def test_two_commands_may_share_a_folder(tmp_path, monkeypatch):
    """If another command makes and keeps the same run just before this one keeps it, both have their result."""
    workshop, (job, *_) = Workshop(fakes.run, tmp_path, "p"), jobs()
    replaces, others = Path.replace, []

    def replace_after_another_command(part, path):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replaces)
            patch.setattr(os, "getpid", lambda: -1)
            others.append(workshop.make(job))
        return replaces(part, path)

    monkeypatch.setattr(Path, "replace", replace_after_another_command)
    own = workshop.make(job)
    assert [(one.problem, one.result) for one in others] == [("", own.result)]
    assert set(contents(tmp_path)) == {"waves/wva.0.json"}
