"""``wva demo``: the real controller in an embedded world, in this process.

The scenarios are in ``wva.sim.world.scenarios``.
The controller is built as ``wva run`` builds it; only its clock is the world's. The command shows a live view or
nothing (``--headless``, or without a terminal) and a summary, and with ``--json`` writes everything that happened.
Ctrl-C ends it with the summary of what has run. With ``--web`` and without ``--for`` the console stays after the run
until Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from wva import log
from wva.app import Application, new_registry
from wva.command_error import INTERRUPTED_STATUS, CommandError, UsageError
from wva.config import load
from wva.config.load import NO_INPUTS, Inputs
from wva.godurations import parse_duration
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.numbers import Real
from wva.serve.addresses import Address, AddressError
from wva.serve.gate import Loopback

if TYPE_CHECKING:
    from wva.sim.prometheus import Tsdb
    from wva.sim.stage.result import Figures
    from wva.sim.world.baseline import ComparisonProcess
    from wva.sim.world.world import EmbeddedWorld, Endpoints

CONSOLE: Final = "127.0.0.1:8444"
_PROGRESS_SECONDS: Final = 5.0
"""Of the wall clock: without a live view a line tells this often how far the run is."""
DEFAULT_RUN_SECONDS: Final = 110.0
"""The wall time of a run without a given speed."""
_SPEED: Final = Real(minimum=0, above=True)

Tick = Callable[[], Awaitable[None]]
EXAMPLES: Final = (
    "wva demo",
    "wva demo --scenario bad-day --web",
    "wva demo --headless --speed max --for 18m --json run.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the world, of its speed and of the output."""
    parser.description = (
        "Run the unmodified controller against an embedded Kubernetes API, Prometheus, HPA and vLLM fleet, all in this "
        "process and in virtual time, and watch it scale. Needs the demo extra: in a clone of WVA, pip install "
        "'.[demo]'."
    )
    add = parser.add_argument
    add("--scenario", default="quickstart", metavar="NAME", help="what happens (default: quickstart)")
    add("--list", action="store_true", help="list the scenarios and exit")
    add("--for", dest="duration", metavar="DURATION", help="virtual time to run, such as 2h")
    add("--speed", default=None, metavar="N|max", help="virtual seconds per second, or max")
    add("--headless", action="store_true", help="no live view, only the summary; so without a terminal")
    add("--json", dest="json_file", type=Path, metavar="FILE", help="write timelines and summary")
    samples = "write every sample, for promtool"
    add("--openmetrics", dest="openmetrics_file", type=Path, metavar="FILE", help=samples)
    add("--web", nargs="?", const=CONSOLE, metavar="ADDRESS", help=f"serve the console there (default: {CONSOLE})")
    add("--record-dir", metavar="DIR", help="record the newest 100 cycles, for `wva replay`")
    add("--seed", type=int, default=1, metavar="N", help="a run is a function of its seed (default: 1)")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo and return the exit status. Raises CommandError."""
    try:
        from wva.sim.world.scenarios import SCENARIOS
    except ModuleNotFoundError as error:
        raise CommandError(f"the demo needs {error.name}: in a clone of WVA, pip install '.[demo]'") from error
    if arguments.list:
        for listed_scenario in SCENARIOS.values():
            print(f"{listed_scenario.name:20} {listed_scenario.title}")
        return 0
    scenario = SCENARIOS.get(arguments.scenario)
    if scenario is None:
        raise UsageError(f"--scenario={arguments.scenario!r}: expected one of {', '.join(SCENARIOS)}")
    if arguments.duration is not None:
        try:
            duration = parse_duration(arguments.duration)
        except ValueError as error:
            raise UsageError(f"--for={arguments.duration!r}: {error}") from error
        if duration <= 0:
            raise UsageError(f"--for={arguments.duration!r}: expected a duration greater than zero")
        scenario = scenario.lasting(duration)
    headless = arguments.headless or not sys.stdout.isatty()
    speed: float | None = None
    if arguments.speed not in (None, "max"):
        speed = _SPEED.find(arguments.speed)
        if speed is None:
            raise UsageError(f"--speed={arguments.speed!r}: expected a number greater than zero, or max")
    if arguments.web is not None:
        _check_web(arguments.web)
    _check_outputs(arguments)
    log.configure(level="error", encoding="console")

    from wva.sim.commands import view
    from wva.sim.world.baseline import ComparisonProcess, comparable
    from wva.sim.world.world import EmbeddedWorld

    world = EmbeddedWorld(scenario, seed=arguments.seed)
    duration = world.traffic.duration_seconds
    if arguments.speed is None and not headless:
        speed = duration / DEFAULT_RUN_SECONDS
    comparison = ComparisonProcess(scenario, arguments.seed) if comparable(scenario, duration) else None
    started = time.monotonic()
    problem: BaseException | None = None
    interrupted = False
    try:
        asyncio.run(_watched(world, arguments, duration_seconds=duration, speed=speed, headless=headless))
    except* (CommandError, AddressError) as group:
        problem = group
    except* KeyboardInterrupt:
        interrupted = True
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    if isinstance(problem, AddressError):
        raise CommandError(f"--web={arguments.web}: {problem}") from problem
    finished = world.clock.elapsed_seconds >= duration
    if problem is not None or not finished:
        comparison = None  # a daemon: it ends with this process
    if problem is not None:
        raise problem
    if interrupted and not all(variant.points for variant in world.timeline.variants.values()):
        return INTERRUPTED_STATUS  # before there was anything to summarize
    if arguments.json_file is not None:
        document = world.timeline.document(scenario, seed=arguments.seed, model=world.model)
        with _naming("--json", arguments.json_file):
            arguments.json_file.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))
    wall_seconds = time.monotonic() - started
    figures = None if comparison is None else _others(comparison)
    view.print_summary(world, wall_seconds=wall_seconds, others=figures)
    return INTERRUPTED_STATUS if interrupted and not finished else 0


def _others(comparison: ComparisonProcess) -> dict[str, Figures] | None:
    """Return the figures to compare the run with; print a note while they take time, and if there are none."""
    if not comparison.ready:
        print("the run has ended; an HPA and a fixed fleet still play the same traffic", file=sys.stderr, flush=True)
    figures = comparison.figures()
    if figures is None:
        print("nothing to compare with: the HPA and the fixed fleet were stopped or too slow", file=sys.stderr)
    return figures


def _check_web(text: str) -> None:
    """Raise CommandError unless this is an address of this machine: the console asks for no token."""
    try:
        address = Address.parse(text, setting="--web")
    except AddressError as error:
        raise UsageError(str(error)) from error
    if address is not None and address.host not in Loopback.HOSTS:
        raise UsageError(f"--web={text!r}: expected 127.0.0.1:PORT or localhost:PORT, as the demo asks for no token")


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Raise CommandError for a file or folder that cannot be written: the run would be lost."""
    if arguments.json_file is not None:
        with _naming("--json", arguments.json_file):
            arguments.json_file.open("ab").close()
    if arguments.record_dir is not None:
        with _naming("--record-dir", arguments.record_dir):
            Path(arguments.record_dir).mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=arguments.record_dir).close()


async def _watched(
    world: EmbeddedWorld, arguments: argparse.Namespace, *, duration_seconds: float, speed: float | None, headless: bool
) -> None:
    """Run the world with the live view and the file of samples that the flags ask for. Raises CommandError.

    ``speed`` is virtual seconds per second of the wall clock; None is as fast as it goes.
    """
    from wva.sim.commands import view

    started = time.monotonic()
    with (
        sample_file(arguments.openmetrics_file, world.prometheus.tsdb) as write_samples,
        nullcontext() if headless else view.LiveView(world, duration_seconds) as live,
    ):
        reported_at = started
        flags: dict[str, str] = {} if arguments.record_dir is None else {"record_dir": arguments.record_dir}
        address = arguments.web
        if address is not None:
            flags["console_bind_address"] = address

        async def tick() -> None:
            nonlocal reported_at, address
            if address is not None:  # the console listens by now: the world does not run before
                _say(f"console: http://{address}/")
                address = None
            if live is not None:
                live.refresh()
            elif time.monotonic() - reported_at >= _PROGRESS_SECONDS:
                reported_at = time.monotonic()
                _say(f"{view.clock_text(world.clock.elapsed_seconds)} of {view.clock_text(duration_seconds)}")
            write_samples()
            if speed is not None:
                ahead = world.clock.elapsed_seconds / speed - (time.monotonic() - started)
                await asyncio.sleep(max(0.0, ahead))

        async def stay() -> None:
            if arguments.web is not None and arguments.duration is None:
                _say(f"the run has ended; http://{arguments.web}/ stays until Ctrl-C")
                await asyncio.Event().wait()

        await play(world, duration_seconds=duration_seconds, tick=tick, inputs=Inputs(flags, {}, {}), after=stay)


def _say(line: str) -> None:
    """Print a line to stderr, beside the output."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def sample_file(path: Path | None, tsdb: Tsdb) -> Iterator[Callable[[], None]]:
    """Open the file for the length of a block and yield a function that writes the new samples to it.

    Without a path the function writes nothing. Raises CommandError, as the function does.
    """
    from wva.sim.prometheus.openmetrics import OpenMetricsWriter

    if path is None:
        yield lambda: None
        return
    with _naming("--openmetrics", path):
        file = path.open("w", encoding="utf-8")
    try:
        writer = OpenMetricsWriter(tsdb, file)

        def write() -> None:
            with _naming("--openmetrics", path):
                writer.write()

        yield write
        with _naming("--openmetrics", path):
            writer.finish()
            file.flush()
    finally:
        with _naming("--openmetrics", path):
            file.close()


@contextmanager
def _naming(flag: str, path: Path | str) -> Iterator[None]:
    """Turn an OSError of a block into a CommandError that names the flag and its file or folder."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{flag}={path}: {error.strerror}") from error


async def _nothing() -> None:
    """Do nothing."""


async def play(
    world: EmbeddedWorld, *, duration_seconds: float, tick: Tick, inputs: Inputs = NO_INPUTS, after: Tick = _nothing
) -> None:
    """Run the controller in the world for ``duration_seconds`` of virtual time; ``tick`` follows every scrape.

    ``inputs`` are flags and environment of the controller beside those that say where the world is. ``after`` runs at
    the end, while the controller still serves.
    """
    async with world.open() as endpoints:
        if world.begins_seconds:
            await world.run(world.begins_seconds, tick=tick)
        async with running(world, endpoints, inputs):
            await world.run(duration_seconds - world.begins_seconds, tick=tick)
            await after()


@asynccontextmanager
async def running(world: EmbeddedWorld, endpoints: Endpoints, more: Inputs) -> AsyncIterator[None]:
    """Run the application in the world for the length of a block. An error in it ends the block."""
    inputs = Inputs(
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
            random = Random(f"{world.seed}/controller")  # a run is a function of its seed
            application = Application(
                load(inputs).settings,
                inputs,
                client=client,
                instruments=instruments,
                clock=world.clock,
                random=random,
                open_console=True,
            )
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
