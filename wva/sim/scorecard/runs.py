"""All runs of a scorecard, side by side on the cores of this machine; finished runs are kept in files.

A run is a function of its scenario, its traffic, its policy, its seed and the program. The digest of these is the key
in the run's file: a file with another key is stale, and its run is made again. So the same command continues what was
interrupted, and nothing old comes into a scorecard. The program is what the policy and the stage import
(``sources``): a change of WVA's decisions leaves the runs of rivals as they are, and a change of a rival all others.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, fields
from functools import partial
from hashlib import blake2b
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from wva.files import read_bounded
from wva.model.records import replace
from wva.sim.fleet.prepare import prepare
from wva.sim.stage.result import RunResult
from wva.sim.stage.scenario import Scenario
from wva.sim.traffic.requests import Traffic

_MOST_BYTES: Final = 256 * 1024**2
"""Of a kept result."""
RunFunction = Callable[[Scenario, str, int], RunResult]
"""Plays a scenario with the policy of a name and a seed. Importable by its name: other processes call it."""


@dataclass(frozen=True, slots=True)
class RunJob:
    """One run to make."""

    scenario: Scenario
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The end of a job: its result, or the problem. ``kept`` says whether the result was already in its file."""

    scenario: str
    policy: str
    seed: int
    result: RunResult | None
    kept: bool = False
    problem: str = ""


class _RunFile(msgspec.Struct, frozen=True):
    """The file of a run."""

    key: str
    result: RunResult


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where runs are made: by which function, and in which folder they are kept.

    ``program`` is the digest of what a run depends on; a policy that ``programs`` names has its own.
    """

    run: RunFunction
    folder: Path
    program: str
    programs: Mapping[str, str] = field(default_factory=dict)

    def file(self, job: RunJob) -> Path:
        """Return where the result of a job is kept."""
        return self.folder / job.scenario.name / f"{job.policy}.{job.seed}.json"

    def make(self, job: RunJob) -> RunOutcome:
        """Return the kept result of a job, or make and keep it. Every error ends in the outcome, in words."""
        identity = (job.scenario.name, job.policy, job.seed)
        try:
            scenario = job.scenario.changed(lambda model: replace(model, traffic=partial(_traffic, model)))
            key = _key(job, self.programs.get(job.policy, self.program))
            path = self.file(job)
            result = _read(path, key)
            if result is not None:
                return RunOutcome(*identity, result, kept=True)
            result = self.run(scenario, job.policy, job.seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}.part")  # another command may make the same run
            part.write_bytes(msgspec.json.encode(_RunFile(key, result)))
            part.replace(path)
            return RunOutcome(*identity, result)
        except Exception as error:  # noqa: BLE001 - one run that fails does not take hours of others with it
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            return RunOutcome(*identity, None, problem=f"{type(error).__name__}: {error} ({where})")


def outcomes(jobs: Sequence[RunJob], workshop: Workshop, *, workers: int) -> Iterator[RunOutcome]:
    """Make all jobs, on so many processes, and yield how each ended, in the order in which they end.

    Jobs that share a scenario and a seed should stand together: a process makes their traffic once.
    """
    if workers == 1:
        yield from map(workshop.make, jobs)
        return
    prepare()  # the workers find the machine code on disk
    # Not fork: the parent has threads (of the progress bar, of numba) that a forked child would lack.
    # Ctrl-C goes to all processes; the parent alone decides what happens then.
    pool = ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )
    try:
        running: dict[Future[RunOutcome], RunJob] = {pool.submit(workshop.make, job): job for job in jobs}
        for finished in as_completed(running):
            yield finished.result() if finished.exception() is None else _lost(running[finished])
    except (KeyboardInterrupt, GeneratorExit):
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _lost(job: RunJob) -> RunOutcome:
    """Return the outcome of a job whose process ended before the job did: ``make`` itself raises nothing."""
    problem = "a process was killed, as where memory is short: fewer processes (--jobs) need less"
    return RunOutcome(job.scenario.name, job.policy, job.seed, None, problem=problem)


_KEPT: Final = 2
"""So many traffics are kept: those of two models, say, that are played together."""
_RECENT: Final[dict[tuple[str, str, int], tuple[Traffic, bytes]]] = {}
"""The traffic that this process made last, with its digest: runs that follow each other have the same."""


def _traffic_and_digest(scenario: Scenario, seed: int) -> tuple[Traffic, bytes]:
    key = (repr(scenario), repr(scenario.traffic), seed)
    if key not in _RECENT:
        while len(_RECENT) >= _KEPT:
            del _RECENT[next(iter(_RECENT))]
        traffic = scenario.traffic(seed)
        _RECENT[key] = traffic, _digest(traffic)
    return _RECENT[key]


def _traffic(scenario: Scenario, seed: int) -> Traffic:
    """Return the traffic of a scenario, made once for runs that follow each other with the same seed."""
    return _traffic_and_digest(scenario, seed)[0]


def _key(job: RunJob, program: str) -> str:
    digest = blake2b(digest_size=16)
    digest.update("\0".join((program, repr(job.scenario), job.policy, str(job.seed))).encode())
    for model in job.scenario.models:
        digest.update(_traffic_and_digest(model, job.seed)[1])
    return digest.hexdigest()


def _digest(traffic: Traffic) -> bytes:
    digest = blake2b(digest_size=16)
    for column in fields(traffic):
        value = getattr(traffic, column.name)
        digest.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return digest.digest()


def _read(path: Path, key: str) -> RunResult | None:
    """Return the result in a file, or None when there is none with this key."""
    try:
        run_file = msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=_RunFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return run_file.result if run_file.key == key else None
