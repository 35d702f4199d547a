"""Recorded runs, to compare with what cannot run here: an earlier release, or a program that is no dependency.

A file of ``FOLDER`` has runs, where they come from, and the command that made them. They join the scorecard of a
scenario as further policies, under two conditions:

- The world is the same. A policy that nobody changes shows that: beside each recorded run is a run of ``WITNESS`` with
  the same seed, which has to do now what it did then.
- They show something new: as long as the policy still runs here and does the same, its record is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isclose
from pathlib import Path
from typing import Any, Final

import msgspec

from wva.files import read_bounded
from wva.model.records import replace
from wva.sim.scorecard.runs import RunJob, Workshop
from wva.sim.stage.result import Figures, RunResult, StageTimeline
from wva.sim.stage.scenario import Scenario

FOLDER: Final = Path(__file__).with_name("recorded_runs")
"""Where recorded runs are kept, a JSON file for each release or program."""
WITNESS: Final = "hpa-inflight"
"""The policy whose runs tell whether the world is still the same."""
NO_TIMELINE: Final = StageTimeline(1.0, (), (), (), (), ())
_MOST_BYTES: Final = 64 * 1024**2
_DIGITS: Final = 6
"""Significant digits of recorded figures."""
_SAME: Final = 10.0 ** (1 - _DIGITS)


class RecordedRun(msgspec.Struct, frozen=True):
    """One run, and the figures of the witness in the same world."""

    scenario: str
    policy: str
    seed: int
    figures: Figures
    witness: Figures


class RecordedRuns(msgspec.Struct, frozen=True):
    """A file. ``ending`` is appended to the names of its policies, such as ``-v0.6.0``; ``source`` says what ran."""

    source: str
    command: str
    ending: str
    runs: tuple[RecordedRun, ...]

    @property
    def policies(self) -> tuple[str, ...]:
        """The names in a scorecard, in order of the file."""
        return tuple(dict.fromkeys(run.policy + self.ending for run in self.runs))


def recordings(folder: Path = FOLDER) -> list[RecordedRuns]:
    """Return what the files of a folder have, in order of their names.

    Raises:
        ValueError: a file is not what ``save`` writes; names the file.

    """
    recorded = []
    for path in sorted(folder.glob("*.json")):
        try:
            recorded.append(msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=RecordedRuns))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: {error}: expected recorded runs, as --record writes them") from error
    return recorded


def save(recording: RecordedRuns, path: Path) -> None:
    """Write a file, a line per run, with figures of a few significant digits."""
    head = {"source": recording.source, "command": recording.command, "ending": recording.ending}
    lines = (msgspec.json.encode(_rounded(msgspec.to_builtins(run))).decode() for run in recording.runs)
    opening = msgspec.json.format(msgspec.json.encode(head), indent=1).decode().rstrip("}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(opening + ',\n "runs": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")


def record(jobs: Iterable[RunJob], workshop: Workshop, *, source: str, command: str, ending: str) -> RecordedRuns:
    """Return recorded runs of these jobs, which are made where they are not kept already.

    Raises:
        ValueError: a run failed; says which and why.

    """
    runs = tuple(
        RecordedRun(
            job.scenario.name,
            job.policy,
            job.seed,
            _result_of(job, workshop).figures,
            _result_of(replace(job, policy=WITNESS), workshop).figures,
        )
        for job in jobs
    )
    return RecordedRuns(source, command, ending, runs)


def joining(
    recordings: Sequence[RecordedRuns], scenario: Scenario, results: Sequence[RunResult]
) -> Iterator[RunResult]:
    """Yield the recorded runs that belong beside these results of a scenario, with the same seeds.

    A policy that lacks a seed, or whose world has changed, is left out as a whole.
    """
    now = {(result.policy, result.seed): result.figures for result in results if result.scenario == scenario.name}
    seeds = {seed for _, seed in now}
    for recording in recordings:
        for policy in dict.fromkeys(run.policy for run in recording.runs):
            runs = {run.seed: run for run in recording.runs if (run.scenario, run.policy) == (scenario.name, policy)}
            chosen = [runs[seed] for seed in sorted(seeds & runs.keys())]
            comparable = len(chosen) == len(seeds) and all(
                _same(run.witness, now.get((WITNESS, run.seed))) for run in chosen
            )
            if comparable and not all(_same(run.figures, now.get((policy, run.seed))) for run in chosen):
                for run in chosen:
                    yield RunResult(scenario.name, policy + recording.ending, run.seed, run.figures, NO_TIMELINE)


def _result_of(job: RunJob, workshop: Workshop) -> RunResult:
    outcome = workshop.make(job)
    if outcome.result is None:
        raise ValueError(f"{job.scenario.name}, {job.policy}, seed {job.seed}: {outcome.problem}")
    return outcome.result


def _same(then: Figures, now: Figures | None) -> bool:
    """Tell whether two runs did the same, as far as recorded figures tell: served the same users at the same cost."""
    return now is not None and all(
        isclose(getattr(then, name), getattr(now, name), rel_tol=_SAME)
        for name in ("requests", "served", "attainment", "ttft_attainment", "cost", "ideal_cost")
    )


def _rounded(value: Any) -> Any:
    """Return JSON with its numbers rounded to significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, (list, tuple)) else value
