"""Decides on recorded cycles again, with the same inputs or under another policy.

With the same inputs, this engine repeats its own decisions and memories bit for bit. Where an older engine decided, the
replay compares the two engines: each cycle gets the recorded snapshot, the published numbers, and the memory of demand
that this engine built in the cycles before.

Under another policy, each cycle gets the recorded snapshot and the memory that this policy left. A recording cannot
tell how the load would have reacted to other numbers.
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
from wva.decide.rules import Rule
from wva.model.decision import Decision, Reason
from wva.model.memory import Memory
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.variant import VariantKey
from wva.publish.recordings import Recording

_LONG_GAP: Final = 10
"""A gap between two recordings counts as downtime, not as replica hours, if it is longer than this many median gaps."""

_SECONDS_PER_HOUR: Final = 3600.0


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
class Cycle:
    """A recorded cycle, decided again. ``differing`` are the variants whose decision is not that of the recording.

    If an older engine decided, ``differing`` is empty and ``link`` only says whether a controller started.
    """

    recording: Recording
    outcome: Outcome
    differing: tuple[VariantKey, ...]
    link: MemoryLink


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
            # The memories of two engines cannot be compared.
            follows = MemoryLink(started=link(None, found).started)
        else:
            follows = link(None if last is None else last.outcome.memory, found)
        last = Cycle(recording, outcome, differing, follows)
        yield last


def link(left: Memory | None, found: Memory) -> MemoryLink:
    """Compare the memory that a cycle left (None before the first one) with the one that the next cycle found."""
    empty = replace(found, variants=()) == Memory()
    if left is None:
        return MemoryLink(started=empty and not any(entry.decided for entry in found.variants))
    parts = [field.name for field in fields(Memory) if field.name != "variants"]
    torn = tuple(name for name in parts if not _same(getattr(left, name), getattr(found, name)))
    if torn and empty:
        return MemoryLink(started=True)
    return MemoryLink(overtaken=_differing(left.by_key(), found.by_key()), torn=torn)


def _differing(before: Mapping[VariantKey, object], after: Mapping[VariantKey, object]) -> tuple[VariantKey, ...]:
    """Return the variants that differ, sorted."""
    return tuple(sorted(key for key in before.keys() | after.keys() if not _same(before.get(key), after.get(key))))


def _same(one: object, other: object) -> bool:
    """Tell whether two values are the same to the last bit; ``==`` does not tell 0.0 from -0.0."""
    return one is other or msgspec.json.encode(one) == msgspec.json.encode(other)


class Kind(StrEnum):
    """How two engines differ in a decision; the value is the name in reports.

    The kind follows from both numbers, the recorded reason, and the rule of this engine, never from the text of a
    message.
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
"""The cause of each kind of difference."""

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
"""Rules of this engine, recorded reasons, the kind for a lower and for a higher number. The first match counts."""


def kind_of(then: Decision, now: Decision, rules: Mapping[VariantKey, Rule], siblings: Iterable[VariantKey]) -> Kind:
    """Return the kind of difference between two decisions on a variant.

    ``rules`` gave the decisions of this engine. ``siblings`` are the variants of the same model.
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
        rule = Rule.SIBLING_GROWS  # it waits because its siblings grow
    before = then.current if then.previous is None else then.previous
    if reason in {Reason.MODEL_BASED, Reason.SAFETY_OVERRIDE} and then.desired != before:
        # Older engines gave these reasons for growing and shrinking alike, so compare the numbers.
        reason = Reason.SCALE_UP if then.desired > before else Reason.SCALE_DOWN
    for matching, reasons, lower, higher in _TABLE:
        if rule in matching and reason in reasons:
            return lower if now.desired < then.desired else higher
    return Kind.OTHER


@dataclass(frozen=True, slots=True)
class Pair:
    """The recorded decisions of a cycle (``then``) and those under the other policy or of this engine (``other``).

    ``rules`` gave the ``other`` decisions. ``engines``: an older engine made the recorded ones.
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
        """Yield both decisions for each variant that has both."""
        then = {decision.key: decision for decision in self.then}
        return ((then[decision.key], decision) for decision in self.other if decision.key in then)


def under(cycles: Iterable[Cycle], other: Callable[[Policy], Policy]) -> Iterator[Pair]:
    """Yield each cycle decided under the policy that ``other`` makes of the recorded one.

    Each cycle passes its memory to the next. The recorded memory replaces it at the first cycle, where a controller
    started, and where a recording is missing. It also replaces the entries of overtaken variants (see ``MemoryLink``).

    Where an older engine decided, the memory of all variants is the recorded one, so that both engines decide on the
    numbers that were published.
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
    """Consecutive cycles in which the number of a variant differs; the reasons are those of the first cycle.

    ``rule_now`` gave the other number; it is empty in v0.5 mode. ``kind`` is empty when the same engine decided twice.
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
    """What would differ for a variant: the number of its ``cycles``, and of those with a ``differing`` number.

    Replica hours are replicas times the time until the next cycle. Costs are replica hours times the recorded cost.
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
    # The hours until the next cycle. The last cycle and one before a long gap have none.
    gaps = [later.now - earlier.now for earlier, later in pairwise(pairs)]
    usual = median(gaps) if gaps else 0.0
    hours = [*(gap / _SECONDS_PER_HOUR if gap <= _LONG_GAP * usual else 0.0 for gap in gaps), 0.0]

    found: dict[VariantKey, list[tuple[int, Decision, Decision]]] = {}
    for index, pair in enumerate(pairs):
        for then, now in pair.both():
            found.setdefault(now.key, []).append((index, then, now))
    told: list[Difference] = []
    for key, rows in sorted(found.items()):
        # Consecutive cycles with the same two numbers and the same kind of difference are one span.
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
        told.append(
            Difference(
                key,
                cycles=len(rows),
                differing=sum(old.desired != new.desired for _, old, new in rows),
                replica_hours_then=sum(hours[index] * old.desired for index, old, _ in rows),
                replica_hours_now=sum(hours[index] * new.desired for index, _, new in rows),
                cost_then=sum(hours[index] * old.desired * old.cost for index, old, _ in rows),
                cost_now=sum(hours[index] * new.desired * old.cost for index, old, new in rows),
                spans=tuple(spans),
            )
        )
    return tuple(told)


@dataclass(frozen=True, slots=True)
class KindCount:
    """How often two engines differed in one way, and why.

    ``reasons`` counts the decisions by recorded reason, reason of this engine, and its rule, the most frequent first.
    """

    kind: str
    why: str
    decisions: int
    reasons: tuple[tuple[str, int], ...]


def kinds(pairs: Iterable[Pair]) -> tuple[KindCount, ...]:
    """Count the kinds of difference between two engines, in the order of the kinds.

    Cycles on which this engine decided twice do not count.
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
