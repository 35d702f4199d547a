"""Recordings of cycles: the input of ``wva decide`` and ``wva replay``, and how they are written and read.

A recording holds the inputs and the decisions of a cycle, and nothing else: no token, no URL, no label of a pod. So
users can give it to other people. ``decide(recording.snapshot, recording.memory, recording.policy, recording.now)``
repeats the decisions bit for bit if an engine of this format made them.

A full disk or a value that JSON cannot hold must not stop the decisions: WVA logs the failed write and goes on. A
recording may come from an untrusted source, so the reader refuses numbers that the collector would not let in.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Final

import msgspec

from wva import log
from wva.api import wire
from wva.model.decision import Decision
from wva.model.memory import DemandMemory, Memory
from wva.model.policy import Policy
from wva.model.records import replace, split
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey
from wva.model.vllm_parameters import COUNT_ARGUMENT, VllmParameters
from wva.numbers import REPLICAS, Real, Whole, shown

FORMAT: Final = 5
"""Grows whenever older recordings cannot be read any more, lead to other decisions, or lack something.

Format 4 has what the engines counted, and the memory of demand. In format 5 the demand analyzer has the objectives of
each model, for an engine of format 4 read no service class with it; a snapshot says whether the fast lane has woken
its cycle, and for which models; and peaks have the times of their scrapes.
"""

WITHOUT_DECISIONS: Final = 2
"""The last format without decisions."""

WITHOUT_WOKEN: Final = 4
"""The last format that does not say whether the fast lane has woken a cycle."""

_WOKEN_SECONDS: Final = 14.0
"""An engine of such a format took a cycle of a model that began so soon after its last one for one that was woken."""

READ: Final = (2, 3, 4, FORMAT)
"""The formats that WVA reads. It treats data that an older format lacks as unknown."""

KEPT: Final = 100
"""The most recordings in a folder; the writer removes the oldest."""

_LEFT_SECONDS: Final = 600.0
"""A file that nobody has finished for so long is left over."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Inputs and decisions of one cycle.

    ``now`` is in seconds since the epoch. ``memory`` comes from the cycle before. ``decisions`` include those for
    variants that were deleted before WVA could publish them; formats before 3 have none.
    """

    now: float
    policy: Policy
    memory: Memory
    snapshot: Snapshot
    decisions: tuple[Decision, ...] = ()
    version: int = FORMAT

    @property
    def has_decisions(self) -> bool:
        """Whether the format holds decisions."""
        return self.version > WITHOUT_DECISIONS

    def grouped(self, groups: Mapping[ModelKey, int], count: int) -> list[Recording]:
        """Return so many recordings of the cycle, each with the models that ``groups`` gives its place.

        What is of no model, such as the policy and the GPUs, is in each of them.
        """
        places = {variant.key: groups.get(variant.model) for variant in self.snapshot.variants}
        places |= {decision.key: groups.get(decision.model) for decision in self.decisions}
        memories = self.memory.grouped(groups, places, count)
        decisions = split(self.decisions, lambda each: groups.get(each.model), count)
        return [
            replace(self, snapshot=snapshot, memory=memory, decisions=own)
            for snapshot, memory, own in zip(self.snapshot.grouped(groups, count), memories, decisions, strict=True)
        ]

    @property
    def of_before(self) -> bool:
        """Whether an older engine decided. This one may decide differently on the same inputs."""
        return self.version < FORMAT


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
        expected = f"{', '.join(str(each) for each in READ[:-1])} or {FORMAT}"
        raise msgspec.ValidationError(f"it has format {shown(version)}{newer}: expected {expected}")
    recording = wire.decode(_decoder, data)
    # In older recordings the queueing analyzer has a memory of its own.
    past: bytes | msgspec.Raw = data
    for name in ("memory", "queueing"):
        past = wire.decode(_parts, past).get(name, b"{}")
    own = wire.decode(_models, wire.decode(_parts, past).get("models", b"[]"))
    if own:
        entries = {entry.key: entry for entry in (*own, *recording.memory.demand)}
        memory = replace(recording.memory, demand=tuple(entries[key] for key in sorted(entries)))
        recording = replace(recording, memory=memory)
    if version <= WITHOUT_WOKEN:
        known = [(each.key, each.at) for each in recording.memory.foreseen if each.at is not None]
        urgent = tuple(sorted([key for key, at in known if recording.now - at < _WOKEN_SECONDS]))
        snapshot = replace(recording.snapshot, woken=bool(urgent), urgent=urgent)
        recording = replace(recording, snapshot=snapshot)
    _NOW.read(recording.now, key="recording.now", in_force="nothing of it")
    for name, number in _numbers("recording", recording):
        field = name.rpartition(".")[2]
        border: Real | Whole = _WHOLES.get(field, REPLICAS)
        if isinstance(number, float):
            border = _SUMS if field == "rows" else _ANY
        border.read(number, key=name, in_force="nothing of it")
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
        temporary, ours = path.with_suffix(".tmp"), False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:  # never into a pipe, or through a link, that somebody has put there
                ours = True
                file.write(msgspec.json.encode(recording))
                written = os.fstat(file.fileno()).st_mtime
            temporary.replace(path)
            ours = False
            self._tidy(path.name, written)
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self._logger.warning("recording_failed", path=str(path), reason=reason)
            if ours:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)

    def _tidy(self, newest: str, written: float) -> None:
        """Remove the oldest recordings beyond the limit, and what was left over before ``written`` (epoch seconds).

        What is no file, such as a folder with the name of a recording, stays, and keeps nothing else.
        """
        for left in self._folder.glob("cycle-*.tmp"):
            # A process was killed while it wrote. A young file may be that of a process that still does.
            with suppress(OSError):
                if left.lstat().st_mtime < written - _LEFT_SECONDS:
                    left.unlink(missing_ok=True)
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        recordings = [name for name in names if name.startswith("cycle-") and name.endswith(".json")]
        # A recording of later than the newest one was written before the clock was set back, so it is an old one.
        for name in sorted(recordings, key=lambda each: (each <= newest, each))[:-KEPT]:
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)
