"""``wva decide FILE``: decide on a recorded cycle again and print its decisions, as JSON or step by step for people."""

from __future__ import annotations

import argparse
from typing import Final

from wva import log
from wva.command_line import add_output, print_json
from wva.hindsight.explanation import step_lines
from wva.hindsight.recordings import read_one
from wva.publish.solution import solution

EXAMPLES: Final = (
    "wva decide cycles/cycle-0001767226650.000.json",
    "wva decide --explain cycles/cycle-0001767226650.000.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the recording and how its decisions are shown."""
    parser.description = "Read a recording (made with --record-dir) and print its decisions."
    parser.add_argument("file", metavar="FILE", help="the recording; - reads standard input")
    add_output(parser, default="json")
    help_text = "every step from the analyzer to the number, in words: --output text"
    parser.add_argument("--explain", dest="output", action="store_const", const="text", help=help_text)


def run(arguments: argparse.Namespace) -> int:
    """Print the decisions of the recording. Raises CommandError when it cannot be read."""
    cycle = read_one(arguments.file).again()
    decisions = cycle.outcome.decisions
    if arguments.output == "json":
        print_json(decisions)
        return 0
    explained = []
    for decision in decisions:
        previous = "-" if decision.previous is None else str(decision.previous)
        origin = f"before {previous}, current {decision.current}, {decision.source.value}"
        head = f"{decision.key}: {decision.desired} {decision.reason.value} ({origin})"
        lines = (head, *step_lines(decision.steps, repeats=True))
        explained.append("\n".join(log.printable(line) for line in lines))
    solved = solution(cycle)
    if solved:
        explained.append("\n".join(log.printable(line) for line in ("Optimization solution:", *solved)))
    print("\n\n".join(explained))
    return 0
