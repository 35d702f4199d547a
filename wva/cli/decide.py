"""``wva decide FILE``: replay a recorded cycle and print its decisions, as JSON or step by step for people.

For people the solution of the model-based optimizer follows, where it was asked.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from wva.cli.flags import fail
from wva.decide.pipeline import Outcome, conclude
from wva.decide.queueing.trace import fleet_trace
from wva.model.decision import Decision
from wva.model.recording import FORMAT, Recording
from wva.publish.recordings import read_recording


def run(arguments: argparse.Namespace) -> int:
    """Print the decisions of the recording; status 1 with one line when it cannot be read."""
    name: str = arguments.file
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        recording = read_recording(data)
    except OSError as error:
        return fail(f"cannot read {name}: {error.strerror}")
    except (msgspec.DecodeError, ValueError) as error:
        reason = _printable(str(error))
        return fail(f"{name} is not a recording made with --record-dir: {reason}")
    if recording.version != FORMAT:
        return fail(f"{name} has format {recording.version}, expected {FORMAT}")
    outcome = conclude(recording.snapshot, recording.memory, recording.policy, recording.now)
    if arguments.explain:
        print("\n\n".join([*(_explained(decision) for decision in outcome.decisions), *_solution(outcome, recording)]))
    else:
        print(msgspec.json.format(msgspec.json.encode(outcome.decisions), indent=2).decode())
    return 0


def _solution(outcome: Outcome, recording: Recording) -> list[str]:
    """Return what the model-based optimizer has found, if it was asked."""
    if not outcome.opinions:
        return []
    lines = fleet_trace(outcome.opinions, recording.snapshot.inventory, recording.policy.accelerator_costs)
    return ["\n".join(_printable(line) for line in ("Solution of the model-based optimizer:", *lines))]


def _explained(decision: Decision) -> str:
    """Return a decision with its steps from the analyzer to the published number, one per line."""
    before = "-" if decision.previous is None else str(decision.previous)
    origin = f"before {before}, current {decision.current}, {decision.source.value}"
    lines = [f"{decision.key}: {decision.desired} {decision.reason.value} ({origin})"]
    for step in decision.steps:
        limit = f" [{step.limit}]" if step.limit else ""
        lines.append(f"  {step.stage:10}{step.change:10}{step.reason}{limit}")
    return "\n".join(_printable(line) for line in lines)


def _printable(line: str) -> str:
    """Return a line without what a terminal would take for a command."""
    return "".join(character if character.isprintable() else "?" for character in line)
