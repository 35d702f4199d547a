"""``wva bench quality``: its list, its runs, its files, and its errors."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.sim.scorecard import fakes
from wva import __version__
from wva.sim.scorecard.recorded import recordings
from wva.sim.scorecard.suites import DEVELOPMENT_SEEDS, PAGE_SEEDS

POLICIES = {"wva", "hpa-kv", "hpa-kv-tuned", "static-peak", "clairvoyant"}


@pytest.fixture
def bench(wva, monkeypatch, tmp_path):
    """Return a function that calls the command in an empty folder, with one seed; a formula makes up the runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("wva.sim.rivals.run", fakes.run)

    def call(*words):
        return wva("bench", "quality", "--jobs", "1", "--seeds", "1", *words)

    return call


SMALL = ("--scenario", "step-short", "sine-short", "--policy", "wva", "hpa-kv")


def test_the_list_has_every_scenario_and_policy(bench):
    """The list has a title for each scenario and policy."""
    outcome = bench("--list")
    assert outcome.status == 0
    scenarios, _, policies = outcome.out.partition("policies:\n")
    assert "  step-short " in scenarios.partition("suite full")[0]
    assert "  upstream-ramp " in scenarios.partition("suite full")[2]
    names = [line.strip() for line in policies.splitlines()]
    assert set(names) >= POLICIES
    assert not any("@" in name for name in names)
    assert names[0] == "wva"
    assert names.index("hpa-kv-tuned") == names.index("hpa-kv") + 1


def test_it_writes_three_files_and_says_where(bench, tmp_path):
    """The command prints the three files at the end, and the number of the runs."""
    outcome = bench(*SMALL)
    assert outcome.status == 0
    assert outcome.out.splitlines()[-3:] == [f"scorecard/scorecard.{kind}" for kind in ("html", "md", "json")]
    assert outcome.err == "4 runs, 0 of them kept from before\n"
    document = json.loads((tmp_path / "scorecard" / "scorecard.json").read_bytes())
    assert [scenario["name"] for scenario in document["scenarios"]] == ["step-short", "sine-short"]
    assert len(list((tmp_path / "scorecard" / "runs").rglob("*.json"))) == 4


def test_the_policies_of_one_scenario_are_printed(bench):
    """Each policy has a line with its figures, below the title of the scenario."""
    lines = bench("--scenario", "sine-short", "--policy", "wva", "hpa-kv").out.splitlines()
    assert lines[0].startswith("The load swings")
    assert lines[2].split("  ")[0] == "policy"
    assert [line.split()[0] for line in lines[3:5]] == ["wva", "hpa-kv"]
    assert all(re.fullmatch(r"\S+ +[\d.]+% +[\d.]+ +[\d.]+% .*\d", line) for line in lines[3:5])
    assert {len(line) for line in lines[2:5]} == {len(lines[2])}
    assert len(lines[2]) < 80


def test_where_wva_stands_in_several_scenarios_is_printed(bench):
    """Each scenario has a line with WVA and the best."""
    lines = bench(*SMALL).out.splitlines()
    assert lines[0].split() == ["scenario", "wva", "best", "wva", "against", "it"]
    assert [line.split()[0] for line in lines[1:3]] == ["step-short", "sine-short"]
    assert all(re.search(r"[\d.]+% at [\d.]+ +\S+: [\d.]+% at [\d.]+  \w", line) for line in lines[1:3])


def test_progress_is_told_without_a_terminal(bench, monkeypatch):
    """The command prints its progress now and then, so that a log shows that it is alive."""
    monkeypatch.setattr("wva.sim.commands.runs._PROGRESS_SECONDS", 0.0)
    lines = bench(*SMALL).err.splitlines()
    assert lines == [*(f"{count} of 4 runs" for count in range(1, 5)), "4 runs, 0 of them kept from before"]


def test_it_says_how_long_it_takes(bench, monkeypatch):
    """A command that takes minutes says so before, and counts only what is still to be made."""
    monkeypatch.setattr("wva.sim.scorecard.effort._SECONDS_PER_REQUEST", 1e-3)
    bench("--scenario", "step-short", "--policy", "wva")
    lines = bench(*SMALL).err.splitlines()
    assert lines == ["about 3 runs of 4 to make: 1 minute on 1 core", "4 runs, 1 of them kept from before"]
    assert bench(*SMALL).err == "4 runs, 4 of them kept from before\n"


def test_scenarios_of_many_requests_have_fewer_seeds(wva, monkeypatch, tmp_path):
    """By default; a number that is asked for is that of all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("wva.sim.rivals.run", fakes.run)
    words = ("--suite", "full", "--scenario", "drain", "step", "--policy", "wva", "--jobs", "1")
    assert wva("bench", "quality", *words).err.endswith("8 runs, 0 of them kept from before\n")
    assert wva("bench", "quality", *words, "--seeds", "4").err.endswith("8 runs, 7 of them kept from before\n")


def test_it_continues_where_it_stopped(bench):
    """A second call does not repeat the existing runs."""
    bench(*SMALL, "--out", "here", "--markdown", "page.txt")
    outcome = bench(*SMALL, "--out", "here", "--seeds", "2", "--markdown", "page.txt")
    assert outcome.err == "8 runs, 4 of them kept from before\n"
    assert outcome.out.splitlines()[-3:] == ["page.txt", "page-tables.html", "page-tables.json"]


def test_a_policy_is_tuned_by_its_name(bench, tmp_path):
    """All targets of the policy run."""
    outcome = bench("--scenario", "step-short", "--policy", "wva", "hpa-kv-tuned")
    assert outcome.status == 0
    document = json.loads((tmp_path / "scorecard" / "scorecard.json").read_bytes())
    (scenario,) = document["scenarios"]
    assert [policy["policy"] for policy in scenario["policies"]] == ["wva", "hpa-kv-tuned"]
    assert len(scenario["targets"]) > 5


def test_requests_of_a_file(bench, tmp_path):
    """A file of requests may replace a suite or join scenarios. A changed file is run again."""
    head = "seconds,prompt_tokens,output_tokens\n"
    (tmp_path / "mine.csv").write_text(head + "".join(f"{at},800,100\n" for at in range(600)))
    outcome = bench("--requests", "mine.csv", "--policy", "wva", "hpa-kv")
    assert outcome.status == 0
    (scenario,) = json.loads((tmp_path / "scorecard" / "scorecard.json").read_bytes())["scenarios"]
    assert (scenario["name"], scenario["title"]) == ("requests", "The requests of mine.csv")
    assert bench("--requests", "mine.csv", *SMALL).err == "6 runs, 2 of them kept from before\n"
    (tmp_path / "mine.csv").write_text(head + "".join(f"{at},800,100\n" for at in range(300)))
    assert bench("--requests", "mine.csv", *SMALL).err == "6 runs, 4 of them kept from before\n"


def test_a_file_of_requests_that_is_wrong(bench, tmp_path):
    """One line names the file, the line, the column and the value."""
    (tmp_path / "mine.csv").write_text("seconds,prompt_tokens,output_tokens\n0,many,1\n")
    outcome = bench("--requests", "mine.csv")
    assert outcome.status == 1
    expected = "wva: mine.csv, line 2, column prompt_tokens: 'many': expected a whole number from 1 to 10000000\n"
    assert outcome.err == expected
    assert "missing.csv cannot be read" in bench("--requests", "missing.csv").err


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("1,30000,2769\n99,1,1\n", "a request has 32769 tokens with its answer: expected at most 32768"),
        ("0,1,1\n", "the requests span 0 s: expected at least 60 s"),
        ("7,1,1\n" * 9, "the requests span 7 s: expected at least 60 s"),
    ],
)
def test_requests_that_make_no_run_are_refused(bench, tmp_path, rows, words):
    """Requests that are too long for any engine, or span too short a time, are refused before any run."""
    (tmp_path / "mine.csv").write_text("seconds,prompt_tokens,output_tokens\n" + rows)
    outcome = bench("--requests", "mine.csv", "--policy", "wva")
    assert (outcome.status, outcome.err) == (1, f"wva: mine.csv: {words}\n")


def test_a_file_of_any_name(bench, tmp_path):
    """The name of the file is shown as text, even if it is not UTF-8 or looks like HTML."""
    name = b"a\xff<b>.csv".decode(errors="surrogateescape")
    (tmp_path / name).write_text("seconds,prompt_tokens,output_tokens\n0,1,1\n99,1,1\n")
    assert bench("--requests", name, "--policy", "wva").status == 0
    assert "The requests of a\ufffd&lt;b&gt;.csv. " in (tmp_path / "scorecard" / "scorecard.html").read_text()


def test_requests_from_a_pipe_are_refused(bench, tmp_path):
    """Each run reads the file again, and a pipe can be read only once."""
    os.mkfifo(tmp_path / "pipe")
    outcome = bench("--requests", "pipe")
    assert (outcome.status, outcome.err) == (1, "wva: pipe is no file: expected one, which is read more than once\n")


@pytest.mark.parametrize("flag", ["--scenario", "--policy"])
def test_a_name_that_is_unknown(bench, flag):
    """One line names the flag, the value and the known names."""
    outcome = bench(flag, "nonsense")
    assert outcome.status == 2
    assert len(outcome.err.splitlines()) == 1
    assert f"wva: {flag}='nonsense': expected one of " in outcome.err


@pytest.mark.parametrize(
    "words",
    [
        ("--seeds", "0"),
        ("--seeds", "1000000000"),
        ("--jobs", "x"),
        ("--jobs", "9" * 5000),
        ("--suite", "all"),
        ("--sede", "1"),
    ],
)
def test_a_wrong_flag(bench, words):
    """A wrong flag is one line of error and status 2."""
    outcome = bench(*words)
    assert outcome.status == 2
    assert len(outcome.err.splitlines()) == 1
    assert len(outcome.err) < 300


def test_bench_alone_says_what_is_missing(wva):
    """The error of ``wva bench`` alone names the missing benchmark."""
    outcome = wva("bench")
    assert outcome.status == 2
    assert "BENCHMARK" in outcome.err


def test_a_run_that_fails(bench, monkeypatch, tmp_path):
    """The error names the failed run, and the command writes no scorecard."""
    monkeypatch.setattr("wva.sim.rivals.run", fakes.broken_run)
    outcome = bench(*SMALL)
    assert outcome.status == 1
    assert "wva: step-short, hpa-kv, seed 1: RuntimeError: a bug" in outcome.err
    assert outcome.err.splitlines()[-1] == "wva: 2 of the runs failed, so there is no scorecard; the others are kept"
    assert not (tmp_path / "scorecard" / "scorecard.html").exists()


def test_a_place_that_cannot_be_written(bench, tmp_path):
    """One line names the place that cannot be written."""
    (tmp_path / "file").touch()
    outcome = bench(*SMALL, "--out", "file")
    assert outcome.status == 1
    assert outcome.err == "wva: file: File exists\n"


def test_a_full_disk(bench):
    """The error has the reason, even if the system names no file."""
    outcome = bench(*SMALL, "--markdown", "/dev/full")
    assert outcome.status == 1
    assert outcome.err.splitlines()[-1] == "wva: No space left on device"


def test_without_the_extra_one_line_says_what_to_install(bench, monkeypatch):
    """The command names the extra in one line, before it imports the missing package."""
    monkeypatch.setattr("wva.sim.commands.runs.find_spec", lambda name: None if name == "plotly" else name)
    outcome = bench()
    assert (outcome.status, outcome.err) == (
        1,
        "wva: the benchmark needs plotly: in a clone of WVA, pip install '.[bench]'\n",
    )


def test_a_run_that_is_not_made_up(wva, tmp_path):
    """WVA and a fixed fleet really run in the simulated world."""
    words = ("--scenario", "upstream-ramp-short", "--policy", "wva", "static-peak", "--jobs", "1")
    outcome = wva("bench", "quality", *words, "--out", str(tmp_path))
    assert outcome.status == 0
    (scenario,) = json.loads((tmp_path / "scorecard.json").read_bytes())["scenarios"]
    figures = {policy["policy"]: policy["figures"] for policy in scenario["policies"]}
    assert figures["static-peak"]["peak_replicas"]["mean"] == figures["static-peak"]["mean_replicas"]["mean"]
    assert figures["wva"]["scale_ups"]["mean"] > 0
    assert figures["wva"]["requests"]["mean"] == figures["static-peak"]["requests"]["mean"] > 1000


def test_ctrl_c_ends_it(bench, monkeypatch):
    """After Ctrl-C the command prints a line, has the status of an interrupted program, and keeps finished runs."""
    monkeypatch.setattr("wva.sim.rivals.run", fakes.interrupted_run)
    outcome = bench(*SMALL)
    assert outcome.status == 130
    assert outcome.err.splitlines()[-1] == "wva: interrupted; the same command continues"
    monkeypatch.setattr("wva.sim.rivals.run", fakes.run)
    assert bench(*SMALL).err == "4 runs, 1 of them kept from before\n"


def test_ctrl_c_ends_it_before_it_begins(bench, monkeypatch):
    """Ctrl-C also ends the command while it reads its input."""

    def interrupted(_path):
        raise KeyboardInterrupt

    monkeypatch.setattr("wva.sim.scorecard.suites.scenario_of_requests", interrupted)
    assert bench("--requests", "mine.csv").status == 130


def test_development_has_other_seeds_than_the_page(bench, tmp_path):
    """Runs by which somebody chooses never have a seed of the page that is published."""
    assert not set(DEVELOPMENT_SEEDS) & set(PAGE_SEEDS)
    assert len(DEVELOPMENT_SEEDS) == len(PAGE_SEEDS) == 100, "as many as --seeds takes"

    def seeds(*words):
        assert bench(*SMALL, "--seeds", "2", *words).status == 0
        return json.loads((tmp_path / "scorecard" / "scorecard.json").read_bytes())["seeds"]

    assert set(seeds()) <= set(DEVELOPMENT_SEEDS)
    assert set(seeds("--markdown", "README.md")) <= set(PAGE_SEEDS)
    assert "The seeds are 1001, 1002." in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_the_runs_of_wva_are_recorded_for_later_releases(bench, tmp_path):
    """``--record`` writes the runs of WVA alone, under names with its version, and says where."""
    outcome = bench(*SMALL, "--record", "kept/now.json")
    assert outcome.status == 0
    assert "kept/now.json" in outcome.out.splitlines()
    (recording,) = recordings(tmp_path / "kept")
    assert recording.policies == (f"wva-v{__version__}",)
    assert {run.scenario for run in recording.runs} == {"step-short", "sine-short"}
    assert recording.source == f"WVA {__version__}"
    assert recording.command == "wva bench quality --suite quick --seeds 1 --record now.json"


def test_only_the_full_suite_tunes_in_hindsight(bench, tmp_path):
    """Targets are tried where there is time for it; a policy that is named is tuned in each suite."""

    def tuned(*words):
        assert bench("--scenario", "step-short", *words).status == 0
        document = json.loads((tmp_path / "scorecard" / "scorecard.json").read_bytes())
        (scenario,) = document["scenarios"]
        return {each["policy"] for each in scenario["policies"] if each["policy"].endswith("-tuned")}

    assert tuned() == tuned("--suite", "learning") == set()
    assert "hpa-kv-tuned" in tuned("--suite", "full")
