"""Recordings that a command line names: a file, a folder of cycles, or standard input."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import msgspec

from wva import log
from wva.model.recording import Recording
from wva.publish.recordings import read_recording

STANDARD_INPUT: Final = "-"
MAXIMUM_BYTES: Final = 256 * 1024**2
"""Of one recording: many times what a thousand variants with ten replicas each take."""


class UnreadRecordingError(Exception):
    """A recording cannot be read; the text names it and says why, on one line."""


def read_one(name: str) -> Recording:
    """Return the recording in a file or on standard input. Raises UnreadRecordingError."""
    try:
        return read_recording(_content(name))
    except OSError as error:
        raise UnreadRecordingError(f"cannot read {name}: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError) as error:
        reason = log.printable(str(error))
        raise UnreadRecordingError(f"{name} is not a recording made with --record-dir: {reason}") from error


def _content(name: str) -> bytes:
    """Return the bytes of a file or of standard input. Raises OSError and UnreadRecordingError."""
    with nullcontext(sys.stdin.buffer) if name == STANDARD_INPUT else Path(name).open("rb") as file:
        data = file.read(MAXIMUM_BYTES + 1)
    if len(data) > MAXIMUM_BYTES:
        raise UnreadRecordingError(f"{name} has more than {MAXIMUM_BYTES} bytes: expected a recording")
    return data


def read_all(name: str) -> list[Recording]:
    """Return the recordings of a folder in the order of their times, or that of a file. Raises UnreadRecordingError."""
    folder = Path(name)
    if name == STANDARD_INPUT or not folder.is_dir():
        return [read_one(name)]
    recordings = [read_one(str(path)) for path in sorted(folder.glob("cycle-*.json")) if path.is_file()]
    if not recordings:
        raise UnreadRecordingError(f"{name}: expected recordings made with --record-dir (cycle-*.json), found none")
    return sorted(recordings, key=lambda recording: recording.now)
