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
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import Final

import msgspec

from wva.decide.failed import Outcome
from wva.decide.pipeline import conclude
from wva.decide.settle import Rule
from wva.model.decision import Decision, Reason
from wva.model.memory import Memory
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.variant import VariantKey
from wva.publish.recordings import Recording

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
        found = recording.memory
        outcome = conclude(recording.snapshot, found, recording.policy, recording.now)
        differing: tuple[VariantKey, ...] = ()
        if not recording.of_before:
            then, again = (
                {decision.key: decision for decision in each} for each in (recording.decisions, outcome.decisions)
            )
            differing = _differing(then, again)
        if last is not None and last.recording.of_before:
            # What an older engine has learned is not compared with what this one would have.
            follows = Link(started=link(None, found).started)
        else:
            follows = link(None if last is None else last.outcome.memory, found)
        last = Cycle(recording, outcome, differing, follows)
        yield last


def link(left: Memory | None, found: Memory) -> Link:
    """Compare the memory that a cycle has left (None: no cycle came before) with the one that the next has found."""
    empty = replace(found, variants=()) == Memory()
    if left is None:
        return Link(started=empty and not any(entry.decided for entry in found.variants))
    parts = [field.name for field in fields(Memory) if field.name != "variants"]
    torn = tuple(name for name in parts if not _same(getattr(left, name), getattr(found, name)))
    if torn and empty:
        return Link(started=True)
    return Link(overtaken=_differing(left.by_key(), found.by_key()), torn=torn)


def _differing(before: Mapping[VariantKey, object], after: Mapping[VariantKey, object]) -> tuple[VariantKey, ...]:
    """Return the variants that differ, sorted."""
    return tuple(sorted(key for key in before.keys() | after.keys() if not _same(before.get(key), after.get(key))))


def _same(one: object, other: object) -> bool:
    """Tell whether two values are the same to the last bit; equality takes 0.0 for -0.0."""
    return one is other or msgspec.json.encode(one) == msgspec.json.encode(other)


class Kind(StrEnum):
    """In which way two engines differ on a decision; the value is the name of the kind.

    It follows from what the engines say of themselves: the numbers, the reason that the one recorded, and the rule by
    which the other one decided. Nothing is read out of sentences.
    """

    SAME = "same number, same reason"
    REASON = "same number, another reason"
    GROWS_BY_MORE = "grows by more at once"
    GROWS_BY_LESS = "grows by less at once"
    GROWS_HERE = "grows where it waited"
    GROWS_ELSEWHERE = "another variant grows instead"
    WAITS = "waits for replicas under way"
    NEEDS_NO_MORE = "does not grow"
    SHRINKS_BY_MORE = "more replicas go at once"
    SHRINKS_BY_LESS = "fewer replicas go at once"
    SHRINKS_HERE = "shrinks where it stayed"
    LAST_GOES = "the last replica of a sibling goes"
    EXCHANGES = "replicas of one variant replace those of another"
    SHRINK_WAITS = "does not shrink yet"
    WITHDRAWS = "takes back an unfinished change"
    KEEPS = "does not take back an unfinished change"
    LIMITED = "another limit of GPUs or bounds"
    EVIDENCE = "other evidence"
    OTHER = "none of these"


WHY: Final = {
    Kind.SAME: "both engines say the same",
    Kind.REASON: "rules are asked in another order, and some of them have a reason of their own now",
    Kind.GROWS_BY_MORE: "growth is sized once, for all that is missing, instead of step by step",
    Kind.GROWS_BY_LESS: "what is under way is taken off first, and how many are added at once follows what serves",
    Kind.GROWS_HERE: "the need is larger than what is there and under way",
    Kind.GROWS_ELSEWHERE: "the growth goes to the variants of the cheapest numbers that cover the need",
    Kind.WAITS: "what is under way was asked for this demand, and there is no more growth until it has come",
    Kind.NEEDS_NO_MORE: "what is there and under way covers the need",
    Kind.SHRINKS_BY_MORE: "the cheapest numbers that cover what must be left are taken at once",
    Kind.SHRINKS_BY_LESS: "what must be left allows fewer to go",
    Kind.SHRINKS_HERE: "the others cover what must be left",
    Kind.LAST_GOES: "a variant whose minimum is 0 needs no replica while its siblings carry the model",
    Kind.EXCHANGES: "another mix of variants carries the same load for less",
    Kind.SHRINK_WAITS: "a rule holds the shrink in this cycle; the rule says which",
    Kind.WITHDRAWS: "an unfinished change is taken back once the need says otherwise",
    Kind.KEEPS: "the need does not yet say that the unfinished change was wrong",
    Kind.LIMITED: "free GPUs and bounds are counted in one place for all models",
    Kind.EVIDENCE: "one of the engines held the number for want of evidence",
    Kind.OTHER: "no rule of this table says why",
}
"""Why a difference of a kind is there."""

_LESS: Final = frozenset({Rule.SHRINKS, Rule.IDLE})
_WAITING: Final = frozenset({Rule.OWN_PENDING, Rule.DEFERRED, Rule.SUFFICES, Rule.ANSWERED, Rule.NOT_READY})
_ALL: Final = frozenset(Rule)
_ANY: Final = frozenset(Reason)
_UP: Final = frozenset({Reason.SCALE_UP})
_DOWN: Final = frozenset({Reason.SCALE_DOWN})
_TABLE: Final = (
    (frozenset({Rule.SHRINK_WITHDRAWN, Rule.GROWTH_WITHDRAWN}), _ANY, Kind.WITHDRAWS, Kind.WITHDRAWS),
    (_ALL, frozenset({Reason.SHRINK_WITHDRAWN, Reason.GROWTH_WITHDRAWN}), Kind.KEEPS, Kind.KEEPS),
    (frozenset({Rule.GROWS}), _UP, Kind.GROWS_BY_LESS, Kind.GROWS_BY_MORE),
    (frozenset({Rule.GROWS}), frozenset({Reason.SIBLING_GROWS}), Kind.GROWS_ELSEWHERE, Kind.GROWS_ELSEWHERE),
    (frozenset({Rule.GROWS}), _ANY, Kind.GROWS_HERE, Kind.GROWS_HERE),
    (frozenset({Rule.REPLACES}), _ANY, Kind.EXCHANGES, Kind.EXCHANGES),
    (_LESS, _DOWN, Kind.SHRINKS_BY_MORE, Kind.SHRINKS_BY_LESS),
    (_LESS, _ANY, Kind.SHRINKS_HERE, Kind.SHRINKS_HERE),
    (_ALL, _DOWN, Kind.SHRINK_WAITS, Kind.SHRINK_WAITS),
    (_WAITING, _UP, Kind.WAITS, Kind.WAITS),
    (frozenset({Rule.SIBLING_GROWS}), _UP, Kind.GROWS_ELSEWHERE, Kind.GROWS_ELSEWHERE),
    (_ALL, _UP, Kind.NEEDS_NO_MORE, Kind.NEEDS_NO_MORE),
)
"""Rules of this engine, reasons of the other, and the kind if the number is lower now or higher. The first counts."""


def kind_of(then: Decision, now: Decision, rules: Mapping[VariantKey, Rule], siblings: Iterable[VariantKey]) -> Kind:
    """Return the kind of difference between two decisions on a variant.

    ``rules`` are those that gave the decisions of this engine, and ``siblings`` the variants of the same model.
    """
    if then.desired == now.desired:
        return Kind.SAME if then.reason is now.reason else Kind.REASON
    if then.held or now.held:
        return Kind.EVIDENCE
    if {Reason.GPU_LIMITED, Reason.BOUNDED} & {then.reason, now.reason}:
        return Kind.LIMITED
    rule, reason = rules.get(now.key), then.reason
    if rule in _LESS and now.desired == 0:
        return Kind.LAST_GOES
    if rule in _WAITING and any(rules.get(key) is Rule.GROWS for key in siblings):
        rule = Rule.SIBLING_GROWS  # it waits, but what is needed goes to others
    before = then.current if then.previous is None else then.previous
    if reason in {Reason.MODEL_BASED, Reason.SAFETY_OVERRIDE} and then.desired != before:
        # Reasons of older engines that do not tell a growth from a shrink; the numbers do.
        reason = Reason.SCALE_UP if then.desired > before else Reason.SCALE_DOWN
    for matching, reasons, lower, higher in _TABLE:
        if rule in matching and reason in reasons:
            return lower if now.desired < then.desired else higher
    return Kind.OTHER


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

    def both(self) -> Iterator[tuple[Decision, Decision]]:
        """Yield both decisions for each variant on which both were made."""
        then = {decision.key: decision for decision in self.then}
        return ((then[decision.key], decision) for decision in self.other if decision.key in then)


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
        if memory is None or cycle.link.started or cycle.link.torn:
            memory = found
        elif recording.of_before:
            memory = replace(memory, variants=found.variants)
        else:
            overtaken = set(cycle.link.overtaken)
            entries = [entry for entry in memory.variants if entry.key not in overtaken]
            entries += [entry for entry in found.variants if entry.key in overtaken]
            memory = replace(memory, variants=tuple(sorted(entries, key=lambda entry: entry.key)))
        policy = other(recording.policy)
        outcome = conclude(recording.snapshot, memory, policy, recording.now)
        memory = outcome.memory
        older = recording.of_before and recording.has_decisions
        then = recording.decisions if older else cycle.outcome.decisions
        yield Pair(recording.now, then, outcome.decisions, policy, outcome.rules, engines=older)


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
    # How long each cycle was in force: no time for the last one, and for one before a long gap.
    gaps = [later.now - earlier.now for earlier, later in pairwise(pairs)]
    usual = median(gaps) if gaps else 0.0
    hours = [*(gap / _SECONDS_PER_HOUR if gap <= _LONG_GAP * usual else 0.0 for gap in gaps), 0.0]

    found: dict[VariantKey, list[tuple[int, Decision, Decision]]] = {}
    for index, pair in enumerate(pairs):
        for then, now in pair.both():
            found.setdefault(now.key, []).append((index, then, now))
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


def _spans(rows: Iterable[tuple[int, Decision, Decision]], pairs: Sequence[Pair]) -> list[Span]:
    """Return the cycles of one variant with different numbers, joined where neither number nor kind changes."""
    spans: list[Span] = []
    last = -1
    for index, then, now in rows:
        if then.desired == now.desired:
            continue
        pair = pairs[index]
        rule = pair.rules.get(now.key)
        span = Span(
            start=pair.now,
            end=pair.now,
            cycles=1,
            then=then.desired,
            now=now.desired,
            reason_then=then.reason.value,
            reason_now=now.reason.value,
            message_then=then.message,
            message_now=now.message,
            rule_now="" if rule is None else rule.value,
            kind=pair.kind(then, now).value if pair.engines else "",
        )
        before = spans[-1] if spans and index == last + 1 else None
        if before is not None and (before.then, before.now, before.kind) == (span.then, span.now, span.kind):
            spans[-1] = replace(before, end=pair.now, cycles=before.cycles + 1)
        else:
            spans.append(span)
        last = index
    return spans


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
    found: dict[Kind, list[str]] = {}
    for pair in pairs:
        for then, now in pair.both() if pair.engines else ():
            rule = pair.rules.get(now.key)
            words = f"{then.reason.value} -> {now.reason.value}{'' if rule is None else f' ({rule.value})'}"
            found.setdefault(pair.kind(then, now), []).append(words)
    return tuple(
        KindCount(kind.value, WHY[kind], len(found[kind]), tuple(Counter(sorted(found[kind])).most_common()))
        for kind in Kind
        if kind in found
    )
