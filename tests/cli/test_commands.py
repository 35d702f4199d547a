"""The small commands: version, crd, decide, and a help that loads few libraries."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import msgspec
import pytest
import yaml

from tests.builders import NOW, policy, replica, variant
from tests.cli.conftest import ROOT
from tests.decide.queueing.samples import KNOWN, pod, steady
from wva import __version__
from wva.api.crd import definition
from wva.hindsight.cycle import Recording
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.memory import Memory
from wva.model.records import replace
from wva.model.snapshot import Snapshot


@pytest.fixture
def recording():
    """Return a cycle in which the load of one busy replica needs a second."""
    snapshot = Snapshot.of([variant("a", desired=1)], [replica("a-0", kv=0.95, queue=9)])
    return Recording(now=NOW, policy=policy(), memory=Memory(), snapshot=snapshot)


@pytest.mark.parametrize("words", [("version",), ("--version",)])
def test_the_version_is_one_line(wva, words):
    """``wva version`` and ``wva --version`` print the same line."""
    assert wva(*words).out == f"wva {__version__}\n"


def test_crd_prints_the_definition(wva):
    """``wva crd`` prints the CustomResourceDefinition as YAML."""
    outcome = wva("crd")
    assert outcome.status == 0
    assert yaml.safe_load(outcome.out) == definition()


def test_decide_replays_a_file(wva, recording, tmp_path):
    """``wva decide`` prints the decisions of a recorded cycle as JSON."""
    path = tmp_path / "cycle.json"
    path.write_bytes(msgspec.json.encode(recording))
    outcome = wva("decide", str(path))
    assert outcome.status == 0
    (decision,) = json.loads(outcome.out)
    assert decision["key"] == {"namespace": "ns", "name": "a"}
    assert (decision["current"], decision["desired"]) == (1, 2)
    assert decision["steps"]


def test_decide_explains_every_step(wva, recording, tmp_path):
    """``--explain`` prints each step with its number and its limits, without control characters."""
    inventory = Inventory.of([AcceleratorPool("A100", 2, 2)])
    snapshot = replace(recording.snapshot, inventory=inventory)
    odd = variant("a\x1b[2J", replicas=0)
    snapshot = replace(snapshot, variants=(snapshot.variants[0], odd))
    path = tmp_path / "cycle.json"
    path.write_bytes(
        msgspec.json.encode(
            replace(recording, snapshot=snapshot, policy=replace(recording.policy, enable_limiter=True))
        )
    )
    outcome = wva("decide", "--explain", str(path))
    assert outcome.status == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "ns/a: 1 GpuLimited (before 1, current 1, measured)"
    assert [line.split()[0] for line in lines[1:4]] == ["measure", "allocate", "settle"]
    assert lines[2].split()[1] == "1"
    assert lines[2].endswith("[limited by gpu-limiter A100: 1 fewer]")
    assert "\x1b" not in outcome.out


def test_decide_explains_what_the_queueing_model_measured_beside_another_analyzer(wva, tmp_path):
    """In HYBRID mode the step ``measure`` has the figures of the queueing model; otherwise it does not."""
    snapshot = Snapshot.of([variant("a", cost=40.0)], [pod(success_rate=40 / 60)])
    path = tmp_path / "cycle.json"
    for proactive in (True, False):
        asked = replace(KNOWN, proactive_model=proactive)
        path.write_bytes(msgspec.json.encode(Recording(NOW, asked, steady(snapshot, asked), snapshot)))
        told = wva("decide", "--explain", str(path)).out
        assert ("Hybrid mode: " in told) is proactive
        words = "0.6667 requests/s arrive; within TTFT 500 ms and ITL 24 ms (its service class) "
        assert (words in told) is proactive


def test_decide_reads_standard_input(wva, recording, monkeypatch):
    """``wva decide -`` reads the recording from standard input."""
    stream = io.TextIOWrapper(io.BytesIO(msgspec.json.encode(recording)))
    monkeypatch.setattr(sys, "stdin", stream)
    outcome = wva("decide", "-")
    assert json.loads(outcome.out)[0]["desired"] == 2


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"{}", b"[]", b'{"now": 1, "policy": 2}', b"\xff\xfe", b'{"now": 1e999}']
)
def test_decide_refuses_what_is_no_recording(wva, tmp_path, content):
    """``wva decide`` ends with status 1 and one line that says where recordings come from."""
    path = tmp_path / "cycle.json"
    path.write_bytes(content)
    outcome = wva("decide", str(path))
    assert outcome.status == 1
    assert outcome.out == ""
    (line,) = outcome.lines
    assert "not a recording made with --record-dir" in line


def test_decide_refuses_samples_that_cannot_be(wva, recording, tmp_path):
    """A fresh sample without a value breaks a rule of its type; the error is one line, too."""
    text = msgspec.json.encode(recording).replace(b'"state":"fresh","value":0.95', b'"state":"fresh","value":null')
    path = tmp_path / "cycle.json"
    path.write_bytes(text)
    outcome = wva("decide", str(path))
    assert outcome.status == 1
    assert len(outcome.lines) == 1


@pytest.mark.parametrize(
    ("field", "number"),
    [("spec_replicas", -1), ("spec_replicas", 10**30), ("cost", 1e300), ("current_replicas", 2**31)],
)
def test_decide_refuses_numbers_that_no_cycle_could_have_seen(wva, recording, tmp_path, field, number):
    """One line names the place, the number and the expected range."""
    (first, *others) = recording.snapshot.variants
    variants = (replace(first, **{field: number}), *others)
    path = tmp_path / "cycle.json"
    path.write_bytes(json.dumps(msgspec.to_builtins(replace(recording, snapshot=Snapshot(variants)))).encode())
    outcome = wva("decide", str(path))
    assert outcome.status == 1
    (line,) = outcome.lines
    assert f"recording.snapshot.variants.{field}: got {number}, expected a " in line


def test_decide_refuses_a_variant_that_is_there_twice(wva, recording, tmp_path):
    """A cycle has each variant once, so a recording with a variant twice is refused."""
    variants = recording.snapshot.variants
    path = tmp_path / "cycle.json"
    path.write_bytes(msgspec.json.encode(replace(recording, snapshot=Snapshot(variants + variants))))
    outcome = wva("decide", str(path))
    assert outcome.status == 1
    assert "the variant 'ns/a' is in it more than once" in outcome.lines[0]


def test_decide_quotes_no_long_value(wva, recording, tmp_path):
    """The error line stays short and printable, also where the decoder quotes a value."""
    text = msgspec.json.encode(recording).replace(b'"state":"fresh"', b'"state":"' + b"x\\u001b" * 5000 + b'"')
    path = tmp_path / "cycle.json"
    path.write_bytes(text)
    (line,) = wva("decide", str(path)).lines
    assert len(line) < len(str(path)) + 400
    assert line.isprintable()


def test_decide_refuses_another_format(wva, recording, tmp_path):
    """``wva decide`` refuses a recording of a format that it does not know."""
    path = tmp_path / "cycle.json"
    path.write_bytes(msgspec.json.encode(replace(recording, version=99)))
    outcome = wva("decide", str(path))
    assert outcome.status == 1
    assert "it has format 99" in outcome.lines[0]
    assert "expected 2, 3, 4 or 5" in outcome.lines[0]


def test_decide_names_a_file_that_is_not_there(wva, tmp_path):
    """The error line names the file and says why it cannot be read."""
    outcome = wva("decide", str(tmp_path / "nothing.json"))
    assert outcome.status == 1
    assert outcome.lines == [f"wva: cannot read {tmp_path / 'nothing.json'}: No such file or directory"]


def test_decide_needs_a_file(wva):
    """``wva decide`` without a file is a usage error."""
    assert wva("decide").status == 2


def test_the_help_needs_no_heavy_library():
    """``wva --help`` does not load libraries that only the controller needs."""
    heavy = ("aiohttp", "kubernetes_asyncio", "pydantic", "prometheus_client", "uvloop", "rich")
    script = (
        "import sys\nfrom wva.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('LOADED', [name for name in {heavy!r} if name in sys.modules])\n"
    )
    ended = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.splitlines()[-1] == "LOADED []"


@pytest.mark.parametrize("command", ["crd", "config"])
def test_a_reader_that_stops_reading_is_no_error(environment, command):
    """``wva crd | head`` ends with status 141 and no message about the broken pipe."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-m", "wva", command],
        stdout=write,
        stderr=subprocess.PIPE,
        env=environment | {"PROMETHEUS_BASE_URL": "https://p.example"},
        check=False,
        timeout=60,
    )
    os.close(write)
    assert (done.returncode, [line for line in done.stderr.decode().splitlines() if "pipe" in line.lower()]) == (
        141,
        [],
    )
