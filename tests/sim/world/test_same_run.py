"""A run depends on its seed alone, and not on the speed of the machine, its sockets or other processes."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wva.model.records import replace
from wva.sim.commands.demo import play
from wva.sim.stage.faults import PrometheusOutage
from wva.sim.stage.scenario import StartUp
from wva.sim.world.scenarios import between, demo_scenario, demo_variant
from wva.sim.world.world import EmbeddedWorld

MINUTE = 60.0
_PORT = re.compile(r"127\.0\.0\.1:\d+|\('127\.0\.0\.1', \d+\)")
START_UP = StartUp(30.0, 0.2)
CLIMB = demo_scenario(
    "climb",
    "the load rises without an end",
    (demo_variant("h100", "H100", 40.0, start_up=START_UP), demo_variant("a100", "A100", 20.0, start_up=START_UP)),
    between((0, 3), (1, 3), (3, 20), minutes=3.5),
)
OUTAGE = replace(CLIMB, faults=(PrometheusOutage(MINUTE, 2.5 * MINUTE),))


async def _nothing() -> None:
    return


async def _run(world: EmbeddedWorld) -> Any:
    """Return all that happened, without the ports."""
    await play(world, duration_seconds=world.traffic.duration_seconds, tick=_nothing)
    document = msgspec.json.encode(world.timeline.document(world.scenario, seed=1, model=world.model))
    return json.loads(_PORT.sub("127.0.0.1", document.decode()))


@pytest.fixture(scope="module")
def quick() -> Any:
    """Return a run in which nothing takes long."""
    return asyncio.run(_run(EmbeddedWorld(CLIMB, seed=1)))


async def test_a_scrape_that_takes_long_changes_no_decision(quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cycle of the same moment begins after the scrape, even if the pages arrive slowly."""
    world = EmbeddedWorld(CLIMB, seed=1)
    scrape = world.prometheus.scrape

    async def slow(**due: Any) -> None:
        await asyncio.sleep(0.05)
        await scrape(**due)

    monkeypatch.setattr(world.prometheus, "scrape", slow)
    assert await _run(world) == quick


async def test_answers_that_take_long_change_no_decision(quick: Any) -> None:
    """Virtual time stands still while Prometheus works on an answer, even if an Event waits to be written."""
    world = EmbeddedWorld(CLIMB, seed=1)
    world.prometheus.faults.delay_seconds = 0.03
    assert await _run(world) == quick


async def test_an_outage_of_prometheus_is_the_same_in_each_run() -> None:
    """The seed also decides the pauses before WVA repeats a query."""
    first, again = [await _run(EmbeddedWorld(OUTAGE, seed=1)) for _ in range(2)]
    assert first == again


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_demo_prints_the_same_run_on_a_busy_machine(tmp_path: Path) -> None:
    """The demo gives the same run beside two processes that keep the CPU busy."""
    with ExitStack() as stack:
        quiet = _demo(tmp_path / "quiet.json")
        for _ in range(2):
            busy = stack.enter_context(_busy())
            stack.callback(busy.kill)
        assert _demo(tmp_path / "busy.json") == quiet


def _demo(to: Path) -> Any:
    command = [sys.executable, "-m", "wva", "demo", "--headless", "--speed", "max", "--for", "15m", "--json", str(to)]
    subprocess.run(command, check=True, capture_output=True, timeout=140)  # noqa: S603 - this interpreter
    return json.loads(to.read_bytes())


def _busy() -> subprocess.Popen[bytes]:
    """Return a process that is busy for two minutes at most."""
    code = "import time; end = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
    return subprocess.Popen([sys.executable, "-c", code])  # noqa: S603 - this interpreter
