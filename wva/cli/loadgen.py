"""``wva loadgen``: send chat completions at a rate, and say how long they took."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from wva.cli.flags import fail
from wva.clock import SystemClock
from wva.godurations import parse_duration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wva.sim.loadgen.report import Report, Tally
    from wva.sim.loadgen.run import Limits
    from wva.sim.loadgen.schedule import Step

TOKEN_VARIABLE: Final = "OPENAI_API_KEY"  # noqa: S105 - the name of a variable, not a token
_LINE_SECONDS: Final = 5.0
_BAR_SECONDS: Final = 0.25
_MAX_WORDS: Final = 1_000_000


def run(arguments: argparse.Namespace) -> int:
    """Send the load and print the summary; status 1 when nothing was answered or a flag makes no sense."""
    from wva.sim.loadgen.report import table  # noqa: PLC0415 - only this command needs it

    try:
        steps, limits = _plan(arguments)
    except ValueError as error:
        return fail(str(error))
    report = asyncio.run(_generate(arguments, steps, limits))
    if arguments.json:
        json.dump(asdict(report), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        print(table(report))
    return 0 if report.answered or not report.sent else 1


def _plan(arguments: argparse.Namespace) -> tuple[tuple[Step, ...], Limits]:
    """Return what the flags ask for. Raises ValueError naming the flag."""
    from wva.sim.loadgen.run import Limits  # noqa: PLC0415 - see above
    from wva.sim.loadgen.schedule import parse_rate  # noqa: PLC0415 - see above

    try:
        steps = parse_rate(arguments.rate)
    except ValueError as error:
        raise ValueError(f"--rate={arguments.rate!r}: {error}") from error
    url = urlsplit(arguments.url)
    if url.scheme not in {"http", "https"} or not url.hostname or url.username or url.query:
        raise ValueError(f"--url: expected the root of an API such as http://localhost:8000/v1, {TOKEN_VARIABLE} apart")
    if not 1 <= arguments.content <= _MAX_WORDS:
        raise ValueError(f"--content={arguments.content}: expected 1 to {_MAX_WORDS} words")
    if arguments.concurrency < 1 or (arguments.max_tokens is not None and arguments.max_tokens < 1):
        raise ValueError("--concurrency and --max-tokens: expected at least 1")
    try:
        timeout_seconds = parse_duration(arguments.timeout)
    except ValueError as error:
        raise ValueError(f"--timeout: {error}") from error
    if timeout_seconds <= 0:
        raise ValueError(f"--timeout={arguments.timeout}: expected more than 0")
    return steps, Limits(arguments.concurrency, timeout_seconds, arguments.max_tokens)


async def _generate(arguments: argparse.Namespace, steps: tuple[Step, ...], limits: Limits) -> Report:
    from wva.sim.loadgen.client import ChatClient, open_session  # noqa: PLC0415 - see above
    from wva.sim.loadgen.report import Tally  # noqa: PLC0415 - see above
    from wva.sim.loadgen.run import generate  # noqa: PLC0415 - see above
    from wva.sim.loadgen.schedule import arrivals, duration_seconds  # noqa: PLC0415 - see above

    clock, tally = SystemClock(), Tally()
    started = clock.monotonic()
    sent_at = arrivals(steps, seed=arguments.seed, evenly=arguments.evenly)
    async with (
        open_session(token=os.environ.get(TOKEN_VARIABLE, ""), connections=limits.concurrency) as session,
        _progress(tally, duration_seconds(steps)),
    ):
        client = ChatClient(session, url=arguments.url, model=arguments.model, content_words=arguments.content)
        working = asyncio.create_task(generate(client, sent_at, limits=limits, clock=clock, tally=tally))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
        with suppress(asyncio.CancelledError):
            await working
    return tally.report(clock.monotonic() - started)


@asynccontextmanager
async def _progress(tally: Tally, total_seconds: float) -> AsyncIterator[None]:
    """Show how far the run is: a bar on a terminal, a line now and then elsewhere."""
    showing = asyncio.create_task(_bar(tally, total_seconds) if sys.stderr.isatty() else _lines(tally, total_seconds))
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)


async def _bar(tally: Tally, total_seconds: float) -> None:
    try:
        from rich.console import Console  # noqa: PLC0415 - of the demo extra
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - see above
    except ModuleNotFoundError:
        await _lines(tally, total_seconds)
        return
    clock = SystemClock()
    started = clock.monotonic()
    columns = (BarColumn(bar_width=40), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(_told(tally), total=total_seconds)
        while True:
            elapsed = min(clock.monotonic() - started, total_seconds)
            progress.update(task, completed=elapsed, description=_told(tally))
            await clock.sleep(_BAR_SECONDS)


async def _lines(tally: Tally, total_seconds: float) -> None:
    clock = SystemClock()
    started = clock.monotonic()
    while True:
        await clock.sleep(_LINE_SECONDS)
        sys.stderr.write(f"{clock.monotonic() - started:.0f} of {total_seconds:.0f} s: {_told(tally)}\n")


def _told(tally: Tally) -> str:
    failed = len(tally.results) - tally.answered
    return (
        f"sent {tally.sent}, answered {tally.answered}, failed {failed}, on their way {tally.sent - len(tally.results)}"
    )
