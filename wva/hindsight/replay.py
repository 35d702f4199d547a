"""Recorded cycles decided again in the order of their times, with the same inputs or under another policy.

With the same inputs, this engine repeats its own decisions and memories bit for bit. Where an older engine decided, the
replay compares the two engines: each cycle gets the recorded snapshot, the published numbers, and the memory of demand
that this engine built in the cycles before.

Under another policy, each cycle gets the recorded snapshot and the memory that this policy left. A recording cannot
tell how the load would have reacted to other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields

import msgspec

from wva.hindsight.cycle import Cycle, Recording
from wva.hindsight.differences import Pair
from wva.model.memory import Memory
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.variant import VariantKey


@dataclass(frozen=True, slots=True)
class MemoryLink:
    """How a recorded memory differs from the memory that the replayed cycle before left.

    ``started``: the memory was empty, so a controller had just started. ``overtaken`` are the variants whose memory
    changed between the cycles: they were deleted, new, started from zero, or not published. ``torn`` names the other
    parts that differ: a recording between the two is missing, or the decisions cannot be repeated.
    """

    started: bool = False
    overtaken: tuple[VariantKey, ...] = ()
    torn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepeatedCycle:
    """A recorded cycle, decided again. ``differing`` are the variants whose decision is not that of the recording.

    If an older engine decided, ``differing`` is empty and ``link`` only says whether a controller started.
    """

    cycle: Cycle
    differing: tuple[VariantKey, ...]
    link: MemoryLink

    @property
    def recording(self) -> Recording:
        """The recording of the cycle."""
        return self.cycle.recording


def repeat(recordings: Iterable[Recording]) -> Iterator[RepeatedCycle]:
    """Yield each cycle decided again with its own inputs; the recordings are in the order of their times."""
    last: Cycle | None = None
    for recording in recordings:
        cycle = recording.again()
        differing: tuple[VariantKey, ...] = ()
        if not recording.of_before:
            recorded, repeated = (
                {decision.key: decision for decision in decisions}
                for decisions in (recording.decisions, cycle.outcome.decisions)
            )
            differing = _differing(recorded, repeated)
        if last is not None and last.recording.of_before:
            # The memories of two engines cannot be compared.
            follows = MemoryLink(started=link(None, recording.memory).started)
        else:
            follows = link(None if last is None else last.outcome.memory, recording.memory)
        last = cycle
        yield RepeatedCycle(cycle, differing, follows)


def link(left: Memory | None, right: Memory) -> MemoryLink:
    """Compare the memory that a cycle left (None before the first one) with the one that the next cycle had."""
    empty = replace(right, variants=()) == Memory()
    if left is None:
        return MemoryLink(started=empty and not any(entry.decided for entry in right.variants))
    parts = [field.name for field in fields(Memory) if field.name != "variants"]
    torn = tuple(name for name in parts if not _same(getattr(left, name), getattr(right, name)))
    if torn and empty:
        return MemoryLink(started=True)
    return MemoryLink(overtaken=_differing(left.by_key(), right.by_key()), torn=torn)


def _differing(before: Mapping[VariantKey, object], after: Mapping[VariantKey, object]) -> tuple[VariantKey, ...]:
    """Return the variants that differ, sorted."""
    return tuple(sorted(key for key in before.keys() | after.keys() if not _same(before.get(key), after.get(key))))


def _same(first: object, second: object) -> bool:
    """Tell whether two values are the same to the last bit; ``==`` does not tell 0.0 from -0.0."""
    return first is second or msgspec.json.encode(first) == msgspec.json.encode(second)


def under(cycles: Iterable[RepeatedCycle], other: Callable[[Policy], Policy]) -> Iterator[Pair]:
    """Yield each cycle decided under the policy that ``other`` makes of the recorded one.

    Each cycle passes its memory to the next. The recorded memory replaces it at the first cycle, where a controller
    started, and where a recording is missing. It also replaces the entries of overtaken variants (see ``MemoryLink``).

    Where an older engine decided, the memory of all variants is the recorded one, so that both engines decide on the
    numbers that were published.
    """
    memory: Memory | None = None
    for repeated in cycles:
        recording, recorded = repeated.recording, repeated.recording.memory
        if memory is None or repeated.link.started or repeated.link.torn:
            memory = recorded
        elif recording.of_before:
            memory = replace(memory, variants=recorded.variants)
        else:
            overtaken = set(repeated.link.overtaken)
            entries = [entry for entry in memory.variants if entry.key not in overtaken]
            entries += [entry for entry in recorded.variants if entry.key in overtaken]
            memory = replace(memory, variants=tuple(sorted(entries, key=lambda entry: entry.key)))
        policy = other(recording.policy)
        outcome = replace(recording, memory=memory, policy=policy).again().outcome
        memory = outcome.memory
        older = recording.of_before and recording.has_decisions
        then = recording.decisions if older else repeated.cycle.outcome.decisions
        yield Pair(recording.now, then, outcome.decisions, policy, outcome.rules, engines=older)
