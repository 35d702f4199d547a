"""``wva demo``: its files, its console, and how it ends."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys

import pytest

from wva.sim.commands.demo import _watched
from wva.sim.world.scenarios import SCENARIOS
from wva.sim.world.world import EmbeddedWorld

pytestmark = pytest.mark.usefixtures("log_as_before")


def test_the_samples_of_a_run_are_in_the_file(wva, tmp_path):
    """The file has the controller's and the engines' samples of every scrape, and the end mark."""
    path = tmp_path / "demo.om"
    assert wva("demo", "--headless", "--for", "2m", "--openmetrics", str(path)).status == 0
    lines = path.read_text().splitlines()
    assert lines[-1] == "# EOF"
    times = {name: [line.split()[-1] for line in lines if line.startswith(name)] for name in ("wva_leader", "vllm:")}
    assert all(len(set(moments)) >= 7 for moments in times.values())
    assert all(re.fullmatch(r"\S+?\{.*\} \S+ \d+\.\d{3}", line) for line in lines[:-1])


@pytest.mark.parametrize("path", ["/dev/full", "{folder}/nowhere/demo.om"])
def test_a_file_that_cannot_be_written_is_named(wva, tmp_path, path):
    """The error has flag, file and reason and no traceback, at the start or when the disk is full."""
    name = path.format(folder=tmp_path)
    outcome = wva("demo", "--headless", "--for", "1m", "--openmetrics", name)
    assert outcome.status != 0
    assert f"--openmetrics={name}: " in outcome.err
    assert "Traceback" not in outcome.err


def test_without_a_terminal_nothing_is_drawn_and_nothing_waits(wva):
    """Without a terminal the command acts as with --headless.

    It does not wait in real time, and prints only the summary.
    """
    outcome = wva("demo", "--for", "2m")
    assert outcome.status == 0
    assert "of virtual time" in outcome.out
    assert "last decisions" not in outcome.out


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("nonsense", "--web='nonsense': expected host:port, :port, or 0 to switch it off"),
        (
            "0.0.0.0:8444",
            "--web='0.0.0.0:8444': expected 127.0.0.1:PORT or localhost:PORT, as the demo asks for no token",
        ),
        (":8444", "--web=':8444': expected 127.0.0.1:PORT or localhost:PORT, as the demo asks for no token"),
    ],
)
def test_a_console_for_everybody_is_refused(wva, address, expected):
    """The demo asks for no token, so it serves this machine alone."""
    outcome = wva("demo", "--headless", "--for", "1m", "--web", address)
    assert outcome.status != 0
    assert expected in outcome.err
    assert "Traceback" not in outcome.err


def test_a_taken_port_of_the_console_is_named(wva):
    """The error has the flag and the reason and no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = wva("demo", "--headless", "--for", "1m", "--web", address)
    assert outcome.status != 0
    assert f"--web={address}: cannot listen on {address} for console: Address already in use" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("flag", ["--json", "--record-dir"])
def test_what_cannot_be_written_is_named_before_the_run(wva, flag):
    """A run of two hours would be lost."""
    name = "/proc/nowhere/run"
    outcome = wva("demo", "--headless", flag, name)
    assert outcome.status == 1
    assert outcome.err.startswith(f"wva: {flag}={name}: ")
    assert "virtual time" not in outcome.out


def test_a_comparison_that_does_not_come_is_told(wva, monkeypatch):
    """The run waits for it, says so, and ends with its own figures."""

    class SlowComparison:
        ready = False

        def __init__(self, *_):
            """Start nothing."""

        def figures(self):
            """Return nothing."""

    monkeypatch.setattr("wva.sim.world.baseline.ComparisonProcess", SlowComparison)
    monkeypatch.setattr("wva.sim.world.baseline.comparable", lambda *_: True)
    outcome = wva("demo", "--headless", "--for", "1m")
    assert outcome.status == 0
    assert "still play the same traffic" in outcome.err
    assert "nothing to compare with" in outcome.err
    assert "on the same traffic  " not in outcome.out


def test_ctrl_c_ends_a_run_with_its_summary():
    """Without a terminal a line on the standard error tells how far the run is. There is no traceback."""
    words = [sys.executable, "-m", "wva", "demo", "--headless", "--speed", "30"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A shell starts what runs in the background with Ctrl-C ignored, and a child inherits that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(words, text=True, **pipes) as process:  # noqa: S603 - our own code
        signal.signal(signal.SIGINT, before)
        assert re.fullmatch(r"0:\d\d:\d\d of 2:00:00\n", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "of virtual time" in out
    assert "Traceback" not in err


async def test_the_console_stays_after_the_run(capsys):
    """Until Ctrl-C, unless ``--for`` gives an end. Its address is told when it listens."""
    scenario = SCENARIOS["quickstart"]
    arguments = argparse.Namespace(openmetrics_file=None, record_dir=None, web="127.0.0.1:0", duration=None)
    world = EmbeddedWorld(scenario, seed=1)
    run = asyncio.create_task(_watched(world, arguments, duration_seconds=60.0, speed=None, headless=True))
    said = ""
    async with asyncio.timeout(60):
        while "the run has ended" not in said and not run.done():
            await asyncio.sleep(0.05)
            said += capsys.readouterr().err
    assert said.splitlines()[0] == "console: http://127.0.0.1:0/"
    assert not run.done()
    run.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await run


async def test_a_terminal_has_the_live_view(capsys, monkeypatch):
    """It is as large as the terminal, and the last picture stays."""
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "80"), ("LINES", "24")):  # what makes a terminal for rich
        monkeypatch.setenv(name, value)
    arguments = argparse.Namespace(openmetrics_file=None, record_dir=None, web=None, duration=None)
    world = EmbeddedWorld(SCENARIOS["quickstart"], seed=1)
    await _watched(world, arguments, duration_seconds=30.0, speed=None, headless=False)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    titles = [line for line in lines if "wva demo: quickstart" in line]
    assert titles
    assert {len(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line)) for line in titles} == {80}
