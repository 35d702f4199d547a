"""Recordings in files: how a controller writes one for each cycle, and how commands read them.

A full disk or a value that JSON cannot hold must not stop the decisions: WVA logs the failed write and goes on. A
recording may come from an untrusted source, so the reader refuses numbers that the collector would not let in.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Final

import msgspec

from wva import log
from wva.api import wire
from wva.command_error import CommandError
from wva.files import read_bounded
from wva.hindsight.cycle import FORMAT, Recording
from wva.model.memory import DemandMemory
from wva.model.records import replace
from wva.model.vllm_parameters import COUNT_ARGUMENT, VllmParameters
from wva.numbers import REPLICAS, Real, Whole, shown

READ: Final = (2, 3, 4, FORMAT)
"""The formats that WVA reads. It treats data that an older format lacks as unknown."""

WITHOUT_WOKEN: Final = 4
"""The last format that does not say whether the fast lane has woken a cycle."""

_WOKEN_SECONDS: Final = 14.0
"""An engine of such a format took a cycle of a model that began so soon after its last one for one that was woken."""

STANDARD_INPUT: Final = "-"
MAXIMUM_BYTES: Final = 256 * 1024**2
"""Limit for one recording; a thousand variants with ten replicas each need a small part of it."""
_MOST_BYTES_OF_A_FOLDER: Final = 4 * MAXIMUM_BYTES
"""All recordings of a folder are in memory at a time."""

KEPT: Final = 100
"""The most recordings in a folder; the writer removes the oldest."""
_FILES: Final = "cycle-*.json"

_LEFT_SECONDS: Final = 600.0
"""A file that nobody has finished for so long is left over."""


_TOKENS: Final = Whole(0, 10**15)
_NOW: Final = Real(0.0, 1e11)
"""A cycle begins in the years from 1970 to 5138. Later ones have no date that can be shown."""
_ANY: Final = Real(-1e18, 1e18)
"""Times may lie before the epoch, because the author of a target can write any creation time."""
_SUMS: Final = Real(-1e45, 1e45)
"""What is learned of an engine: sums of squares with weights. Fast steps with full caches come to so much."""
_WHOLES: Final = {
    **dict.fromkeys(("kv_tokens", "effective", "values"), _TOKENS),
    **dict.fromkeys(("before", "after", "fewer"), Whole(-(10**15), 10**15)),
    "number": Whole(-1_000, 1_000),  # the exponent of a level of demand
    **{field.name: COUNT_ARGUMENT for field in fields(VllmParameters)},
}
"""Limits of the whole numbers that do not count replicas, pods, GPUs or requests, by field."""


class _Version(msgspec.Struct):
    """The format of a recording alone."""

    version: int = FORMAT


_version: Final = msgspec.json.Decoder(_Version)
_decoder: Final = msgspec.json.Decoder(Recording)
_parts: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_models: Final = msgspec.json.Decoder(tuple[DemandMemory, ...])


def read_recording(data: bytes) -> Recording:
    """Return the recording in the data.

    Raises msgspec.DecodeError for data without a recording of a known format, and NumberError for a number that no
    cycle could have seen.
    """
    # Check the format first, because another format may hold other fields.
    version = wire.decode(_version, data).version
    if version not in READ:
        newer = ", which a newer version of WVA has written" if version > FORMAT else ""
        expected = f"{', '.join(str(version) for version in READ[:-1])} or {FORMAT}"
        raise msgspec.ValidationError(f"it has format {shown(version)}{newer}: expected {expected}")
    recording = wire.decode(_decoder, data)
    # In older recordings the queueing analyzer has a memory of its own.
    section: bytes | msgspec.Raw = data
    for name in ("memory", "queueing"):
        section = wire.decode(_parts, section).get(name, b"{}")
    queueing_memory = wire.decode(_models, wire.decode(_parts, section).get("models", b"[]"))
    if queueing_memory:
        entries = {entry.key: entry for entry in (*queueing_memory, *recording.memory.demand)}
        memory = replace(recording.memory, demand=tuple(entries[key] for key in sorted(entries)))
        recording = replace(recording, memory=memory)
    if version <= WITHOUT_WOKEN:
        foreseen_at = [(entry.key, entry.at) for entry in recording.memory.foreseen if entry.at is not None]
        urgent = tuple(sorted([key for key, at in foreseen_at if recording.now - at < _WOKEN_SECONDS]))
        snapshot = replace(recording.snapshot, woken=bool(urgent), urgent=urgent)
        recording = replace(recording, snapshot=snapshot)
    _NOW.read(recording.now, key="recording.now", in_force="nothing of it")
    for name, number in _numbers("recording", recording):
        field = name.rpartition(".")[2]
        limits: Real | Whole = _WHOLES.get(field, REPLICAS)
        if isinstance(number, float):
            limits = _SUMS if field == "rows" else _ANY
        limits.read(number, key=name, in_force="nothing of it")
    for key, count in Counter(variant.key for variant in recording.snapshot.variants).items():
        if count > 1:
            raise msgspec.ValidationError(f"the variant {shown(str(key))} is in it more than once")
    return recording


def _numbers(name: str, value: object) -> Iterator[tuple[str, int | float]]:
    """Yield every number in a value with its path."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, value
    elif isinstance(value, tuple):
        for item in value:
            yield from _numbers(name, item)
    elif isinstance(value, msgspec.Struct):
        for field_name in value.__struct_fields__:
            yield from _numbers(f"{name}.{field_name}", getattr(value, field_name))
    elif is_dataclass(value):
        for field in fields(value):
            yield from _numbers(f"{name}.{field.name}", getattr(value, field.name))


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
        paths = [path for path in sorted(folder.glob(_FILES)) if path.is_file()]
        size = sum(path.stat().st_size for path in paths)
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}") from error
    if size > _MOST_BYTES_OF_A_FOLDER:
        expected = f"expected at most {_MOST_BYTES_OF_A_FOLDER}: move the older ones elsewhere"
        raise CommandError(f"the recordings in {name} have {size} bytes: {expected}")
    recordings = [read_one(str(path)) for path in paths]
    if not recordings:
        raise CommandError(f"{name}: expected recordings made with --record-dir ({_FILES}), found none")
    return sorted(recordings, key=lambda recording: recording.now)


class RecordingWriter:
    """Writes one file per cycle into a folder."""

    def __init__(self, folder: str) -> None:
        """Use ``folder``, which is created at the first write."""
        self._folder = Path(folder)
        self._logger = log.get("recordings")

    async def keep(self, recording: Recording) -> None:
        """Write one recording in a thread: the disk may be slow."""
        await asyncio.to_thread(self.write, recording)

    def write(self, recording: Recording) -> None:
        """Write one recording and remove the oldest beyond the limit."""
        path = self._folder / f"cycle-{recording.now:017.3f}.json"
        temporary, created = path.with_suffix(".tmp"), False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:  # never into a pipe, or through a link, that somebody has put there
                created = True
                file.write(msgspec.json.encode(recording))
                written = os.fstat(file.fileno()).st_mtime
            temporary.replace(path)
            created = False
            self._tidy(path.name, written)
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self._logger.warning("recording_failed", path=str(path), reason=reason)
            if created:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)

    def _tidy(self, newest: str, written: float) -> None:
        """Remove the oldest recordings beyond the limit, and what was left over before ``written`` (epoch seconds).

        A folder, or anything else that is no file, stays even if it has the name of a recording. The others still go.
        """
        for leftover in self._folder.glob("cycle-*.tmp"):
            # A process was killed while it wrote. A young file may be that of a process that still writes.
            with suppress(OSError):
                if leftover.lstat().st_mtime < written - _LEFT_SECONDS:
                    leftover.unlink(missing_ok=True)
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        recordings = [name for name in names if name.startswith("cycle-") and name.endswith(".json")]
        # A recording with a later time than the newest was written before the clock was set back, so it is an old one.
        for name in sorted(recordings, key=lambda name: (name <= newest, name))[:-KEPT]:
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)
