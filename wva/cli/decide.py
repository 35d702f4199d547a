"""``wva decide FILE``: decide on a recorded cycle again and print its decisions, as JSON or step by step for people.

Other commands use ``read_all``, too.
"""

from __future__ import annotations

import argparse
import errno
import sys
from pathlib import Path
from typing import Final

import msgspec

from wva import log
from wva.command_error import CommandError
from wva.command_line import add_output, print_json
from wva.files import read_bounded
from wva.publish.recordings import Recording, read_recording
from wva.publish.replay import repeat
from wva.publish.solution import solution

STANDARD_INPUT: Final = "-"
MAXIMUM_BYTES: Final = 256 * 1024**2
"""Limit for one recording; a thousand variants with ten replicas each need a small part of it."""
_MOST_BYTES_OF_A_FOLDER: Final = 4 * MAXIMUM_BYTES
"""All recordings of a folder are in memory at a time."""
EXAMPLES: Final = (
    "wva decide cycles/cycle-0001767226650.000.json",
    "wva decide --explain cycles/cycle-0001767226650.000.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the recording and how its decisions are shown."""
    parser.description = "Read a recording (made with --record-dir) and print its decisions."
    parser.add_argument("file", metavar="FILE", help="the recording; - reads standard input")
    add_output(parser, default="json")
    explained = "every step from the analyzer to the number, in words: --output text"
    parser.add_argument("--explain", dest="output", action="store_const", const="text", help=explained)


def run(arguments: argparse.Namespace) -> int:
    """Print the decisions of the recording. Raises CommandError when it cannot be read."""
    (cycle,) = repeat([read_one(arguments.file)])
    decisions = cycle.outcome.decisions
    if arguments.output == "json":
        print_json(decisions)
        return 0
    explained = []
    for decision in decisions:
        before = "-" if decision.previous is None else str(decision.previous)
        origin = f"before {before}, current {decision.current}, {decision.source.value}"
        lines = [f"{decision.key}: {decision.desired} {decision.reason.value} ({origin})"]
        for step in decision.steps:
            limit = f" [{step.limit}]" if step.limit else ""
            lines.append(f"  {step.stage:10}{step.change:10}{step.reason}{limit}")
        explained.append("\n".join(log.printable(line) for line in lines))
    solved = solution(cycle.outcome, cycle.recording.snapshot, cycle.recording.policy)
    if solved:
        explained.append("\n".join(log.printable(line) for line in ("Optimization solution:", *solved)))
    print("\n\n".join(explained))
    return 0


def read_one(name: str) -> Recording:
    """Return the recording in a file or on standard input. Raises CommandError."""
    try:
        if name != STANDARD_INPUT:
            return read_recording(read_bounded(Path(name), MAXIMUM_BYTES))
        data = sys.stdin.buffer.read(MAXIMUM_BYTES + 1)
        if len(data) > MAXIMUM_BYTES:
            raise CommandError(f"{name} has more than {MAXIMUM_BYTES} bytes: expected a recording")
        return read_recording(data)
    except OSError as error:
        pipe = " (- reads a pipe)" if error.errno == errno.EINVAL else ""
        raise CommandError(f"cannot read {name}: {error.strerror}{pipe}") from error
    except (msgspec.DecodeError, ValueError) as error:
        reason = log.printable(str(error))
        raise CommandError(f"{name} is not a recording made with --record-dir: {reason}") from error


def read_all(name: str) -> list[Recording]:
    """Return the recordings of a folder in the order of their times, or that of a file. Raises CommandError."""
    folder = Path(name)
    try:
        if name == STANDARD_INPUT or not folder.is_dir():
            return [read_one(name)]
        paths = [path for path in sorted(folder.glob("cycle-*.json")) if path.is_file()]
        size = sum(path.stat().st_size for path in paths)
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from error
    if size > _MOST_BYTES_OF_A_FOLDER:
        expected = f"expected at most {_MOST_BYTES_OF_A_FOLDER}: move the older ones elsewhere"
        raise CommandError(f"the recordings in {name} have {size} bytes: {expected}")
    recordings = [read_one(str(path)) for path in paths]
    if not recordings:
        raise CommandError(f"{name}: expected recordings made with --record-dir (cycle-*.json), found none")
    return sorted(recordings, key=lambda recording: recording.now)
