"""``wva loadgen``: sends chat completions at a rate, and measures them."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from wva.clock import SystemClock
from wva.command_error import UsageError
from wva.command_line import add_output
from wva.godurations import parse_duration

if TYPE_CHECKING:
    from wva.sim.loadgen.report import Report, ResultTally
    from wva.sim.loadgen.run import RunLimits
    from wva.sim.loadgen.schedule import RateStep

TOKEN_VARIABLE: Final = "OPENAI_API_KEY"  # noqa: S105 - the name of a variable, not a token
_LINE_SECONDS: Final = 5.0
_BAR_SECONDS: Final = 0.25
_MAX_WORDS: Final = 1_000_000
EXAMPLES: Final = (
    "wva loadgen --model default/default --rate '[[600, 40], [300, 240]]'",
    "wva loadgen --model default/default --rate [[60,600]] --url http://localhost:8001/v1 --output json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the load and of the server that gets it."""
    parser.description = (
        "Send streamed chat completions to an OpenAI-compatible server, each at its time whether or not earlier ones "
        "are answered, and print time to first token, inter-token latency and duration."
    )
    parser.epilog = "A token for the server is taken from OPENAI_API_KEY. Exit status: 1 when nothing was answered."
    add = parser.add_argument
    add("--model", required=True, metavar="NAME", help="model to ask for")
    add("--rate", required=True, metavar="STEPS", help="[[seconds, requests per minute], ...]")
    add("--url", default="http://localhost:8000/v1", metavar="URL", help="root of the API")
    add("--content", type=int, default=50, metavar="N", help="words of the prompt (default: 50)")
    add("--max-tokens", type=int, metavar="N", help="longest answer (default: the server's)")
    add("--timeout", default="120s", metavar="DURATION", help="for one request (default: 120s)")
    add("--concurrency", type=int, default=1024, metavar="N", help="most at once (default: 1024)")
    add("--evenly", action="store_true", help="evenly spaced instead of at random")
    add("--seed", type=int, default=1, metavar="N", help="of the times of sending (default: 1)")
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send the load and print the summary; status 1 without any answer.

    Raises CommandError when a flag makes no sense.
    """
    from wva.sim.loadgen.report import table
    from wva.sim.loadgen.run import RunLimits
    from wva.sim.loadgen.schedule import parse_rate

    try:
        steps = parse_rate(arguments.rate)
    except ValueError as error:
        raise UsageError(f"--rate={arguments.rate!r}: {error}") from error
    try:
        url = urlsplit(arguments.url)
    except ValueError as error:
        raise UsageError(f"--url: {error}") from error
    if url.scheme not in {"http", "https"} or not url.hostname or url.username or url.query:
        raise UsageError(f"--url: expected the root of an API such as http://localhost:8000/v1, {TOKEN_VARIABLE} apart")
    if not 1 <= arguments.content <= _MAX_WORDS:
        raise UsageError(f"--content={arguments.content}: expected 1 to {_MAX_WORDS} words")
    if arguments.concurrency < 1 or (arguments.max_tokens is not None and arguments.max_tokens < 1):
        raise UsageError("--concurrency and --max-tokens: expected at least 1")
    try:
        timeout_seconds = parse_duration(arguments.timeout)
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from error
    if timeout_seconds <= 0:
        raise UsageError(f"--timeout={arguments.timeout}: expected more than 0")
    limits = RunLimits(arguments.concurrency, timeout_seconds, arguments.max_tokens)
    report = asyncio.run(_generate(arguments, steps, limits))
    if arguments.output == "json":
        json.dump(asdict(report), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        print(table(report))
    return 0 if report.answered or not report.sent else 1


async def _generate(arguments: argparse.Namespace, steps: tuple[RateStep, ...], limits: RunLimits) -> Report:
    from wva.sim.loadgen.client import ChatClient, open_session
    from wva.sim.loadgen.report import ResultTally
    from wva.sim.loadgen.run import generate
    from wva.sim.loadgen.schedule import arrivals, duration_seconds

    clock, tally = SystemClock(), ResultTally()
    started = clock.monotonic()
    sent_at = arrivals(steps, seed=arguments.seed, evenly=arguments.evenly)
    async with open_session(token=os.environ.get(TOKEN_VARIABLE, ""), connections=limits.concurrency) as session:
        client = ChatClient(session, url=arguments.url, model=arguments.model, content_words=arguments.content)
        load_task = asyncio.create_task(generate(client, sent_at, limits=limits, clock=clock, tally=tally))
        progress_task = asyncio.create_task(_show_progress(tally, duration_seconds(steps)))
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signal_number, load_task.cancel)
        try:
            with suppress(asyncio.CancelledError):
                await load_task
        finally:
            progress_task.cancel()
            await asyncio.gather(progress_task, return_exceptions=True)
    return tally.report(clock.monotonic() - started)


async def _show_progress(tally: ResultTally, total_seconds: float) -> None:
    """Show the progress until cancelled: a bar on a terminal with rich, otherwise a line now and then."""
    clock = SystemClock()
    started = clock.monotonic()

    def progress_line() -> str:
        ended = len(tally.results)
        failed, under_way = ended - tally.answered, tally.sent - ended
        return f"sent {tally.sent}, answered {tally.answered}, failed {failed}, on their way {under_way}"

    with suppress(ModuleNotFoundError):
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(bar_width=40), TextColumn("{task.description}"), TimeRemainingColumn())
            with Progress(*columns, console=Console(stderr=True)) as progress:
                task = progress.add_task(progress_line(), total=total_seconds)
                while True:
                    elapsed = min(clock.monotonic() - started, total_seconds)
                    progress.update(task, completed=elapsed, description=progress_line())
                    await clock.sleep(_BAR_SECONDS)
    while True:
        await clock.sleep(_LINE_SECONDS)
        sys.stderr.write(f"{clock.monotonic() - started:.0f} of {total_seconds:.0f} s: {progress_line()}\n")
