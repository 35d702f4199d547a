"""``wva demo``: the real controller in an embedded world, in this process.

The controller is built as ``wva run`` builds it; only its clock is the world's. What comes out is a live view or
nothing (``--headless``, or without a terminal), a summary, and with ``--json`` everything that happened.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from wva import log
from wva.app import Application, Environment, new_registry
from wva.cli.flags import fail
from wva.config import Given, load
from wva.godurations import parse_duration
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.numbers import Real

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from wva.sim.world.scenario import Scenario
    from wva.sim.world.world import Endpoints, World

DEFAULT_RUN_SECONDS: Final = 110.0
_SPEED: Final = Real(minimum=0, above=True)
"""Wall time that a run aims at when no speed is given."""

_NOTHING: Final = Given({}, {}, {})

Tick = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the demo; ``speed`` is virtual seconds per second, None as fast as it goes."""

    scenario: Scenario
    duration_seconds: float
    speed: float | None
    seed: int
    headless: bool
    json_file: Path | None
    openmetrics_file: Path | None
    record_dir: str | None


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and return the exit status."""
    try:
        from wva.sim.world.scenarios import SCENARIOS  # noqa: PLC0415 - needs the demo extra
    except ModuleNotFoundError as error:
        return fail(f"the demo needs {error.name}: in a clone of WVA, pip install '.[demo]'")
    if arguments.list:
        for known in SCENARIOS.values():
            print(f"{known.name:20} {known.title}")
        return 0
    scenario = SCENARIOS.get(arguments.scenario)
    if scenario is None:
        return fail(f"--scenario={arguments.scenario!r}: expected one of {', '.join(SCENARIOS)}")
    try:
        plan = _plan(arguments, scenario)
    except ValueError as error:
        return fail(str(error))
    log.configure(level="error", encoding="console")
    return asyncio.run(_demo(plan))


def _plan(arguments: argparse.Namespace, scenario: Scenario) -> Run:
    """Return the run that the flags ask for. Raises ValueError naming the flag."""
    duration = scenario.duration_seconds
    if arguments.duration is not None:
        try:
            duration = parse_duration(arguments.duration)
        except ValueError as error:
            raise ValueError(f"--for={arguments.duration!r}: {error}") from error
    if duration <= 0:
        raise ValueError(f"--for={arguments.duration!r}: expected a duration greater than zero")
    headless = arguments.headless or not sys.stdout.isatty()
    speed: float | None = duration / DEFAULT_RUN_SECONDS
    if arguments.speed == "max" or (arguments.speed is None and headless):
        speed = None
    elif arguments.speed is not None:
        speed = _SPEED.find(arguments.speed)
        if speed is None:
            raise ValueError(f"--speed={arguments.speed!r}: expected a number greater than zero, or max")
    files = arguments.json_file, arguments.openmetrics_file, arguments.record_dir
    return Run(scenario, duration, speed, arguments.seed, headless, *files)


async def _demo(plan: Run) -> int:
    from wva.cli import view  # noqa: PLC0415 - needs the demo extra
    from wva.cli.samples import SampleFileError  # noqa: PLC0415 - same
    from wva.sim.world.world import World  # noqa: PLC0415 - same

    world = World(plan.scenario, seed=plan.seed)
    started = time.monotonic()
    problem = ""
    try:
        await _watched(plan, world)
    except* SampleFileError as group:
        problem = _first(group)
    if not problem and plan.json_file is not None:
        document = world.timeline.document(plan.scenario, seed=plan.seed, model=world.model)
        try:
            plan.json_file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))
        except OSError as error:
            problem = f"--json={plan.json_file}: {error.strerror}"
    if problem:
        return fail(problem)
    view.print_summary(world, wall_seconds=time.monotonic() - started)
    return 0


async def _watched(plan: Run, world: World) -> None:
    """Run the world with the live view and the file of samples that the plan asks for. Raises SampleFileError."""
    from wva.cli import view  # noqa: PLC0415 - needs the demo extra
    from wva.cli.samples import sample_file  # noqa: PLC0415 - same

    pace = _Pace(plan.speed)
    with (
        sample_file(plan.openmetrics_file, world.prometheus.tsdb) as write_samples,
        nullcontext() if plan.headless else view.LiveView(world, plan.duration_seconds) as live,
    ):

        async def tick() -> None:
            if live is not None:
                live.refresh()
            write_samples()
            await pace.keep(world.clock.elapsed_seconds)

        given = Given({} if plan.record_dir is None else {"record_dir": plan.record_dir}, {}, {})
        await play(world, duration_seconds=plan.duration_seconds, tick=tick, given=given)


def _first(error: BaseException) -> str:
    """Return the text of the first error in a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


async def play(world: World, *, duration_seconds: float, tick: Tick, given: Given = _NOTHING) -> None:
    """Run the controller in the world for ``duration_seconds`` of virtual time; ``tick`` follows every scrape.

    ``given`` are flags and environment of the controller beside those that say where the world is.
    """
    async with world.open() as endpoints, _controller(world, endpoints, given):
        await world.run(duration_seconds, tick=tick)


@asynccontextmanager
async def _controller(world: World, endpoints: Endpoints, more: Given) -> AsyncIterator[None]:
    """Run the application in the world for the length of a block. An error of its ends the block."""
    given = Given(
        more.flags,
        {
            **more.environment,
            "PROMETHEUS_BASE_URL": endpoints.prometheus_url,
            "PROMETHEUS_ALLOW_HTTP": "true",
            "METRICS_BIND_ADDRESS": "127.0.0.1:0",
            "HEALTH_PROBE_BIND_ADDRESS": "0",
            "GLOBAL_OPT_INTERVAL": f"{world.scenario.interval_seconds:g}s",
        },
        {},
    )
    instruments = Instruments(new_registry())
    stop = asyncio.Event()
    with _kubeconfig(endpoints.kubeconfig):
        async with KubeClient.connect(instruments=instruments) as client, asyncio.TaskGroup() as group:
            random = Random(f"{world.seed}/controller")  # noqa: S311 - a run is a function of its seed
            environment = Environment(load(given).settings, given, client, instruments, world.clock, random=random)
            application = Application(environment)
            group.create_task(application.run(stop))
            world.attach(application)
            try:
                yield
            finally:
                stop.set()


@contextmanager
def _kubeconfig(path: Path) -> Iterator[None]:
    """Point KUBECONFIG at the embedded API server for the length of a block."""
    old = os.environ.get("KUBECONFIG")
    os.environ["KUBECONFIG"] = str(path)
    try:
        yield
    finally:
        if old is None:
            del os.environ["KUBECONFIG"]
        else:
            os.environ["KUBECONFIG"] = old


class _Pace:
    """Keeps virtual time from running ahead of the wall clock times the speed."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._started = time.monotonic()

    async def keep(self, elapsed_seconds: float) -> None:
        """Sleep until the wall clock has caught up."""
        if self._speed is not None:
            ahead = elapsed_seconds / self._speed - (time.monotonic() - self._started)
            await asyncio.sleep(max(0.0, ahead))
