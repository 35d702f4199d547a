"""Recorded cycles decided again: with the same inputs, or under another policy.

With the same inputs every decision comes out again, bit for bit, and so does the memory of the next cycle. That holds
for recordings of this engine. Those of an older one are compared: each cycle sees the world as it was, the numbers that
were published, and what this engine itself has learned from the cycles before.

Under another policy each cycle sees the world as it was, and the memory that this policy itself has left: the recording
cannot tell how the world would have reacted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from statistics import median
from typing import Final

import msgspec

from wva.decide.outcome import Outcome
from wva.decide.pipeline import conclude
from wva.decide.settle import Rule
from wva.model.decision import Decision
from wva.model.memory import Memory, VariantMemory
from wva.model.policy import Policy
from wva.model.recording import Recording
from wva.model.records import replace
from wva.model.variant import VariantKey
from wva.publish.kinds import WHY, Kind, kind_of

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
    """A recorded cycle, decided again. ``differing`` are the variants whose decision is not that of the recording.

    Of a recording of an older engine none are named, and ``link`` says only what can be seen without that engine.
    """

    recording: Recording
    outcome: Outcome
    differing: tuple[VariantKey, ...]
    link: Link


def repeat(recordings: Iterable[Recording]) -> Iterator[Cycle]:
    """Yield each cycle decided again with its own inputs; the recordings are in the order of their times."""
    last: Cycle | None = None
    for recording in recordings:
        outcome = conclude(recording.snapshot, recording.memory, recording.policy, recording.now)
        differing = () if recording.of_before else _differing(recording.decisions, outcome.decisions)
        last = Cycle(recording, outcome, differing, _link(last, recording))
        yield last


def _link(last: Cycle | None, recording: Recording) -> Link:
    """Return how the memory of a recording follows from the cycle before.

    What an older engine has learned is not compared with what this one would have.
    """
    if last is None or not last.recording.of_before:
        return link(None if last is None else last.outcome.memory, recording.memory)
    return Link(started=link(None, recording.memory).started)


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
    """The decisions of a cycle: those of the recording, and those under the other policy or of the other engine.

    ``rules`` gave the other ones. ``engines``: the recorded ones are those of an older engine.
    """

    now: float
    then: tuple[Decision, ...]
    other: tuple[Decision, ...]
    policy: Policy
    rules: Mapping[VariantKey, Rule] = field(default_factory=dict)
    engines: bool = False

    def kind(self, then: Decision, now: Decision) -> Kind:
        """Return the kind of difference between two decisions of the cycle on a variant."""
        siblings = [decision.key for decision in self.other if decision.model == now.model]
        return kind_of(then, now, self.rules, siblings)


def under(cycles: Iterable[Cycle], other: Callable[[Policy], Policy]) -> Iterator[Pair]:
    """Yield each cycle decided under the policy that ``other`` makes of the recorded one.

    The memory is carried along from cycle to cycle. It is that of the recording at the first cycle, where a controller
    started, and where a recording is missing; and for variants that the world had overtaken.

    Where an older engine decided, numbers and clocks of all variants are those of the recording, and only what has been
    learned is carried along: so each decision is compared on the numbers that the world followed.
    """
    memory: Memory | None = None
    for cycle in cycles:
        recording, found = cycle.recording, cycle.recording.memory
        fresh = memory is None or cycle.link.started or cycle.link.torn
        if memory is None or fresh:
            memory = found
        elif recording.of_before:
            memory = replace(memory, variants=found.variants)
        else:
            memory = _with_entries(memory, found, cycle.link.overtaken)
        policy = other(recording.policy)
        outcome = conclude(recording.snapshot, memory, policy, recording.now)
        memory = outcome.memory
        yield _pair(cycle, outcome, policy)


def _pair(cycle: Cycle, outcome: Outcome, policy: Policy) -> Pair:
    recording, older = cycle.recording, cycle.recording.of_before and cycle.recording.has_decisions
    then = recording.decisions if older else cycle.outcome.decisions
    return Pair(recording.now, then, outcome.decisions, policy, outcome.rules, engines=older)


@dataclass(frozen=True, slots=True)
class Span:
    """Cycles in a row in which a variant would have had another number; the reasons are those of the first of them.

    ``rule_now`` gave the other number, empty in v0.5 mode. ``kind`` is how engines differ, empty when they are one.
    """

    start: float
    end: float
    cycles: int
    then: int
    now: int
    reason_then: str
    reason_now: str
    message_then: str
    message_now: str
    rule_now: str = ""
    kind: str = ""


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
    for index, then, decision in _matched(pairs):
        found.setdefault(decision.key, []).append((index, then, decision))
    return tuple(
        Difference(
            key,
            cycles=len(rows),
            differing=sum(old.desired != new.desired for _, old, new in rows),
            replica_hours_then=sum(hours[index] * old.desired for index, old, _ in rows),
            replica_hours_now=sum(hours[index] * new.desired for index, _, new in rows),
            cost_then=sum(hours[index] * old.desired * old.cost for index, old, _ in rows),
            cost_now=sum(hours[index] * new.desired * old.cost for index, old, new in rows),
            spans=tuple(_spans(rows, pairs)),
        )
        for key, rows in sorted(found.items())
    )


def _matched(pairs: Iterable[Pair]) -> Iterator[tuple[int, Decision, Decision]]:
    """Yield the number of the cycle and both decisions, for each variant on which both were made."""
    for index, pair in enumerate(pairs):
        then = {decision.key: decision for decision in pair.then}
        for decision in pair.other:
            if decision.key in then:
                yield index, then[decision.key], decision


def _spans(rows: Sequence[tuple[int, Decision, Decision]], pairs: Sequence[Pair]) -> Iterator[Span]:
    span, last = None, -1
    for index, then, now in rows:
        pair = pairs[index]
        rule = pair.rules.get(now.key)
        kind = pair.kind(then, now).value if pair.engines else ""
        alike = span is not None and (span.then, span.now, span.kind) == (then.desired, now.desired, kind)
        if span is not None and alike and index == last + 1:
            span, last = replace(span, end=pair.now, cycles=span.cycles + 1), index
            continue
        if span is not None:
            yield span
            span = None
        if then.desired != now.desired:
            numbers, reasons = (then.desired, now.desired), (then.reason.value, now.reason.value)
            words = then.message, now.message, "" if rule is None else rule.value, kind
            span, last = Span(pair.now, pair.now, 1, *numbers, *reasons, *words), index
    if span is not None:
        yield span


@dataclass(frozen=True, slots=True)
class KindCount:
    """How often two engines differed in one way, and why.

    ``reasons`` counts the decisions by the recorded reason, the one of this engine and its rule, the most frequent
    first.
    """

    kind: str
    why: str
    decisions: int
    reasons: tuple[tuple[str, int], ...]


def kinds(pairs: Iterable[Pair]) -> tuple[KindCount, ...]:
    """Return how often the engines differed in each way, in the order of the kinds; the first is no difference.

    Cycles on which one engine has decided twice do not count.
    """
    pairs = [pair for pair in pairs if pair.engines]
    found: dict[Kind, Counter[str]] = {}
    for index, then, now in _matched(pairs):
        rule = pairs[index].rules.get(now.key)
        words = f"{then.reason.value} -> {now.reason.value}{'' if rule is None else f' ({rule.value})'}"
        found.setdefault(pairs[index].kind(then, now), Counter())[words] += 1
    return tuple(
        KindCount(kind.value, WHY[kind], found[kind].total(), tuple(sorted(found[kind].items(), key=_most_first)))
        for kind in Kind
        if kind in found
    )


def _most_first(entry: tuple[str, int]) -> tuple[int, str]:
    return -entry[1], entry[0]


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
