"""The rules of step 5 in their order: which, when, and the number.

``verdict`` asks the rows of ``RULES`` one after the other; the first that matches a variant decides on it.
docs/decisions.md prints this table. ``IDLE`` is not in it: after all rows, a model that is idle goes to zero if it may.

Before that ``wants.terms`` has chosen the course of the whole model, and the rule for it, in an order of its own. Many
rows match on certain courses only, and some match the rule that was chosen there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Self

from msgspec import Struct

from wva.decide.progress import Progress
from wva.model.decision import NO_LIMIT, ROLE_LIMIT, Limit, Reason
from wva.model.variant import VariantKey


class Course(StrEnum):
    """What the numbers of a model may do in this cycle."""

    HOLD = "hold"
    GROW = "grow"
    WAIT = "wait"
    SHRINK = "shrink"
    REPLACE = "replace"
    STAY = "stay"


MOVES: Final = {Course.GROW, Course.SHRINK, Course.REPLACE}
"""The courses on which the allocator may plan other numbers.

On the others it only takes back replicas that are asked for and have no GPUs.
"""


class Rule(StrEnum):
    """The rules in words and in their order, each with the reason of the decision.

    The words say when the rule holds, and after the colon what happens to the number. The decisions on a model that is
    held have the reason of its hold.
    """

    reason: Reason

    def __new__(cls, words: str, reason: Reason) -> Self:
        """Return the rule with its reason beside its value."""
        rule = str.__new__(cls, words)
        rule._value_, rule.reason = words, reason
        return rule

    HELD = "no fresh evidence: hold", Reason.NOT_DECIDED
    GROWS = "the cheapest way to cover the need has more of it: grow", Reason.SCALE_UP
    SHRINK_WITHDRAWN = "more is needed than an unfinished shrink would leave: withdraw it", Reason.SHRINK_WITHDRAWN
    ROLE_LIMITED = "another role of the model is limited and can use no more: wait", Reason.ROLE_LIMITED
    NO_GPUS = "there are no GPUs for it: wait", Reason.GPU_LIMITED
    GROWTH_WITHDRAWN = "an unfinished growth is not needed any more: withdraw it", Reason.GROWTH_WITHDRAWN
    DEFERRED = "what is measured has been answered: wait", Reason.GROWTH_SETTLING
    OWN_PENDING = "replicas of the variant are under way: no further growth of it", Reason.REPLICAS_PENDING
    SUFFICES = "what is under way suffices: wait", Reason.PENDING_SUFFICES
    ANSWERED = "an answer is under way and demand has not risen since: wait", Reason.GROWTH_SETTLING
    SIBLING_GROWS = "another variant covers the need: stay", Reason.SIBLING_GROWS
    SIBLING_KEPT = "another variant keeps what was to go, which covers the need: stay", Reason.SIBLING_GROWS
    NO_CANDIDATE = "the need is not covered and no variant can grow: stay", Reason.NO_CANDIDATE
    INCOMPLETE = "not every replica reports: nothing shrinks", Reason.METRICS_INCOMPLETE
    SHRINK_UNFINISHED = "an unfinished shrink is still right: keep it", Reason.SHRINK_UNFINISHED
    SHRINKS = "the cheapest numbers that suffice have fewer of it: shrink", Reason.SCALE_DOWN
    REPLACES = "the model is cheaper with it in place of others: start it", Reason.SCALE_UP
    REPLACED = "another variant is to take its place: stay until that serves", Reason.SIBLING_GROWS
    NOT_READY = "replicas are under way and nothing else is to do: wait", Reason.REPLICAS_PENDING
    SHRINK_KEPT = "another variant shrinks: stay", Reason.SIBLING_SHRINKS
    SIBLING_PENDING = "replicas of another variant are under way: nothing shrinks", Reason.SIBLING_GROWS
    SIBLING_UNFINISHED = "another variant has not finished its shrink: wait for it", Reason.SIBLING_SHRINKS
    UNCOUNTED = "Ready pods and replicas do not agree: nothing shrinks", Reason.STEADY
    KEPT = "fewer would do for the present demand only: stay for some time", Reason.SHRINK_STABILIZED
    OBJECTED = "fewer replicas would not do: stay", Reason.SHRINK_UNSAFE
    AT_FLOOR = "the variant is as small as it may be: stay", Reason.STEADY
    STEADY = "enough and not too much: stay", Reason.STEADY
    IDLE = "no request for as long as is waited for one: zero", Reason.IDLE


class Terms(Struct, frozen=True, gc=False):
    """What the allocator may do with a model."""

    course: Course  # whether it grows, shrinks or stays
    rule: Rule  # why the whole model holds, waits or stays; NO_CANDIDATE if it grows, STEADY if there is no such reason
    present: float  # the capacity asked for, without overdue replicas and those without a node; in the need's unit
    free: Mapping[VariantKey, int]  # the variants that may change, with the numbers from which they start
    coming: int = 0  # replicas that are under way
    concerned: tuple[str, ...] = ()  # the names of the variants that the rule is about
    replacement: VariantKey | None = None  # the variant that may take the place of others
    cause: str = ""  # in words: why ``concerned`` keep replicas that the present demand does not need


class Verdict(Struct, frozen=True, gc=False):
    """The number of a variant, and the rule that gave it."""

    rule: Rule
    number: int
    planned: int  # the number that the allocator gave
    limit: Limit = NO_LIMIT  # what kept it from being larger
    not_zero: str = ""  # in words: why the model does not go to zero although scale to zero is on
    surprising: bool = False  # whether users would not expect that the model stays above zero


class ModelCase(Struct, frozen=True, gc=False):
    """What the rules read of a whole model, once the allocator has planned."""

    concerned: tuple[str, ...]  # the names of the variants that the rule about the model concerns
    deferred: bool  # the analyzer says that what it measures has been answered (``Need.deferred``)
    grows: bool  # a variant grows
    covered: bool  # withdrawing unfinished shrinks covers the need
    enough: bool  # the serving replicas less one would suffice
    unread: bool  # a replica that should report does not, and the analyzer remembers none; the demand analyzer does
    shrinks: bool  # a variant shrinks
    replaces: bool  # another mix of variants is cheaper, the move included
    progresses: Sequence[Progress]  # where its variants stand


class VariantCase(Struct, frozen=True, gc=False):
    """What the rules read of one variant. Numbers are of replicas."""

    course: Course  # what the model does
    rule: Rule  # the rule about the whole model, as in ``Terms``
    model: ModelCase
    key: VariantKey
    progress: Progress
    planned: int  # what the allocator gives it
    leaving: int  # how many go in this cycle; 0 unless it shrinks
    limit: Limit  # what keeps the planned number from being larger

    @property
    def back(self) -> int:
        """The replicas that exist: the number without an unfinished change."""
        return max(self.progress.floor, self.progress.current)


class Row(Struct, frozen=True, gc=False):
    """A rule: the courses on which it is tried, when it holds, and the number that it gives."""

    rule: Rule
    courses: frozenset[Course]
    when: Callable[[VariantCase], bool]
    number: Callable[[VariantCase], int]


def _always(_case: VariantCase) -> bool:
    return True


def _no_gpus(case: VariantCase) -> bool:
    """Tell whether a limit other than the maximum of the scaler keeps the number smaller.

    ``settle`` leaves out a ceiling that no user has set.
    """
    return case.limit.fewer != 0 and case.limit.by != case.progress.variant.bounds.ceiling_origin


def _held_by_role(case: VariantCase) -> bool:
    return case.limit.by.startswith(ROLE_LIMIT)


def _needless(case: VariantCase) -> bool:
    """Tell whether an unfinished growth is withdrawn.

    While the model grows, a plan below what is asked for means that GPUs are missing: only then ``want`` lets the
    allocator remove replicas, and only those that do not exist yet.
    """
    progress = case.progress
    if case.course is Course.GROW:
        return case.planned < progress.base
    # A growth that is past its deadline can be withdrawn, too, but not one that the bounds force.
    withdrawn = progress.base > progress.current and (progress.overdue or case.model.enough)
    return withdrawn and progress.variant.bounds.clamp(case.back) < progress.base


def _deferred(case: VariantCase) -> bool:
    if case.course is Course.GROW:
        return case.model.deferred
    return case.rule is Rule.DEFERRED and not case.progress.in_flight


def _unchanged(case: VariantCase) -> int:
    """Return the number published last; at most the planned number if a limit takes back what is asked for."""
    published, planned = case.progress.published, case.planned
    return min(published, planned) if case.limit.by and planned < case.progress.base else published


def _planned(case: VariantCase) -> int:
    return case.planned


def _back(case: VariantCase) -> int:
    return case.back


def _without_growth(case: VariantCase) -> int:
    return case.planned if case.course is Course.GROW else case.back


def _fewer(case: VariantCase) -> int:
    return case.progress.base - case.leaving


_HOLD: Final = frozenset({Course.HOLD})
_GROW: Final = frozenset({Course.GROW})
_WAIT: Final = frozenset({Course.WAIT})
_SHRINK: Final = frozenset({Course.SHRINK})
_REPLACE: Final = frozenset({Course.REPLACE})
_STAY: Final = frozenset({Course.STAY})
_CALM: Final = _SHRINK | _REPLACE | _STAY
"""The need is covered. While replicas are under way, up to two standard errors may be missing."""

RULES: Final = (
    Row(Rule.HELD, _HOLD, _always, _unchanged),
    Row(Rule.GROWS, _GROW, lambda case: case.planned > case.progress.level, _planned),
    Row(Rule.SHRINK_WITHDRAWN, _GROW, lambda case: case.progress.outstanding > 0, _back),
    Row(Rule.ROLE_LIMITED, _GROW, _held_by_role, _unchanged),
    Row(Rule.NO_GPUS, _GROW, _no_gpus, _unchanged),
    Row(Rule.GROWTH_WITHDRAWN, _GROW | _CALM, _needless, _without_growth),
    Row(Rule.DEFERRED, _GROW | _WAIT, _deferred, _unchanged),
    # If no variant grows, a later row says why not; that replicas are under way is not the reason then.
    Row(
        Rule.OWN_PENDING,
        _GROW | _WAIT,
        lambda case: case.progress.in_flight > 0 and (case.model.grows or case.course is Course.WAIT),
        _unchanged,
    ),
    Row(Rule.SUFFICES, _WAIT, lambda case: case.rule is Rule.SUFFICES, _unchanged),
    Row(Rule.ANSWERED, _WAIT, lambda case: case.rule is Rule.ANSWERED, _unchanged),
    Row(Rule.SIBLING_GROWS, _GROW, lambda case: case.model.grows, _unchanged),
    Row(Rule.SIBLING_KEPT, _GROW, lambda case: case.model.covered, _unchanged),
    Row(Rule.NO_CANDIDATE, _GROW, _always, _unchanged),
    Row(Rule.INCOMPLETE, _CALM, lambda case: case.model.unread, _unchanged),
    Row(Rule.SHRINK_UNFINISHED, _CALM, lambda case: case.progress.outstanding > 0, _unchanged),
    Row(Rule.SHRINKS, _SHRINK, lambda case: case.leaving > 0, _fewer),
    # The replaced variant shrinks when the new replicas serve. So capacity never falls meanwhile.
    Row(Rule.REPLACES, _REPLACE, lambda case: case.model.replaces and case.planned > case.progress.base, _planned),
    Row(Rule.REPLACED, _REPLACE, lambda case: case.model.replaces, _unchanged),
    Row(Rule.NOT_READY, _CALM, lambda case: case.progress.waiting > 0 or case.progress.silent > 0, _unchanged),
    Row(Rule.SHRINK_KEPT, _SHRINK, lambda case: case.model.shrinks, _unchanged),
    Row(Rule.SIBLING_PENDING, _STAY, lambda case: case.rule is Rule.SIBLING_PENDING, _unchanged),
    Row(Rule.SIBLING_UNFINISHED, _STAY, lambda case: case.rule is Rule.SIBLING_UNFINISHED, _unchanged),
    Row(Rule.UNCOUNTED, _STAY, lambda case: case.rule is Rule.UNCOUNTED, _unchanged),
    Row(
        Rule.KEPT,
        _REPLACE | _STAY,
        lambda case: case.rule is Rule.KEPT and case.key.name in case.model.concerned,
        _unchanged,
    ),
    Row(Rule.OBJECTED, _STAY, lambda case: case.rule is Rule.OBJECTED and case.progress.may_shrink, _unchanged),
    # Only a variant that may not shrink comes here, because the row before matches the others.
    Row(
        Rule.AT_FLOOR,
        _STAY,
        lambda case: case.rule is Rule.OBJECTED and any(progress.may_shrink for progress in case.model.progresses),
        _unchanged,
    ),
    Row(Rule.STEADY, _CALM, _always, _unchanged),
)
_ON: Final = {course: tuple(row for row in RULES if course in row.courses) for course in Course}


def verdict(case: VariantCase) -> Verdict:
    """Return the verdict of the first rule that matches."""
    row = next(row for row in _ON[case.course] if row.when(case))
    return Verdict(row.rule, row.number(case), case.planned, case.limit)
