"""Step 5: the rule that holds for each variant, and its number. Before step 4: what the allocator may do.

``terms`` says, before GPUs are shared, whether a model grows, shrinks or stays, and which of its variants may change:
the allocator must not give a replica to a variant that does not take it. ``settle`` then gives each variant its number:
the first ``Rule`` that matches decides, and the decision names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Self

from msgspec import Struct

from wva.decide.allocate import AllocationPolicy, Offer, Plan, Stock, Want
from wva.decide.foresee import MOST_TIMES
from wva.decide.measure import present_capacity
from wva.decide.measure.need import REPLICAS, Need
from wva.decide.progress import Progress
from wva.decide.trust import ModelReadings, VariantReadings
from wva.decide.zero import why_not_zero
from wva.model.capacity import CapacityBasis
from wva.model.decision import NO_LIMIT, Limit, Reason
from wva.model.optimizers import Analyzer, Optimizer
from wva.model.policy import Policy, ScaleToZeroPolicy
from wva.model.records import replace
from wva.model.variant import VariantKey

_ROUNDING: Final = 1e-9
SPACING_SECONDS: Final = 30.0
"""For this time (seconds) replicas that start keep a model from growing again."""

_RISEN: Final = 1.1
"""Demand has risen if it is this many times the demand of the last growth. Less is noise, as for an HPA."""

_CERTAIN: Final = 2.0
"""Demand has certainly risen if it has by this many of its standard errors."""

_MOST_PER_SERVING: Final = 4
"""A variant with replicas that do not serve yet has at most this many, for each one that serves."""

_MOVE: Final = AllocationPolicy().move_share

_SUPPOSED: Final = {CapacityBasis.BORROWED, CapacityBasis.UNKNOWN}
"""What capacities stand on that were neither measured nor configured."""


class Course(StrEnum):
    """What becomes of a model in this cycle."""

    HOLD = "hold"
    GROW = "grow"
    WAIT = "wait"
    SHRINK = "shrink"
    REPLACE = "replace"
    STAY = "stay"


MOVES: Final = {Course.GROW, Course.SHRINK, Course.REPLACE}
"""The courses on which numbers may change."""


class Rule(StrEnum):
    """The rules, in the order in which they are tried: in words, which is the value, and the reason of the decision.

    A model that is held has its own reason.
    """

    reason: Reason

    def __new__(cls, words: str, reason: Reason) -> Self:
        """Return the rule with its reason beside its value."""
        rule = str.__new__(cls, words)
        rule._value_, rule.reason = words, reason
        return rule

    HELD = "no fresh evidence: hold", Reason.NOT_DECIDED
    SHRINK_WITHDRAWN = "more is needed than an unfinished shrink would leave: withdraw it", Reason.SHRINK_WITHDRAWN
    GROWS = "the cheapest way to cover the need has more of it: grow", Reason.SCALE_UP
    OWN_PENDING = "replicas of the variant are under way: no further growth of it", Reason.REPLICAS_PENDING
    DEFERRED = "what is measured has been answered: wait", Reason.GROWTH_SETTLING
    SUFFICES = "what is under way suffices: wait", Reason.PENDING_SUFFICES
    ANSWERED = "an answer is under way and demand has not risen since: wait", Reason.GROWTH_SETTLING
    NO_GPUS = "there are no GPUs for it: wait", Reason.GPU_LIMITED
    SIBLING_GROWS = "another variant covers the need: stay", Reason.SIBLING_GROWS
    SIBLING_KEPT = "another variant keeps what was to go, which covers the need: stay", Reason.SIBLING_GROWS
    NO_CANDIDATE = "the need is not covered and no variant can grow: stay", Reason.NO_CANDIDATE
    GROWTH_WITHDRAWN = "an unfinished growth is not needed any more: withdraw it", Reason.GROWTH_WITHDRAWN
    INCOMPLETE = "not every replica reports: nothing shrinks", Reason.METRICS_INCOMPLETE
    SHRINK_UNFINISHED = "an unfinished shrink is still right: keep it", Reason.SHRINK_UNFINISHED
    SHRINKS = "the cheapest numbers that suffice have fewer of it: shrink", Reason.SCALE_DOWN
    SHRINK_KEPT = "the model shrinks as much as it may in a cycle elsewhere: stay", Reason.SIBLING_SHRINKS
    REPLACES = "the model is cheaper with it in place of others: start it", Reason.SCALE_UP
    REPLACED = "another variant is to take its place: stay until that serves", Reason.SIBLING_GROWS
    NOT_READY = "replicas are under way and nothing else is to do: wait", Reason.REPLICAS_PENDING
    SIBLING_PENDING = "replicas of another variant are under way: nothing shrinks", Reason.SIBLING_GROWS
    SIBLING_UNFINISHED = "another variant has not finished its shrink: wait for it", Reason.SIBLING_SHRINKS
    UNCOUNTED = "Ready pods and replicas do not agree: nothing shrinks", Reason.STEADY
    AT_FLOOR = "the variant is as small as it may be: stay", Reason.STEADY
    KEPT = "fewer would do for the present demand only: stay for some time", Reason.SHRINK_STABILIZED
    OBJECTED = "fewer replicas would not do: stay", Reason.SHRINK_UNSAFE
    STEADY = "enough and not too much: stay", Reason.STEADY
    IDLE = "no request for as long as is waited for one: zero", Reason.IDLE


class Terms(Struct, frozen=True, gc=False):
    """What the allocator may do with a model.

    Attributes:
        course: whether it grows, shrinks or stays.
        rule: why it waits, if it does; why it stays, if the rule is about the model.
        present: the capacity of what is asked for, in the unit of the need.
        free: the variants that may change, with the numbers from which they start.
        coming: replicas that are under way.
        concerned: the names of the variants that the rule is about.
        cause: why these variants keep what the present demand does not need, in words.
        opens: the variant that may take the place of others.

    """

    course: Course
    rule: Rule
    present: float
    free: Mapping[VariantKey, int]
    coming: int = 0
    concerned: tuple[str, ...] = ()
    opens: VariantKey | None = None
    cause: str = ""


class Verdict(Struct, frozen=True, gc=False):
    """The number of a variant, the rule that gave it, and who kept it from being larger.

    ``planned`` is the number that the allocator gave. ``not_zero`` says why the model does not go to zero although it
    may, in words; ``surprising``: that it does not is news.
    """

    rule: Rule
    number: int
    planned: int
    limit: Limit = NO_LIMIT
    not_zero: str = ""
    surprising: bool = False


def terms(model: ModelReadings, need: Need, prices: Mapping[VariantKey, float]) -> Terms:
    """Return what the allocator may do with a model; ``prices`` are those of a replica of each variant."""
    variants = model.variants
    present = present_capacity(model, need)
    if need.hold is not None:
        return Terms(Course.HOLD, Rule.HELD, present, {})
    growing = tuple([each.key.name for each in variants if each.progress.in_flight])
    coming = sum([each.progress.in_flight for each in variants]) if growing else 0
    # What is under way was sized for the demand of its time: more is needed when demand has certainly risen since.
    certain = need.required - (_CERTAIN * need.error if coming else 0.0)
    short = certain > present * (1 + _ROUNDING) + _ROUNDING
    # What the bounds take away does not come back, and so it is no part of an answer.
    waits = short and coming and need.unit == REPLICAS and not any(_returns(each.progress) for each in variants)
    if waits and _answered(model, need):
        return Terms(Course.WAIT, Rule.ANSWERED, present, {}, coming, growing)
    if short:
        return Terms(Course.GROW, Rule.NO_CANDIDATE, present, _may_grow(variants, need), coming, growing)
    if need.deferred:
        return Terms(Course.WAIT, Rule.DEFERRED, present, {}, coming, growing)
    if need.wish:
        return Terms(Course.WAIT, Rule.SUFFICES, present, {}, coming, growing)
    if growing:
        return Terms(Course.STAY, Rule.SIBLING_PENDING, present, {}, coming, growing)
    shrinking = tuple([each.key.name for each in variants if each.progress.outstanding and not each.progress.overdue])
    if shrinking:
        return Terms(Course.STAY, Rule.SIBLING_UNFINISHED, present, {}, coming, shrinking)
    if not _counted(model, need):
        return Terms(Course.STAY, Rule.UNCOUNTED, present, {})
    if need.objection:
        return Terms(Course.STAY, Rule.OBJECTED, present, {})
    free = {each.key: each.progress.base for each in variants if each.progress.base == each.progress.current}
    if need.sufficient < present * (1 - _ROUNDING) and (
        need.unit == REPLICAS or _left(variants, need, need.sufficient)
    ):
        return Terms(Course.SHRINK, Rule.STEADY, present, free)
    opens = _replacement(variants, need, free, prices)
    course = Course.REPLACE if opens else Course.STAY
    left = _left(variants, need, need.stays[0][0]) if need.stays and need.stays[0][0] < present else {}
    for amount, cause in need.stays[1:] if left else ():
        if amount > max(left.values()):
            return Terms(course, Rule.KEPT, present, free, concerned=tuple(left), opens=opens, cause=cause)
    return Terms(course, Rule.STEADY, present, free, opens=opens)


def _left(variants: Sequence[VariantReadings], need: Need, least: float) -> dict[str, float]:
    """Return the variants of which a step less leaves this capacity to the model: their names, and what it leaves."""
    counts = {each.key: each.progress.base for each in variants}
    left = {}
    for each in variants:
        if _may_shrink(each.progress):
            step = each.progress.variant.bounds.smallest_step(each.progress.current)
            left[each.key.name] = need.carried(counts | {each.key: counts[each.key] - step})
    return {name: carried for name, carried in left.items() if carried >= least * (1 - _ROUNDING)}


def _replacement(
    variants: Sequence[VariantReadings],
    need: Need,
    free: Mapping[VariantKey, int],
    prices: Mapping[VariantKey, float],
) -> VariantKey | None:
    """Return the variant that may take the place of others: its measured capacity is the cheapest, moves included.

    Others might save something, too, because their sizes happen to add up. Such a saving ends with the next change of
    demand. Without a demand that can be foreseen it is not known for how long a move pays.
    """
    if not need.foreseeable or need.sufficient == math.inf:
        return None
    rates = {key: prices[key] / need.of(key) for key in free if need.of(key) > 0}
    able = [
        (rates[each.key], each.key)
        for each in variants
        if each.key in rates
        and need.capacities[each.key].basis not in _SUPPOSED
        and blocked(each.progress, skips=False) is None
        and bounded(each.progress) is None
    ]
    rate, key = min(able, default=(math.inf, None))
    dearer = [each for each in variants if rates.get(each.key, 0.0) > rate * (1 + _MOVE) and _may_shrink(each.progress)]
    return key if dearer else None


def _counted(model: ModelReadings, need: Need) -> bool:
    """Tell whether each replica has a reading, of now or remembered."""
    return model.complete or (need.recalls and all(each.progress.countable for each in model.variants))


def _answered(model: ModelReadings, need: Need) -> bool:
    """Tell whether the replicas that start were ordered for the present demand. Each replica counts as one here.

    For some seconds they are taken to be. After that a variant without any that start may grow. If there is no such
    variant, the model waits unless its demand has risen since.
    """
    under_way = [each.progress for each in model.variants if each.progress.in_flight]
    if min([progress.age_seconds for progress in under_way]) < SPACING_SECONDS:
        return True
    progresses = [each.progress for each in model.variants]
    if any(blocked(each, skips=True) is None and bounded(each) is None for each in progresses):
        return False
    answered = model.memory.answered
    return answered is not None and need.demand <= answered * _RISEN


def _may_grow(variants: Sequence[VariantReadings], need: Need) -> dict[VariantKey, int]:
    """Return the variants that may grow; those whose replicas are under way only when there are no others.

    What a replica under way will do is not measured where every replica counts as one. An analyzer that knows
    capacities has counted it already.
    """
    skips = need.unit == REPLICAS
    able = [each for each in variants if blocked(each.progress, skips=skips) is None]
    if not any(bounded(each.progress) is None for each in able):
        able += [each for each in variants if each not in able and _starting(each.progress)]
    return {each.key: each.progress.level for each in able if need.of(each.key) > 0}


def blocked(progress: Progress, *, skips: bool) -> str | None:
    """Return in a word what keeps a variant from growing beside its bounds, None for nothing."""
    if progress.variant.unschedulable_pods:
        return "unplaced"
    if progress.waiting and (skips or progress.overdue or (progress.late and not _few(progress))):
        return "waiting"
    return "silent" if progress.silent and skips else None


def _starting(progress: Progress) -> bool:
    """Tell whether replicas that do not serve yet are all that keeps a variant from growing.

    They are no reason to leave a model short that has nothing else. But a variant whose new replicas never start gets
    no more than a few times what serves.
    """
    if progress.variant.unschedulable_pods or not progress.waiting + progress.silent:
        return False
    if progress.overdue and progress.base > progress.current:
        return False  # its scaler does not even create what has been asked for
    return _few(progress)


def _few(progress: Progress) -> bool:
    """Tell whether a variant whose replicas do not all start may have more of them."""
    return progress.level < _MOST_PER_SERVING * progress.ready


def bounded(progress: Progress) -> str | None:
    """Return in a word why the bounds leave no step that the scaler would take, None when they do."""
    bounds, current = progress.variant.bounds, progress.current
    if bounds.maximum is None:
        return None
    if progress.level >= bounds.maximum:
        return "maximum"
    return None if current + bounds.smallest_step(current) <= bounds.maximum else "tolerance"


def want(
    model: ModelReadings, need: Need, found: Terms, prices: Mapping[VariantKey, float], stock: Stock, policy: Policy
) -> Want:
    """Return what a model wants of the allocator, without its turn. A variant that may not change keeps its number."""
    course, grows = found.course, found.course is Course.GROW
    goal = {Course.SHRINK: need.sufficient, Course.REPLACE: min(need.sufficient, found.present)}.get(
        course, need.required
    )
    limited = policy.limited or policy.analyzer_for(model.key) is Analyzer.QUEUEING
    # What a variant seems to carry may not be true: of none more is ordered than one like those that serve would need.
    times = int(MOST_TIMES) * max(1, sum([each.progress.ready for each in model.variants]))
    offers = []
    for each in model.variants:
        progress, variant = each.progress, each.progress.variant
        bounds, limits = variant.bounds, stock.limits_of(variant) if limited else ()
        capacity = need.of(each.key) if course in MOVES and each.key in found.free else 0.0
        counted = progress.serving + progress.in_flight
        present, floor, ceiling, origin = progress.base, bounds.minimum or 0, bounds.maximum, bounds.ceiling_origin
        if not capacity > 0:
            # What stands still, and what is asked for and cannot be counted on, are no part of what is to be covered.
            if course is Course.HOLD:
                present = bounds.clamp(progress.published)
            elif grows:
                present = max(present, bounds.clamp(progress.level) if progress.outstanding else 0)
            goal -= min(present, counted) * need.of(each.key)
        else:
            present, floor = found.free[each.key], lowest(progress)
            goal += max(0, present - counted) * capacity
            if grows:
                # What exists is never cut for want of GPUs; what is only asked for may be.
                floor = max(floor, min(present, progress.current)) if limits else present
            elif each.key != found.opens:
                ceiling, origin = present, ""
            if need.foreseeable and (ceiling is None or ceiling > max(present, times)):
                ceiling, origin = max(present, times), ""
        offers.append(
            Offer(
                each.key,
                prices[each.key],
                capacity,
                present,
                progress.current,
                floor,
                ceiling,
                origin,
                bounds.smallest_step(progress.current),
                max(1, variant.gpus_per_replica),
                limits,
                rank(each) if len(model.variants) > 1 else (),
            )
        )
    most = 1 if policy.optimizer_for(model.key) is Optimizer.ONE_STEP else need.most_added
    smallest = min([offer.capacity for offer in offers if offer.capacity > 0], default=math.inf)
    if grows and most is not None and math.isfinite(smallest):
        kept = [min(each.present, math.inf if each.ceiling is None else each.ceiling) for each in offers]
        there = sum([count * each.capacity for count, each in zip(kept, offers, strict=True)])
        goal = min(goal, there + most * smallest)
    return Want(model.key, max(0.0, goal), tuple(offers), keeps_one=course in {Course.SHRINK, Course.REPLACE})


def settle(
    model: ModelReadings,
    need: Need,
    found: Terms,
    plan: Plan,
    prices: Mapping[VariantKey, float],
    zero: ScaleToZeroPolicy,
    now: float,
) -> list[Verdict]:
    """Return the verdicts on the variants of a model, in their order; ``prices`` say which of them is the dearest.

    ``zero`` says whether and when the model may go to zero; ``now`` is in seconds since the epoch.
    """
    course, variants = found.course, model.variants
    unread = not (need.recalls or model.complete) and any(each.unread for each in variants)
    numbers = {each.key: plan.numbers.get(each.key, each.progress.base) for each in variants}
    grows = course is Course.GROW and any(numbers[each.key] > each.progress.level for each in variants)
    replaces = course is Course.REPLACE and _cheaper(variants, numbers, prices)
    # At most so many replicas go in a cycle, or one step of the scaler: the dearest first.
    going = _going(model, need, found, numbers, prices) if course is Course.SHRINK else {}
    verdicts = []
    for each in variants:
        progress, key = each.progress, each.key
        number, limit = numbers[key], plan.limits.get(key, NO_LIMIT)
        if not limit.by:
            limit = NO_LIMIT  # a ceiling of ``terms``, which is no limit of anyone
        keep, back = progress.published, max(progress.floor, progress.current)
        kept = min(keep, number) if limit.by and number < progress.base else keep
        if course is Course.HOLD:
            rule, desired = Rule.HELD, kept
        elif course is Course.GROW and number > progress.level:
            rule, desired = Rule.GROWS, number
        elif course is Course.GROW and progress.outstanding:
            rule, desired = Rule.SHRINK_WITHDRAWN, back
        elif course is Course.GROW and limit.fewer and limit.by != progress.variant.bounds.ceiling_origin:
            rule, desired = Rule.NO_GPUS, kept
        elif course is Course.GROW and number < progress.base:
            rule, desired = Rule.GROWTH_WITHDRAWN, number  # what is only asked for has no GPUs yet
        elif course is Course.GROW and need.deferred:
            rule, desired = Rule.DEFERRED, kept
        elif course in {Course.GROW, Course.WAIT} and progress.in_flight and (grows or course is Course.WAIT):
            rule, desired = Rule.OWN_PENDING, kept
        elif course is Course.WAIT:
            rule, desired = found.rule, kept
        elif course is Course.GROW:
            withdrawn = model.key not in plan.missing and any(_returns(other.progress) for other in variants)
            covered = Rule.SIBLING_KEPT if withdrawn else Rule.NO_CANDIDATE
            rule, desired = (Rule.SIBLING_GROWS if grows else covered), kept
        elif progress.base > progress.current and _needless(model, need, progress):
            rule, desired = Rule.GROWTH_WITHDRAWN, back
        elif unread:
            rule, desired = Rule.INCOMPLETE, kept
        elif progress.outstanding:
            rule, desired = Rule.SHRINK_UNFINISHED, kept
        elif key in going:
            rule, desired = Rule.SHRINKS, progress.base - going[key]
        elif replaces:
            # What is to go does so when the others serve, as a shrink. So there is never less than there was.
            rule, desired = (Rule.REPLACES, number) if number > progress.base else (Rule.REPLACED, kept)
        elif progress.waiting or progress.silent:
            rule, desired = Rule.NOT_READY, kept
        elif going:
            rule, desired = Rule.SHRINK_KEPT, kept
        elif found.rule is Rule.OBJECTED:
            rule, desired = _objected(model, progress), kept
        elif found.rule is Rule.KEPT and key.name not in found.concerned:
            rule, desired = Rule.STEADY, kept
        else:
            rule, desired = found.rule, kept
        verdicts.append(Verdict(rule, desired, number, limit))
    if not zero.enabled:
        return verdicts
    asked = zip(variants, verdicts, strict=True)
    more = [each.key.name for each, verdict in asked if verdict.number > each.progress.variant.current_replicas]
    objection, surprising = why_not_zero(model, need, zero, more, now)
    if objection:
        return [replace(verdict, not_zero=objection, surprising=surprising) for verdict in verdicts]
    return [Verdict(Rule.IDLE, 0, 0) for _ in verdicts]


def _returns(progress: Progress) -> bool:
    """Tell whether an unfinished shrink can be taken back; what the bounds force is not."""
    return progress.variant.bounds.clamp(max(progress.floor, progress.current)) > progress.base


def _cheaper(
    variants: Sequence[VariantReadings], numbers: Mapping[VariantKey, int], prices: Mapping[VariantKey, float]
) -> bool:
    """Tell whether numbers save more than it costs to move to them."""
    changes = [(numbers[each.key] - each.progress.base, prices[each.key]) for each in variants]
    return sum([change * price * (1 + _MOVE * (change > 0)) for change, price in changes]) < 0


def _going(
    model: ModelReadings,
    need: Need,
    found: Terms,
    numbers: Mapping[VariantKey, int],
    prices: Mapping[VariantKey, float],
) -> dict[VariantKey, int]:
    """Return how many replicas of each variant go in this cycle: those of the plan, the dearest first."""
    allowed: float = math.inf if need.most_removed is None else need.most_removed
    going: dict[VariantKey, int] = {}
    for each in sorted(model.variants, key=lambda each: _dearest(each, prices), reverse=True):
        planned = each.progress.base - numbers[each.key] if each.key in found.free else 0
        step = each.progress.variant.bounds.smallest_step(each.progress.current)
        count = int(min(planned, allowed if going else max(allowed, step)))
        if count >= step and allowed > 0:
            going[each.key] = count
            allowed -= count
    return going


def _dearest(each: VariantReadings, prices: Mapping[VariantKey, float]) -> tuple[object, ...]:
    """Order variants: the dearest last, of those the one with most replicas that do not serve, then the largest."""
    return prices[each.key], each.progress.waiting, each.progress.level, rank(each), each.key


def rank(each: VariantReadings) -> tuple[float, ...]:
    """Order equal variants: what does not serve, or has the least room, is the last to grow and the first to go."""
    kv, queue = each.room
    return each.progress.waiting, -kv, -queue


def _needless(model: ModelReadings, need: Need, progress: Progress) -> bool:
    """Tell whether an unfinished growth can be taken back; what the bounds force is not.

    It came to nothing in time, or one replica less than what serves would suffice.
    """
    target = progress.variant.bounds.clamp(max(progress.floor, progress.current))
    if target >= progress.base:
        return False
    if progress.overdue:
        return True
    if not _counted(model, need) or need.objection or not math.isfinite(need.sufficient):
        return False
    carried = [(each.progress.serving, need.of(each.key)) for each in model.variants]
    smallest = min([each for _, each in carried if each > 0], default=math.inf)
    return sum([count * each for count, each in carried]) - smallest >= need.sufficient


def _objected(model: ModelReadings, progress: Progress) -> Rule:
    if not _may_shrink(progress):
        return Rule.AT_FLOOR if any(_may_shrink(each.progress) for each in model.variants) else Rule.STEADY
    return Rule.OBJECTED


def _may_shrink(progress: Progress) -> bool:
    step = progress.variant.bounds.smallest_step(progress.current)
    return progress.base == progress.current and progress.base - step >= lowest(progress)


def lowest(progress: Progress) -> int:
    """Return the smallest number of a variant: none where its scaler can bring it back, else one."""
    minimum = progress.variant.bounds.minimum
    return 1 if minimum is None else minimum
