"""``wva backtest`` and ``wva tune`` read a Prometheus, write pages, and report errors."""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace

import pytest

from tests.cli.conftest import closed_port
from tests.sim.backtest.conftest import MINUTES, ODD
from tests.sim.backtest.engines import NAMESPACE, START, write
from wva.command_error import CommandError
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy
from wva.model.records import replace
from wva.policy_file import read_policy
from wva.sim.commands.backtest import moment, of_the_stage
from wva.sim.prometheus import EmbeddedPrometheus
from wva.sim.stage.observe import MODEL

pytestmark = pytest.mark.usefixtures("log_as_before")

SPAN = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:19:30Z")
OTHER = """
apiVersion: v1
kind: ConfigMap
metadata: {name: wva-saturation-scaling-config}
data:
  default: "kvSpareTrigger: 0.5"
"""


ENTRIES = """
apiVersion: v1
kind: ConfigMap
metadata: {name: wva-saturation-scaling-config}
data:
  default: "kvCacheThreshold: 0.7"
  chat: "{model_id: acme/chat, kvSpareTrigger: 0.25}"
  other: "{model_id: acme/other, kvSpareTrigger: 0.5}"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: wva-queueing-model-config, namespace: prod}
data:
  chat: "{model_id: acme/chat, namespace: prod, targetTTFT: 500, targetITL: 50}"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: service-classes-config}
data:
  premium: "{name: Premium, priority: 1, data: [{model: acme/chat, slo-tpot: 24, slo-ttft: 500}]}"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: wva-model-performance-config}
data:
  chat: "{model_id: acme/chat, acc: A100, alpha: 20, beta: 0.4, maxBatchSize: 4}"
  other: "{model_id: acme/other, acc: A100, alpha: 20, beta: 0.4, maxBatchSize: 4}"
"""


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """Switch off the output of progress."""
    monkeypatch.setattr("wva.sim.commands.runs._PROGRESS_SECONDS", 3600.0)


@pytest.fixture
async def prometheus():
    """Return a Prometheus with the history of a model, which wants a token."""
    now = START + 60 * MINUTES
    async with EmbeddedPrometheus(now=lambda: now, retention_seconds=86400, token="sesame") as running:
        write(running.tsdb, {"chat-5d9f-aa": ODD, "chat-5d9f-bb": replace(ODD, num_gpu_blocks=5000)}, minutes=MINUTES)
        yield running


@pytest.mark.timeout(400)
async def test_a_history_is_read_played_and_tuned(prometheus, run, wva, tmp_path):
    """The command has its token from the environment and policies from ConfigMaps, and fetches no chunk twice."""
    out, other = tmp_path / "out", tmp_path / "other.yaml"
    other.write_text(OTHER)
    words = ("backtest", "--prometheus", prometheus.url, *SPAN, "--out", str(out), "--jobs", "1")
    policies = ("--policy", "wva", "--policy", str(other))
    outcome = await run(*words, *policies, PROMETHEUS_BEARER_TOKEN="sesame")
    assert (outcome.status, outcome.err) == (0, "3 runs, 0 of them kept from before\n")
    for row in ("as recorded", "wva", "other"):
        assert row in outcome.out
    assert {"backtest.html", "backtest.md", "backtest.json", "runs"} <= {path.name for path in out.iterdir()}
    asked = prometheus.requests.query_count
    again = await run(*words, *policies, "--namespace", NAMESPACE, PROMETHEUS_BEARER_TOKEN="sesame")
    assert (again.out, again.err) == (outcome.out, "3 runs, 3 of them kept from before\n")
    assert prometheus.requests.query_count == asked + 1
    assert json.loads((out / "backtest.json").read_bytes())["namespace"] == NAMESPACE
    tuned = wva("tune", "--out", str(out), "--jobs", "1")
    assert tuned.status == 0
    first, second = tuned.err.splitlines()
    assert first == "24 runs, 0 of them kept from before"
    assert not second.endswith(" 0 of them kept from before")
    (_, *entry) = tuned.out.partition("```yaml")
    path = tmp_path / "proposed.yaml"
    path.write_text(entry[1].partition("```")[0])
    assert [kind.title for kind in read_policy(str(path), set()).parts] == ["saturation"]
    assert "Proposed: K" in (out / "tune.html").read_text()
    assert "sesame" not in "".join(path.read_text(errors="replace") for path in out.rglob("*.json"))


async def test_a_wrong_token_is_told(prometheus, run, tmp_path):
    """The error is one line, without the token."""
    outcome = await run(
        "backtest", "--prometheus", prometheus.url, *SPAN, "--out", str(tmp_path), PROMETHEUS_BEARER_TOKEN="wrong-word"
    )
    assert outcome.status == 1
    (line,) = outcome.lines
    assert "answered 401" in line
    assert "wrong-word" not in outcome.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--from": "yesterday"}, "--from='yesterday': expected a time such as 2026-01-31T08:00:00Z"),
        ({"--to": "2025-01-01T00:00:00Z"}, "expected --from before --to"),
        ({"--to": "2999-01-01T00:00:00Z"}, "--to='2999-01-01T00:00:00Z' is in the future"),
        ({"--step": "0"}, "--step='0'"),
        ({"--ttft": "soon"}, "--ttft='soon'"),
        ({"--prometheus": "ftp://x"}, "--prometheus is 'ftp://x'"),
        ({"--namespace": "No!"}, "is not a namespace"),
    ],
)
def test_what_cannot_be_is_refused(wva, tmp_path, change, words):
    """The command ends with status 2 and a line that names the flag, the value and the expectation."""
    flags = {
        "--prometheus": f"http://127.0.0.1:{closed_port()}",
        "--from": "2026-01-01T00:00:00Z",
        "--to": "2026-01-01T01:00:00Z",
        "--namespace": "prod",
        "--model": "m",
        "--out": str(tmp_path),
    }
    outcome = wva("backtest", *(word for pair in (flags | change).items() for word in pair))
    assert outcome.status == 2
    assert words in outcome.lines[0]


@pytest.mark.parametrize("command", [("backtest", "--prometheus", "http://127.0.0.1:1", *SPAN), ("tune",)])
@pytest.mark.parametrize(("flag", "value"), [("--seeds", "0"), ("--seeds", "101"), ("--jobs", "x")])
def test_numbers_are_checked_before_anything_is_read(wva, command, flag, value):
    """The commands check the same numbers as the benchmark does."""
    outcome = wva(*command, flag, value)
    assert outcome.status == 2
    assert f"argument {flag}: '{value}': expected a whole number" in outcome.err


def test_tuning_needs_a_backtest(wva, tmp_path):
    """The error of ``wva tune`` without a backtest says how to get one."""
    outcome = wva("tune", "--out", str(tmp_path))
    assert outcome.status == 1
    assert "run wva backtest first" in outcome.lines[0]
    (tmp_path / "backtest.json").write_text("{}")
    assert "has no backtest of this version" in wva("tune", "--out", str(tmp_path)).lines[0]
    (tmp_path / "backtest.json").write_text('{"more": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert "has no backtest of this version" in wva("tune", "--out", str(tmp_path)).lines[0]
    assert "--prometheus needs --from and --to" in wva("tune", "--prometheus", "http://127.0.0.1:1").lines[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", 1000.0),
        ("now-5m", 700.0),
        ("now-168h", -603800.0),
        ("12.5", 12.5),
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T01:01:00+01:00", 60.0),
        ("1970-01-01T00:01", 60.0),
    ],
)
def test_times_may_be_written_in_several_ways(text, seconds):
    """Times may have several forms. Without a zone they are in UTC."""
    assert moment("--from", text, 1000.0) == seconds


@pytest.mark.parametrize("text", ["", "now-", "now+1h", "now-2", "nan", "-5", "1e99", "2026-13-01"])
def test_other_texts_are_no_times(text):
    """The error names the text."""
    with pytest.raises(CommandError, match="--from="):
        moment("--from", text, 1000.0)


@pytest.mark.parametrize("words", [("backtest", "--prometheus", "http://127.0.0.1:1", *SPAN), ("tune",)])
def test_a_missing_extra_is_named(wva, monkeypatch, words):
    """The error names the missing extra in one line, before the command reads any file."""
    monkeypatch.setattr("wva.sim.commands.runs.find_spec", lambda name: None if name == "numba" else name)
    outcome = wva(*words)
    line = "wva: this command needs numba: in a clone of WVA, pip install '.[bench]'"
    assert (outcome.status, outcome.lines) == (1, [line])


@pytest.mark.parametrize("files", [("a/wva.yaml",), ("a/other.yaml", "b/other.yaml"), ("a/as recorded.yaml",)])
def test_policies_have_names_of_their_own(wva, monkeypatch, tmp_path, files):
    """Two policies with one name are an error, because the page could not tell them apart."""
    monkeypatch.chdir(tmp_path)
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(OTHER)
    outcome = wva("backtest", "--prometheus", "http://127.0.0.1:1", *SPAN, "--policy", "wva", *files)
    assert outcome.status == 2
    (line,) = outcome.lines
    taken = files[-1].partition("/")[2].removesuffix(".yaml")
    assert line == (f"wva: --policy={files[-1]!r}: another policy has the name {taken}: give the file another name")


def interrupt(*_):
    """Act as Ctrl-C."""
    raise KeyboardInterrupt


def terminate(*_):
    """Act as a process manager that sends SIGTERM."""
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("stop", [interrupt, terminate])
def test_an_interrupted_command_can_go_on(wva, monkeypatch, stop):
    """After Ctrl-C or SIGTERM the command prints no traceback, ends its processes, and can be run again."""
    monkeypatch.setattr("wva.sim.commands.backtest.prepared", stop)
    outcome = wva("backtest", "--prometheus", "http://127.0.0.1:1", *SPAN)
    assert (outcome.status, outcome.lines) == (130, ["wva: interrupted; the same command continues"])


def test_entries_of_the_model_hold_for_the_model_of_the_stage(tmp_path):
    """The policy keeps thresholds, targets and profiles of the model of the history, and leaves out other models."""
    path = tmp_path / "other.yaml"
    path.write_text(ENTRIES)
    found = SimpleNamespace(namespace="prod", model_id="acme/chat")
    policy = of_the_stage(read_policy(str(path), {"prod"}).over(Policy()), found)
    assert policy.saturation_for(MODEL).kv_spare_trigger == 0.25
    assert policy.saturation_for(MODEL).kv_cache_threshold == 0.7
    queueing = policy.queueing_for(MODEL)
    assert queueing is not None
    assert queueing.target_ttft_milliseconds == 500.0
    assert policy.analyzer_for(MODEL) is Analyzer.QUEUEING
    target = policy.service_target_for(MODEL)
    assert target is not None
    assert [profile.model_id for profile in policy.profiles] == [MODEL.model_id]
