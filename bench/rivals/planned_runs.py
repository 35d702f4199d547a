"""Plays scenarios with the planner of ai-dynamo 1.6.1, and records the runs for the scorecard.

The planner runs in a process and an environment of its own (``planner.py``): it needs packages that WVA has no use for,
0.9 GB of them. It scales the variant with the lowest price for its capacity; a planner has one kind of engine. Every
180 s it is told what its providers would have collected: requests and mean lengths, which a frontend counts, the hit
rate of the prefix cache, Ready and expected replicas. A frontend counts requests when they end, also those that failed;
here they count when they arrive, which is a little earlier.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from wva.sim import rivals
from wva.sim.rivals.scope import Scope, at_minimum, scaled
from wva.sim.scorecard.recorded import WITNESS, RecordedRun, RecordedRuns
from wva.sim.scorecard.suites import SCENARIOS
from wva.sim.stage.prometheus import latest
from wva.sim.stage.run import play
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.view import ScrapedSignal, StageController, StageView
from wva.sim.traffic.requests import Traffic

VERSION: Final = "1.6.1"
POLICY: Final = "dynamo-planner-cheapest"
CHOSEN: Final = ("sine-short", "step-short", "bursts-short", "ramp-short", "slow-pods-short", "prompts-short")
TICK_SECONDS: Final = 180.0
_LOOK_SECONDS: Final = 15.0
_ALONE: Final = (f"ai-dynamo=={VERSION}", f"ai-dynamo-runtime=={VERSION}")
"""What is installed without its dependencies, of which one, aisimulate, has no wheel."""
_IMPORTED: Final = (
    "aiohttp",
    "filterpy",
    "grpcio",
    "kubernetes>=32.0.1,<33",
    "msgspec",
    "numpy",
    "packaging",
    "pandas",
    "plotly",
    "pmdarima",
    "prometheus-api-client",
    "prometheus-client",
    "prophet",
    "protobuf",
    "pydantic",
    "PyYAML",
    "pyzmq",
    "scikit-learn",
)
"""What the planner imports."""
_COUNTED: Final = (ScrapedSignal.PREFIX_QUERIES, ScrapedSignal.PREFIX_HITS)


def installed(folder: Path) -> Path:
    """Return the Python of an environment with the planner; make it where it is missing, or say what cannot be had."""
    python = folder / "bin" / "python"
    done = folder / f"ai-dynamo-{VERSION}"
    if not done.exists():
        print(f"installing the planner of ai-dynamo {VERSION} in {folder} (about 0.9 GB) ...", file=sys.stderr)
        _try(sys.executable, "-m", "venv", "--clear", str(folder))
        _try(str(python), "-m", "pip", "install", "--quiet", "uv")
        install = (str(folder / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(python))
        for package in _ALONE:
            _try(*install, "--no-deps", package)
        _try(*install, *_IMPORTED)
        done.touch()
    return python


def _try(*command: str) -> None:
    tried = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if tried.returncode:
        said = "\n".join(tried.stderr.splitlines()[-8:])
        sys.exit(f"the planner of ai-dynamo {VERSION} cannot be had; tried: {' '.join(command)}\n{said}")


def record(python: Path, command: str, names: tuple[str, ...] = CHOSEN, seed: int = 1) -> RecordedRuns:
    """Return the runs of some scenarios."""
    with _planner(python) as planner:
        runs = tuple(_run(SCENARIOS[name], seed, planner) for name in names)
    return RecordedRuns(f"The planner of ai-dynamo {VERSION}", command, "", runs)


def _run(scenario: Scenario, seed: int, planner: PlannerProcess) -> RecordedRun:
    result = play(scenario, POLICY, seed, lambda of, which: dynamo(of, planner, which))
    print(f"{scenario.name}: {result.figures.attainment:.4f} in time", file=sys.stderr)
    witness = rivals.run(scenario, WITNESS, seed)
    return RecordedRun(scenario.name, POLICY, seed, result.figures, witness.figures)


class PlannerProcess:
    """The planner behind two pipes: a line there, a line back."""

    def __init__(self, asked: IO[str], answered: IO[str]) -> None:
        """Talk over these."""
        self._asked, self._answered = asked, answered

    def ask(self, line: Mapping[str, Any]) -> int | None:
        """Send a line, and return the replicas of the answer."""
        self._asked.write(json.dumps(line) + "\n")
        self._asked.flush()
        answer = self._answered.readline()
        if not answer:
            sys.exit("the planner has ended: its words are above")
        replicas: int | None = json.loads(answer)["replicas"]
        return replicas


@contextmanager
def _planner(python: Path) -> Iterator[PlannerProcess]:
    script = Path(__file__).with_name("planner.py")
    with subprocess.Popen([python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        assert process.stdin is not None
        assert process.stdout is not None
        yield PlannerProcess(process.stdin, process.stdout)
        process.stdin.close()


def dynamo(scenario: Scenario, planner: PlannerProcess, seed: int) -> list[StageController]:
    """Return the planner as the controllers of a run."""
    variants = scaled(scenario, Scope.CHEAPEST)
    return [PlannedPool(scenario, variants[0], planner, scenario.traffic(seed)), *at_minimum(scenario, variants)]


class PlannedPool:
    """One variant under the planner, which is asked every 180 s."""

    period_seconds = _LOOK_SECONDS

    def __init__(self, scenario: Scenario, variant: VariantSetup, planner: PlannerProcess, requests: Traffic) -> None:
        """Begin anew with the planner; ``requests`` are those that the frontend will count."""
        self._variant = variant
        self._requests = requests
        self._planner = planner
        self._seen: dict[str, list[float]] = {}
        self._counted = [0.0] * len(_COUNTED)
        self._ask_at = TICK_SECONDS
        planner.ask(
            {
                "engine": asdict(variant.parameters),
                "ttft_ms": 1000.0 * scenario.objectives.ttft_seconds,
                "itl_ms": 1000.0 * scenario.objectives.itl_seconds,
                "minimum": max(1, variant.minimum),
                "gpus": variant.gpus,
            }
        )

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Count, and scale when it is time."""
        view = stage.variants[self._variant.name]
        for pod in view.pods:
            scrape = latest(stage.scrapes(pod.name), now_seconds)
            if scrape is not None:
                values = [scrape.values[signal] for signal in _COUNTED]
                before = self._seen.get(pod.name, [0.0] * len(values) if now_seconds > TICK_SECONDS else values)
                self._counted = [
                    sum(each) for each in zip(self._counted, values, (-was for was in before), strict=True)
                ]
                self._seen[pod.name] = values
        if now_seconds < self._ask_at:
            return
        self._ask_at += TICK_SECONDS
        queries, hits = self._counted
        self._counted = [0.0] * len(_COUNTED)
        arrivals = self._requests.arrival_seconds
        chosen = slice(*np.searchsorted(arrivals, (now_seconds - TICK_SECONDS, now_seconds)))
        prompts, answers = self._requests.prompt_tokens[chosen], self._requests.output_tokens[chosen]
        traffic = {
            "duration_s": TICK_SECONDS,
            "num_req": float(len(prompts)),
            "isl": float(prompts.mean()) if len(prompts) else 0.0,
            "osl": float(answers.mean()) if len(prompts) else 0.0,
            "kv_hit_rate": hits / queries if queries else None,
        }
        ready = sum(pod.ready for pod in view.pods)
        replicas = self._planner.ask({"ready": ready, "expected": view.replicas, "traffic": traffic})
        if replicas is not None:
            stage.scale(self._variant.name, max(self._variant.minimum, min(self._variant.maximum, replicas)))
