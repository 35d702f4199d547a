"""Recordings of cycles on disk: the input of ``wva decide`` and ``wva replay``.

A recording holds what a decision depends on and nothing else: no token, no URL, no label of a pod. The newest hundred
are kept. A disk that is full or a value that JSON cannot hold must not stop the decisions: a failed write is logged and
the cycle goes on.

A recording that is read may come from anywhere. Its numbers are held to what the collector lets in.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Final

import msgspec

from wva import log
from wva.api import wire
from wva.model.demand import DemandMemory
from wva.model.recording import FORMAT, READ, Recording
from wva.model.records import replace
from wva.model.vllm_parameters import COUNT_ARGUMENT, VllmParameters
from wva.numbers import REPLICAS, Real, Whole, shown

KEPT: Final = 100

_TOKENS: Final = Whole(0, 10**15)
_ANY: Final = Real(-1e18, 1e18)
"""Times may lie before the epoch: a target says when it was created as its author likes."""
_WHOLES: Final = {
    **dict.fromkeys(("kv_tokens", "effective", "values"), _TOKENS),
    **dict.fromkeys(("before", "after", "fewer"), Whole(-(10**15), 10**15)),
    "number": Whole(-1_000, 1_000),  # the exponent of a level of demand
    **{field.name: COUNT_ARGUMENT for field in fields(VllmParameters)},
}
"""The whole numbers that are no count of replicas, pods, GPUs or requests, or one on the way to such a count."""


class _Version(msgspec.Struct):
    """The format of a recording alone."""

    version: int = FORMAT


class _Models(msgspec.Struct, frozen=True):
    """What the queueing analyzer remembered, while it had a memory of its own."""

    models: tuple[DemandMemory, ...] = ()


class _OwnMemory(msgspec.Struct, frozen=True):
    """A memory with that of the queueing analyzer in it."""

    queueing: _Models = _Models()


class _Past(msgspec.Struct):
    """What a recording of before has in another place."""

    memory: _OwnMemory = _OwnMemory()


_version: Final = msgspec.json.Decoder(_Version)
_past: Final = msgspec.json.Decoder(_Past)
_decoder: Final = msgspec.json.Decoder(Recording)


def read_recording(data: bytes) -> Recording:
    """Return the recording in the data.

    Raises msgspec.DecodeError when they are none or have another format, NumberError for a number that no cycle could
    have seen.
    """
    # The format comes first: what another one holds need not be what this one expects.
    version = wire.decode(_version, data).version
    if version not in READ:
        newer = ", which a newer version of WVA has written" if version > FORMAT else ""
        expected = f"{', '.join(str(each) for each in READ[:-1])} or {FORMAT}"
        raise msgspec.ValidationError(f"it has format {shown(version)}{newer}: expected {expected}")
    recording = wire.decode(_decoder, data)
    own = wire.decode(_past, data).memory.queueing.models
    if own:
        entries = {entry.key: entry for entry in (*own, *recording.memory.demand)}
        memory = replace(recording.memory, demand=tuple(entries[key] for key in sorted(entries)))
        recording = replace(recording, memory=memory)
    for name, number in _numbers("recording", recording):
        field = name.rpartition(".")[2]
        border = _ANY if isinstance(number, float) else _WHOLES.get(field, REPLICAS)
        border.read(number, key=name, in_force="nothing of it")
    keys = Counter(variant.key for variant in recording.snapshot.variants)
    twice = next((key for key, count in keys.items() if count > 1), None)
    if twice is not None:
        raise msgspec.ValidationError(f"the variant {shown(str(twice))} is in it more than once")
    return recording


def _numbers(name: str, value: object) -> Iterator[tuple[str, int | float]]:
    """Yield every number of a value with the way to it."""
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
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".tmp")
            temporary.write_bytes(msgspec.json.encode(recording))
            temporary.replace(path)
            for old in sorted(self._folder.glob("cycle-*.json"))[:-KEPT]:
                old.unlink(missing_ok=True)
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self._logger.warning("recording_failed", path=str(path), reason=reason)
