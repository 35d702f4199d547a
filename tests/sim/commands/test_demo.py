"""``wva demo --openmetrics`` writes every sample of a run to a file."""

from __future__ import annotations

import re
import socket

import pytest

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
