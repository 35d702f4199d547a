"""In which way two engines decided differently on the same cycle.

A kind follows from values of the engines alone: the numbers, the reason that the one recorded, and the rule by which
the other one decided. Nothing is read out of sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from wva.decide.settle import Rule
from wva.model.decision import Decision, Reason
from wva.model.variant import VariantKey


class Kind(StrEnum):
    """A kind of difference; the value is its name."""

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


WHY: Final = MappingProxyType(
    {
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
)
"""Why a difference of a kind is there."""

_TAKEN_BACK: Final = frozenset({Rule.SHRINK_WITHDRAWN, Rule.GROWTH_WITHDRAWN})
_LESS: Final = frozenset({Rule.SHRINKS, Rule.IDLE})
_WAITING: Final = frozenset({Rule.OWN_PENDING, Rule.DEFERRED, Rule.SUFFICES, Rule.ANSWERED, Rule.NOT_READY})
_LIMITS: Final = frozenset({Reason.GPU_LIMITED, Reason.BOUNDED})
_ALL: Final = frozenset(Rule)
_ANY: Final = frozenset(Reason)
_UP: Final = frozenset({Reason.SCALE_UP})
_DOWN: Final = frozenset({Reason.SCALE_DOWN})

_BY_MODEL: Final = frozenset({Reason.MODEL_BASED, Reason.SAFETY_OVERRIDE})
"""Reasons of older engines that do not tell a growth from a shrink; the numbers do."""

_TABLE: Final = (
    (_TAKEN_BACK, _ANY, Kind.WITHDRAWS, Kind.WITHDRAWS),
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
    rule = rules.get(now.key)
    if rule in _WAITING and any(rules.get(key) is Rule.GROWS for key in siblings):
        rule = Rule.SIBLING_GROWS  # it waits, but what is needed goes to others
    if then.desired == now.desired:
        return Kind.SAME if then.reason is now.reason else Kind.REASON
    if then.held or now.held:
        return Kind.EVIDENCE
    if _LIMITS & {then.reason, now.reason}:
        return Kind.LIMITED
    if rule in _LESS and now.desired == 0:
        return Kind.LAST_GOES
    reason = _moved(then)
    for matching, reasons, lower, higher in _TABLE:
        if rule in matching and reason in reasons:
            return lower if now.desired < then.desired else higher
    return Kind.OTHER


def _moved(then: Decision) -> Reason:
    """Return the recorded reason, or what it comes to where it does not say."""
    before = then.current if then.previous is None else then.previous
    if then.reason not in _BY_MODEL or then.desired == before:
        return then.reason
    return Reason.SCALE_UP if then.desired > before else Reason.SCALE_DOWN
