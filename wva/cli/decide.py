"""``wva decide FILE``: replay a recorded cycle and print its decisions, as JSON or step by step for people."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from wva.api import wire
from wva.cli.flags import fail
from wva.decide.pipeline import decide
from wva.model.decision import Decision
from wva.model.recording import FORMAT, Recording


def run(arguments: argparse.Namespace) -> int:
    """Print the decisions of the recording; status 1 with one line when it cannot be read."""
    name: str = arguments.file
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        recording = wire.decode(msgspec.json.Decoder(Recording), data)
    except OSError as error:
        return fail(f"cannot read {name}: {error.strerror}")
    except (msgspec.DecodeError, ValueError) as error:
        return fail(f"{name} is not a recording made with --record-dir: {error}")
    if recording.version != FORMAT:
        return fail(f"{name} has format {recording.version}, expected {FORMAT}")
    decisions, _ = decide(recording.snapshot, recording.memory, recording.policy, recording.now)
    if arguments.explain:
        print("\n\n".join(_explained(decision) for decision in decisions))
    else:
        print(msgspec.json.format(msgspec.json.encode(decisions), indent=2).decode())
    return 0


def _explained(decision: Decision) -> str:
    """Return a decision with its steps from the analyzer to the published number, one per line."""
    before = "-" if decision.previous is None else str(decision.previous)
    origin = f"before {before}, current {decision.current}, {decision.source.value}"
    lines = [f"{decision.key}: {decision.desired} {decision.reason.value} ({origin})"]
    for step in decision.steps:
        change = str(step.after) if step.after == step.before else f"{step.before} -> {step.after}"
        limit = f" [limited by {step.limited_by}]" if step.limited_by else ""
        lines.append(f"  {step.stage:10}{change:10}{step.reason}{limit}")
    return "\n".join(_printable(line) for line in lines)


def _printable(line: str) -> str:
    """Return a line without what a terminal would take for a command."""
    return "".join(character if character.isprintable() else "?" for character in line)
