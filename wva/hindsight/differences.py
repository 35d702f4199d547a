"""How two decisions on the same cycle differ: of two engines, or under two policies.

The kind of a difference between two engines follows from both numbers, the recorded reason and the rule of this engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import Final

from wva.decide.rules import Rule
from wva.model.decision import Decision, Reason
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.variant import VariantKey

_LONG_GAP: Final = 10
"""A gap between two recordings counts as downtime, not as replica hours, if it is longer than this many median gaps."""

_SECONDS_PER_HOUR: Final = 3600.0


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
    if {Reason.GPU_LIMITED, Reason.ROLE_LIMITED, Reason.BOUNDED} & {then.reason, now.reason}:
        return Kind.LIMITED
    rule, reason = rules.get(now.key), then.reason
    if rule in _LESS and now.desired == 0:
        return Kind.LAST_GOES
    if rule in _WAITING and any(rules.get(key) is Rule.GROWS for key in siblings):
        rule = Rule.SIBLING_GROWS  # it waits because its siblings grow
    previous = then.current if then.previous is None else then.previous
    if reason in {Reason.MODEL_BASED, Reason.SAFETY_OVERRIDE} and then.desired != previous:
        # Older engines gave these reasons for growing and shrinking alike, so compare the numbers.
        reason = Reason.SCALE_UP if then.desired > previous else Reason.SCALE_DOWN
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
    median_gap = median(gaps) if gaps else 0.0
    hours = [*(gap / _SECONDS_PER_HOUR if gap <= _LONG_GAP * median_gap else 0.0 for gap in gaps), 0.0]

    rows_of: dict[VariantKey, list[tuple[int, Decision, Decision]]] = {}
    for index, pair in enumerate(pairs):
        for then, now in pair.both():
            rows_of.setdefault(now.key, []).append((index, then, now))
    different: list[Difference] = []
    for key, rows in sorted(rows_of.items()):
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
            last_span = spans[-1] if spans and index == last + 1 else None
            if last_span is not None and (last_span.then, last_span.now, last_span.kind) == (
                span.then,
                span.now,
                span.kind,
            ):
                spans[-1] = replace(last_span, end=pair.now, cycles=last_span.cycles + 1)
            else:
                spans.append(span)
            last = index
        different.append(
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
    return tuple(different)


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
    reasons: dict[Kind, list[str]] = {}
    for pair in pairs:
        for then, now in pair.both() if pair.engines else ():
            rule = pair.rules.get(now.key)
            transition = f"{then.reason.value} -> {now.reason.value}{'' if rule is None else f' ({rule.value})'}"
            reasons.setdefault(pair.kind(then, now), []).append(transition)
    return tuple(
        KindCount(kind.value, WHY[kind], len(reasons[kind]), tuple(Counter(sorted(reasons[kind])).most_common()))
        for kind in Kind
        if kind in reasons
    )
