"""Recordings of the previous release (format 3): each file is one sample, a list of cycles."""

import gzip
from pathlib import Path

import msgspec

from wva.hindsight.recordings import read_recording

FOLDER = Path(__file__).parent / "recordings"
NAMES = tuple(sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz")))


def files(name):
    """Return the cycles of a sample as they were written."""
    packed = gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes())
    return [bytes(each) for each in msgspec.json.decode(packed, type=list[msgspec.Raw])]


def recordings(name):
    """Return the cycles of a sample as they are read."""
    return [read_recording(data) for data in files(name)]
