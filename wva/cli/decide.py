"""``wva decide FILE``: decide on a recorded cycle again and print its decisions, as JSON or step by step for people."""

from __future__ import annotations

import argparse

import msgspec

from wva import log
from wva.cli.flags import fail
from wva.cli.recorded import UnreadRecordingError, read_one
from wva.model.decision import Decision
from wva.publish.replay import repeat


def run(arguments: argparse.Namespace) -> int:
    """Print the decisions of the recording; status 1 with one line when it cannot be read."""
    try:
        recording = read_one(arguments.file)
    except UnreadRecordingError as error:
        return fail(str(error))
    (cycle,) = repeat([recording])
    outcome = cycle.outcome
    if arguments.explain:
        print("\n\n".join(map(_explained, outcome.decisions)))
    else:
        print(msgspec.json.format(msgspec.json.encode(outcome.decisions), indent=2).decode())
    return 0


def _explained(decision: Decision) -> str:
    """Return a decision with its steps from the analyzer to the published number, one per line."""
    before = "-" if decision.previous is None else str(decision.previous)
    origin = f"before {before}, current {decision.current}, {decision.source.value}"
    lines = [f"{decision.key}: {decision.desired} {decision.reason.value} ({origin})"]
    for step in decision.steps:
        limit = f" [{step.limit}]" if step.limit else ""
        lines.append(f"  {step.stage:10}{step.change:10}{step.reason}{limit}")
    return "\n".join(log.printable(line) for line in lines)
