"""What the planner of ai-dynamo is told, and what becomes of its answers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.rivals import planned_runs
from bench.rivals.planned_runs import dynamo
from tests.sim.rivals.fake_stage import FakeStage, requests, scenario, setup
from wva.sim.stage.view import Scrape, ScrapedSignal


class AnsweringPlanner:
    """Keeps what it is told, and answers with one number."""

    def __init__(self, answer):
        """Answer every question with this."""
        self.told = []
        self._answer = answer

    def ask(self, line):
        """Return the answer; there is none to the first line."""
        self.told.append(line)
        return None if "engine" in line else self._answer


def test_it_is_told_what_a_frontend_counts() -> None:
    """Requests and mean lengths are those of 180 s, of all variants, and the hit rate is that of its own pods."""
    traffic = requests([*(float(at) for at in range(1, 181)), 200.0, 300.0], 600.0, prompt=500, answer=50)
    of = scenario(setup(replicas=1), traffic=traffic)
    planner = AnsweringPlanner(2)
    stage = FakeStage(of, lambda _: 0.0)
    plain = stage.scrapes

    def scrapes(pod):
        found = []
        for scrape in plain(pod):
            values = list(scrape.values)
            values[ScrapedSignal.PREFIX_QUERIES] = 1000.0 + 4 * scrape.at_seconds
            values[ScrapedSignal.PREFIX_HITS] = 900.0 + scrape.at_seconds
            found.append(Scrape(scrape.at_seconds, values))
        return found

    stage.scrapes = scrapes
    stage.run(dynamo(of, planner, 1), until=370)
    start, first, second = planner.told
    assert (start["ttft_ms"], start["itl_ms"], start["minimum"]) == (1000.0, 100.0, 1)
    assert start["engine"]["alpha_seconds"] == of.variants[0].parameters.alpha_seconds
    assert (first["ready"], first["expected"]) == (1, 1)
    assert first["traffic"] == {"duration_s": 180.0, "num_req": 179.0, "isl": 500.0, "osl": 50.0, "kv_hit_rate": 0.25}
    assert stage.asked == [(180.0, "h100", 2)]
    assert (second["ready"], second["expected"]) == (2, 2)
    assert second["traffic"]["num_req"] == 3.0


def test_an_idle_time_has_no_lengths_and_no_answer_changes_nothing() -> None:
    """Without requests the lengths are 0, and null leaves the replicas."""
    of = scenario(setup(replicas=3), traffic=requests([400.0], 600.0))
    planner = AnsweringPlanner(None)
    stage = FakeStage(of, lambda _: 0.0).run(dynamo(of, planner, 1), until=200)
    assert planner.told[-1]["traffic"]["num_req"] == planner.told[-1]["traffic"]["isl"] == 0.0
    assert planner.told[-1]["traffic"]["kv_hit_rate"] is None
    assert stage.asked == []


def test_the_number_stays_within_the_bounds() -> None:
    """The planner knows no maximum; the variant has one."""
    of = scenario(setup(maximum=4))
    assert FakeStage(of, lambda _: 0.0).run(dynamo(of, AnsweringPlanner(9), 1), until=200).replicas() == 4


def test_what_cannot_be_installed_is_said(monkeypatch, tmp_path) -> None:
    """Where a package is refused, the error names the version, the command that was tried, and the answer."""

    def refused(command, **_):
        return subprocess.CompletedProcess(command, int("--no-deps" in command), "", "error: 403 Forbidden")

    monkeypatch.setattr(planned_runs.subprocess, "run", refused)
    with pytest.raises(SystemExit) as caught:
        planned_runs.installed(tmp_path)
    said = str(caught.value)
    assert "the planner of ai-dynamo 1.6.1 cannot be had" in said
    assert "--no-deps ai-dynamo==1.6.1" in said
    assert said.endswith("error: 403 Forbidden")


def test_the_step_of_the_profile_is_that_of_the_simulated_engine() -> None:
    """The time of a step is the formula of the engine, in its parts."""
    script = planned_runs.__file__.replace("planned_runs", "planner")
    engine = {
        "alpha_seconds": 0.01,
        "beta_seconds_per_sequence": 0.001,
        "prefill_seconds_per_token": 0.0001,
        "kv_read_seconds_per_token": 1e-6,
        "attention_seconds_per_token_pair": 1e-8,
    }
    rank = {"sum_prefill_tokens": 200, "num_prefill_requests": 2, "num_decode_requests": 3, "sum_decode_kv_tokens": 900}
    code = (
        f"import runpy; m = runpy.run_path({script!r}); m['ENGINE'].update({engine!r}); "
        f"print(m['EngineProfile']().estimate_forward_pass_time_ms([{{'scheduled_requests': {rank!r}}}]))"
    )
    told = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    expected = 0.01 + 0.001 * 5 + 0.0001 * 200 + 1e-6 * 900 + 1e-8 * 200 * 50
    assert json.loads(told.stdout) == pytest.approx(1000 * expected)
