"""Whole runs with the queueing model: the real controller in the embedded world, over real HTTP, in virtual time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from wva import log
from wva.cli import main
from wva.config import Inputs
from wva.decide.pipeline import decide
from wva.hindsight.cycle import Recording
from wva.sim.commands.demo import play
from wva.sim.stage.scenario import Scenario, StartUp
from wva.sim.world.scenarios import between, demo_scenario, demo_variant
from wva.sim.world.world import EmbeddedWorld

FAST = StartUp(50.0, 0.115)
TITLE = "five times the load within a second, and too few of the cheap GPUs"
VARIANTS = (demo_variant("h100", "H100", 40.0, start_up=FAST), demo_variant("a100", "A100", 20.0, start_up=FAST))
GPUS = {"H100": 3, "A100": 2}


def surge(name: str, entry: str) -> Scenario:
    """Return the scenario with an entry of the saturation ConfigMap."""
    return demo_scenario(
        name,
        TITLE,
        VARIANTS,
        between((0, 3), (3, 3), (3, 15), minutes=8),
        saturation={"default": f"enableLimiter: true\n{entry}"},
        gpus=GPUS,
    )


async def _nothing() -> None:
    return


@pytest.fixture(autouse=True)
def _debug_log() -> Iterator[None]:
    """Log at level debug, and restore the logging afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    log.configure(level="debug", encoding="json")
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def replayed(folder: Path) -> list[list[str]]:
    """Return the measurement of each recorded cycle, computed again."""
    measured = []
    for path in sorted(folder.glob("cycle-*.json")):
        recording = msgspec.json.decode(path.read_bytes(), type=Recording)
        decisions, _ = decide(recording.snapshot, recording.memory, recording.policy, recording.now)
        measured.append([decision.steps[0].reason for decision in decisions])
    return measured


def explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the measurement of the last cycle as ``wva decide --explain`` prints it."""
    capsys.readouterr()
    assert main(["decide", "--explain", str(max(folder.glob("cycle-*.json")))]) == 0
    printed = capsys.readouterr().out
    assert "\nAllocationByType:\n" in printed
    lines = [line.split(maxsplit=2) for line in printed.splitlines() if line.startswith("  ")]
    return [words for stage, _, words in lines if stage == "measure"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("entry", "proactive"),
    [
        pytest.param("analyzerName: queueing\n", "false", id="queueing", marks=pytest.mark.nightly),
        pytest.param("", "true", id="hybrid"),
    ],
)
async def test_a_run_logs_what_the_model_found_and_can_be_replayed(
    entry: str, proactive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replicas follow the load. Every cycle logs its measurement, and a replay of its recording gives the same one."""
    scenario = surge(f"proactive-{proactive}", entry)
    world = EmbeddedWorld(scenario, seed=1)
    given = Inputs({"record_dir": str(tmp_path)}, {"EXPERIMENTAL_PROACTIVE_MODEL": proactive, "LOG_LEVEL": "debug"}, {})
    with capture_logs() as lines:
        await play(world, duration_seconds=world.traffic.duration_seconds, tick=_nothing, inputs=given)
    told = [line["steps"][0] for line in lines if line["event"] == "variant_decided"]
    measured = replayed(tmp_path)
    assert len(measured) >= world.traffic.duration_seconds / scenario.interval_seconds - 1
    assert len(told) == len(VARIANTS) * len(measured)
    for line, words in zip(told, [words for cycle in measured for words in cycle], strict=True):
        assert line.startswith("measure: ")
        assert line.endswith(f" ({words})")
    assert explained(tmp_path, capsys) == measured[-1]
    assert main(["replay", str(tmp_path)]) == 0
    assert any("requests/s arrive; " in words and "a replica of " in words for words in measured[-1])
    assert any(" requests/s needed, " in entry.message for entry in world.timeline.decisions)
    serving = {name: max(point.ready for point in run.points) for name, run in world.timeline.variants.items()}
    assert sum(serving.values()) > len(VARIANTS)
    assert all(count <= GPUS[name.upper()] for name, count in serving.items())
