"""Code that ``wva bench``, ``wva backtest`` and ``wva tune`` share: they play runs, and continue after a stop.

Finished runs are kept in files, so the same command continues after it was stopped.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from wva.command_error import INTERRUPTED_STATUS, CommandError
from wva.numbers import Whole, shown

if TYPE_CHECKING:
    from wva.sim.scorecard.quality import Progress
    from wva.sim.scorecard.runs import RunOutcome

_NEEDED: Final = ("highspy", "numba", "numpy", "plotly", "rich")
"""The libraries of the bench extra without which no run can be played."""
_PROGRESS_SECONDS: Final = 60.0
"""The period of progress lines without a terminal."""


def whole(border: Whole) -> Callable[[str], int]:
    """Return a function that reads a whole number of a range, and raises ArgumentTypeError for other texts."""

    def read(text: str) -> int:
        number = border.find(text)
        if number is None:
            raise argparse.ArgumentTypeError(f"{shown(text)}: expected {border.expected}")
        return number

    return read


SEEDS: Final = whole(Whole(1, 100))
"""Reads the number of seeds of each policy."""
WORKERS: Final = whole(Whole(1, 1024))
"""Reads the number of processes that play the runs."""


def play_to_the_end(
    command: Callable[[argparse.Namespace], None], arguments: argparse.Namespace, *, subject: str = "this command"
) -> int:
    """Run a command and return its exit status. SIGTERM ends it as Ctrl-C does: together with its processes.

    Raises CommandError when a library is missing or the system refuses a file.
    """
    missing = next((name for name in _NEEDED if find_spec(name) is None), None)
    if missing is not None:
        raise CommandError(f"{subject} needs {missing}: in a clone of WVA, pip install '.[bench]'")
    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        command(arguments)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}"
        raise CommandError(message if error.filename else error.strerror or str(error)) from error
    except KeyboardInterrupt:
        sys.stderr.write("wva: interrupted; the same command continues\n")
        return INTERRUPTED_STATUS
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
    return 0


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show on a terminal how many runs are done; elsewhere print a line once per minute, and one more at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    counts: Counter[bool] = Counter()
    reported_at = time.monotonic()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("runs", total=None)

        def progress(outcome: RunOutcome, expected: int) -> None:
            nonlocal reported_at
            counts[outcome.kept] += 1
            if not console.is_terminal and time.monotonic() - reported_at >= _PROGRESS_SECONDS:
                reported_at = time.monotonic()
                sys.stderr.write(f"{counts.total()} of {expected} runs\n")
                sys.stderr.flush()
            name = f"{outcome.scenario} {outcome.policy}"[:44].ljust(44)
            bar.update(task, advance=1, total=expected, description=name)

        yield progress
    runs = "1 run" if counts.total() == 1 else f"{counts.total()} runs"
    sys.stderr.write(f"{runs}, {counts[True]} of them kept from before\n")
