"""Recorded cycles decided again: with the same inputs, or under another policy.

With the same inputs every decision comes out again, bit for bit, and so does the memory of the next cycle. Under
another policy each cycle sees the world as it was, and the memory that this policy itself has left: the recording
cannot tell how the world would have reacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from statistics import median
from typing import Final

import msgspec

from wva.decide.pipeline import Outcome, conclude
from wva.model.decision import Decision
from wva.model.memory import Memory, VariantMemory
from wva.model.policy import Policy
from wva.model.recording import Recording
from wva.model.variant import VariantKey

_LONG_GAP: Final = 10
"""A time between two recordings that is so many times the usual one is none in which anything was decided."""

_SECONDS_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Link:
    """How the memory that was recorded follows from the cycle before, as it was decided again.

    ``started``: it was empty, so a controller had just started. ``overtaken`` are the variants of which the world had
    changed what is remembered: they were deleted, began, were started from zero, or could not be published. ``torn``
    are other parts that differ, by name: then a recording is missing between the two, or decisions cannot be repeated.
    """

    started: bool = False
    overtaken: tuple[VariantKey, ...] = ()
    torn: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cycle:
    """A recorded cycle, decided again. ``differing`` are the variants whose decision is not that of the recording."""

    recording: Recording
    outcome: Outcome
    differing: tuple[VariantKey, ...]
    link: Link


def repeat(recordings: Iterable[Recording]) -> Iterator[Cycle]:
    """Yield each cycle decided again with its own inputs; the recordings are in the order of their times."""
    left: Memory | None = None
    for recording in recordings:
        outcome = conclude(recording.snapshot, recording.memory, recording.policy, recording.now)
        differing = _differing(recording.decisions, outcome.decisions) if recording.has_decisions else ()
        yield Cycle(recording, outcome, differing, link(left, recording.memory))
        left = outcome.memory


def link(left: Memory | None, found: Memory) -> Link:
    """Compare the memory that a cycle has left (None: no cycle came before) with the one that the next has found."""
    if left is None:
        return Link(started=_nothing_learned(found) and not any(entry.decided for entry in found.variants))
    torn = [
        field.name
        for field in fields(Memory)
        if field.name != "variants" and not _same(getattr(left, field.name), getattr(found, field.name))
    ]
    if torn and _nothing_learned(found):
        return Link(started=True)
    before, after = left.by_key(), found.by_key()
    changed = sorted(key for key in before.keys() | after.keys() if not _same(before.get(key), after.get(key)))
    return Link(overtaken=tuple(changed), torn=tuple(torn))


@dataclass(frozen=True, slots=True)
class Pair:
    """The decisions of a cycle: those of the recording, and those under the other policy."""

    now: float
    then: tuple[Decision, ...]
    other: tuple[Decision, ...]
    policy: Policy


def under(cycles: Iterable[Cycle], other: Callable[[Policy], Policy]) -> Iterator[Pair]:
    """Yield each cycle decided under the policy that ``other`` makes of the recorded one.

    The memory is carried along from cycle to cycle. It is that of the recording at the first cycle, where a controller
    started, and where a recording is missing; and for variants that the world had overtaken.
    """
    memory: Memory | None = None
    for cycle in cycles:
        recording, found = cycle.recording, cycle.recording.memory
        fresh = memory is None or cycle.link.started or cycle.link.torn
        memory = found if memory is None or fresh else _with_entries(memory, found, cycle.link.overtaken)
        policy = other(recording.policy)
        outcome = conclude(recording.snapshot, memory, policy, recording.now)
        memory = outcome.memory
        yield Pair(recording.now, cycle.outcome.decisions, outcome.decisions, policy)


@dataclass(frozen=True, slots=True)
class Span:
    """Cycles in a row in which a variant would have had another number; the reasons are those of the first of them."""

    start: float
    end: float
    cycles: int
    then: int
    now: int
    reason_then: str
    reason_now: str
    message_then: str
    message_now: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What would differ for a variant.

    The hours are replicas times the time until the next cycle, and costs are those hours times the cost of a replica.
    ``cycles`` are those of the variant, ``differing`` those in which the number differs.
    """

    key: VariantKey
    cycles: int
    differing: int
    replica_hours_then: float
    replica_hours_now: float
    cost_then: float
    cost_now: float
    spans: tuple[Span, ...]


def differences(pairs: Sequence[Pair]) -> tuple[Difference, ...]:
    """Return what would differ for each variant, sorted."""
    hours = _hours([pair.now for pair in pairs])
    found: dict[VariantKey, list[tuple[int, Decision, Decision]]] = {}
    for index, pair in enumerate(pairs):
        then = {decision.key: decision for decision in pair.then}
        for decision in pair.other:
            if decision.key in then:
                found.setdefault(decision.key, []).append((index, then[decision.key], decision))
    return tuple(
        Difference(
            key,
            cycles=len(rows),
            differing=sum(old.desired != new.desired for _, old, new in rows),
            replica_hours_then=sum(hours[index] * old.desired for index, old, _ in rows),
            replica_hours_now=sum(hours[index] * new.desired for index, _, new in rows),
            cost_then=sum(hours[index] * old.desired * old.cost for index, old, _ in rows),
            cost_now=sum(hours[index] * new.desired * old.cost for index, old, new in rows),
            spans=tuple(_spans(rows, [pair.now for pair in pairs])),
        )
        for key, rows in sorted(found.items())
    )


def _spans(rows: Sequence[tuple[int, Decision, Decision]], times: Sequence[float]) -> Iterator[Span]:
    span, last = None, -1
    for index, then, now in rows:
        if span is not None and index == last + 1 and (span.then, span.now) == (then.desired, now.desired):
            span, last = replace(span, end=times[index], cycles=span.cycles + 1), index
            continue
        if span is not None:
            yield span
            span = None
        if then.desired != now.desired:
            numbers, reasons = (then.desired, now.desired), (then.reason.value, now.reason.value)
            span, last = Span(times[index], times[index], 1, *numbers, *reasons, then.message, now.message), index
    if span is not None:
        yield span


def _hours(times: Sequence[float]) -> list[float]:
    """Return how long each cycle was in force; nothing for the last one, and for one before a long gap."""
    gaps = [later - earlier for earlier, later in pairwise(times)]
    usual = median(gaps) if gaps else 0.0
    return [*(gap / _SECONDS_PER_HOUR if gap <= _LONG_GAP * usual else 0.0 for gap in gaps), 0.0]


def _differing(then: Iterable[Decision], again: Iterable[Decision]) -> tuple[VariantKey, ...]:
    before, after = ({decision.key: decision for decision in decisions} for decisions in (then, again))
    return tuple(sorted(key for key in before.keys() | after.keys() if not _same(before.get(key), after.get(key))))


def _same(one: object, other: object) -> bool:
    """Tell whether two values are the same to the last bit; equality takes 0.0 for -0.0."""
    return one is other or msgspec.json.encode(one) == msgspec.json.encode(other)


def _nothing_learned(memory: Memory) -> bool:
    return replace(memory, variants=()) == Memory()


def _with_entries(memory: Memory, found: Memory, keys: Iterable[VariantKey]) -> Memory:
    """Return a memory with what another one says of some variants; who is not in it leaves."""
    entries, theirs = memory.by_key(), found.by_key()
    for key in keys:
        entry: VariantMemory | None = theirs.get(key)
        if entry is None:
            entries.pop(key, None)
        else:
            entries[key] = entry
    return replace(memory, variants=tuple(sorted(entries.values(), key=lambda entry: entry.key)))
