"""``wva decide FILE``: replay a recorded cycle and print its decisions."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from wva.api import wire
from wva.cli.flags import fail
from wva.decide.pipeline import decide
from wva.model.recording import FORMAT, Recording


def run(arguments: argparse.Namespace) -> int:
    """Print the decisions of the recording as JSON; status 1 with one line when it cannot be read."""
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
    print(msgspec.json.format(msgspec.json.encode(decisions), indent=2).decode())
    return 0
