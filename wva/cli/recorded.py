"""Recordings that a command line names: a file, a folder of cycles, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import msgspec

from wva import log
from wva.model.recording import Recording
from wva.publish.recordings import read_recording

STANDARD_INPUT: Final = "-"


class UnreadRecordingError(Exception):
    """A recording cannot be read; the text names it and says why, on one line."""


def read_one(name: str) -> Recording:
    """Return the recording in a file or on standard input. Raises UnreadRecordingError."""
    try:
        return read_recording(sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes())
    except OSError as error:
        raise UnreadRecordingError(f"cannot read {name}: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError) as error:
        reason = log.printable(str(error))
        raise UnreadRecordingError(f"{name} is not a recording made with --record-dir: {reason}") from error


def read_all(name: str) -> list[Recording]:
    """Return the recordings of a folder in the order of their times, or that of a file. Raises UnreadRecordingError."""
    folder = Path(name)
    if name == STANDARD_INPUT or not folder.is_dir():
        return [read_one(name)]
    recordings = [read_one(str(path)) for path in sorted(folder.glob("cycle-*.json"))]
    if not recordings:
        raise UnreadRecordingError(f"{name}: expected recordings made with --record-dir (cycle-*.json), found none")
    return sorted(recordings, key=lambda recording: recording.now)
