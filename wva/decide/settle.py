"""Step 5: the rule and the number of each variant; and before step 4, what the allocator may do.

Before step 4, ``terms`` says whether a model grows, shrinks or stays, and which of its variants may change: the
allocator must not give a replica to a variant that cannot grow. After step 4, ``settle`` gives each variant its number:
the first ``Rule`` that matches decides, and the decision names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Self

from msgspec import Struct

from wva.decide.allocate import AllocationPolicy, Offer, Plan, Stock, Want
from wva.decide.foresee import MOST_TIMES
from wva.decide.measure import present_capacity
from wva.decide.measure.need import REPLICAS, Need
from wva.decide.progress import Progress
from wva.decide.trust import ModelReadings, VariantReadings
from wva.model.decision import NO_LIMIT, Limit, Reason
from wva.model.memory import CapacityBasis
from wva.model.optimizers import Analyzer, Optimizer
from wva.model.policy import Policy, ScaleToZeroPolicy
from wva.model.records import replace
from wva.model.variant import VariantKey

SPACING_SECONDS: Final = 30.0
"""For so many seconds a model does not grow again while replicas start."""

_ROUNDING: Final = 1e-9
_RISEN: Final = 1.1  # demand has risen if it is so many times that of the last growth; an HPA ignores less, too
_CERTAIN: Final = 2.0  # demand has certainly risen if it has risen by so many of its standard errors
_MOST_PER_SERVING: Final = 4  # a variant with replicas that do not serve gets at most so many replicas per Ready one
_MOVE: Final = AllocationPolicy().move_share
_SUPPOSED: Final = {CapacityBasis.BORROWED, CapacityBasis.UNKNOWN}  # the capacity was neither measured nor configured


class Course(StrEnum):
    """What the numbers of a model may do in this cycle."""

    HOLD = "hold"
    GROW = "grow"
    WAIT = "wait"
    SHRINK = "shrink"
    REPLACE = "replace"
    STAY = "stay"


MOVES: Final = {Course.GROW, Course.SHRINK, Course.REPLACE}
"""The courses on which numbers may change."""


class Rule(StrEnum):
    """The rules in words, each with the reason of the decision; a model that is held has the reason of its hold."""

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
    """What the allocator may do with a model."""

    course: Course  # whether it grows, shrinks or stays
    rule: Rule  # why the model waits or stays, if a rule about the whole model says so
    present: float  # the capacity of the replicas that are asked for, in the unit of the need
    free: Mapping[VariantKey, int]  # the variants that may change, with the numbers from which they start
    coming: int = 0  # replicas that are under way
    concerned: tuple[str, ...] = ()  # the names of the variants that the rule is about
    opens: VariantKey | None = None  # the variant that may take the place of others
    cause: str = ""  # in words: why ``concerned`` keep replicas that the present demand does not need


class Verdict(Struct, frozen=True, gc=False):
    """The number of a variant, and the rule that gave it."""

    rule: Rule
    number: int
    planned: int  # the number that the allocator gave
    limit: Limit = NO_LIMIT  # what kept it from being larger
    not_zero: str = ""  # in words: why the model does not go to zero although scale to zero is on
    surprising: bool = False  # whether users do not expect this


def terms(model: ModelReadings, need: Need) -> Terms:
    """Return what the allocator may do with a model."""
    variants = model.variants
    present = present_capacity(model, need)
    if need.hold is not None:
        return Terms(Course.HOLD, Rule.HELD, present, {})
    growing = tuple([each.key.name for each in variants if each.progress.in_flight])
    coming = sum([each.progress.in_flight for each in variants]) if growing else 0
    # Replicas under way were ordered for an earlier demand. More are needed only if demand has certainly risen since.
    certain = need.required - (_CERTAIN * need.error if coming else 0.0)
    short = certain > present * (1 + _ROUNDING) + _ROUNDING
    counts_replicas = need.unit == REPLICAS
    # To take back an unfinished shrink is quicker than to start replicas, so then the model does not wait.
    if short and coming and counts_replicas and not any(_returns(each.progress) for each in variants):
        # For some seconds the replicas that start count as ordered for the present demand. After that a variant without
        # such replicas may grow. Where every variant has some, the model waits unless its demand has risen since.
        waits = min([each.progress.age_seconds for each in variants if each.progress.in_flight]) < SPACING_SECONDS
        if not waits and not any(_may_grow(each.progress, skips=True) for each in variants):
            answered = model.memory.answered
            waits = answered is not None and need.demand <= answered * _RISEN
        if waits:
            return Terms(Course.WAIT, Rule.ANSWERED, present, {}, coming, growing)
    if short:
        # In the unit of replicas it is not known what a replica under way will carry, so its variant gets no more. An
        # analyzer that knows capacities has counted it already.
        obstacles = [(each, blocked(each.progress, skips=counts_replicas)) for each in variants]
        able = [each for each, obstacle in obstacles if obstacle is None]
        if not any(bounded(each.progress) is None for each in able):
            # If no other variant can grow, a variant with starting replicas may. But if its new replicas never start,
            # it gets only a few, and if its scaler does not even create them, it gets none.
            able += [
                each
                for each, obstacle in obstacles
                if obstacle in {"waiting", "silent"}
                and _few(each.progress)
                and not (each.progress.overdue and each.progress.base > each.progress.current)
            ]
        free = {each.key: each.progress.level for each in able if need.of(each.key) > 0}
        return Terms(Course.GROW, Rule.NO_CANDIDATE, present, free, coming, growing)
    if need.deferred or need.wish:
        return Terms(Course.WAIT, Rule.DEFERRED if need.deferred else Rule.SUFFICES, present, {}, coming, growing)
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
    if need.sufficient < present * (1 - _ROUNDING) and (counts_replicas or _left(variants, need, need.sufficient)):
        return Terms(Course.SHRINK, Rule.STEADY, present, free)
    # The variant whose measured capacity is the cheapest may replace others, the cost of the move included. Another one
    # might save cost only because its size happens to fit the present demand, and only until demand changes. Without a
    # forecast it is not known for how long a move pays.
    opens: VariantKey | None = None
    if need.foreseeable and need.sufficient != math.inf:
        rates = {
            each.key: each.progress.variant.cost / need.of(each.key)
            for each in variants
            if each.key in free and need.of(each.key) > 0
        }
        measured = [
            (rates[each.key], each.key)
            for each in variants
            if each.key in rates
            and need.capacities[each.key].basis not in _SUPPOSED
            and _may_grow(each.progress, skips=False)
        ]
        rate, cheapest = min(measured, default=(math.inf, None))
        dearer = [each for each in variants if rates.get(each.key, 0.0) > rate * (1 + _MOVE)]
        opens = cheapest if any(_may_shrink(each.progress) for each in dearer) else None
    course = Course.REPLACE if opens else Course.STAY
    left = _left(variants, need, need.stays[0][0]) if need.stays and need.stays[0][0] < present else {}
    for amount, cause in need.stays[1:] if left else ():
        if amount > max(left.values()):
            return Terms(course, Rule.KEPT, present, free, concerned=tuple(left), opens=opens, cause=cause)
    return Terms(course, Rule.STEADY, present, free, opens=opens)


def _left(variants: Sequence[VariantReadings], need: Need, least: float) -> dict[str, float]:
    """Return the variants that can shrink by a step and leave at least ``least``: names, and the capacity left."""
    counts = {each.key: max(0, each.progress.base - each.progress.dormant) for each in variants}
    left = {}
    for each in variants:
        if _may_shrink(each.progress):
            carried = need.carried(counts | {each.key: max(0, counts[each.key] - each.progress.step)})
            if carried >= least * (1 - _ROUNDING):
                left[each.key.name] = carried
    return left


def _counted(model: ModelReadings, need: Need) -> bool:
    """Tell whether each replica has a reading, a present or a remembered one."""
    return model.complete or (need.recalls and all(each.progress.countable for each in model.variants))


def _returns(progress: Progress) -> bool:
    """Tell whether a variant has an unfinished shrink that can be taken back; a shrink that the bounds force cannot."""
    return progress.variant.bounds.clamp(max(progress.floor, progress.current)) > progress.base


def _may_grow(progress: Progress, *, skips: bool) -> bool:
    """Tell whether nothing keeps a variant from growing."""
    return blocked(progress, skips=skips) is None and bounded(progress) is None


def blocked(progress: Progress, *, skips: bool) -> str | None:
    """Return in a word what keeps a variant from growing, apart from its bounds; None if nothing does.

    ``skips``: a variant with replicas that do not serve yet gets no more of them.
    """
    if progress.variant.unschedulable_pods:
        return "unplaced"
    if progress.waiting and (skips or progress.overdue or (progress.late and not _few(progress))):
        return "waiting"
    return "silent" if progress.silent and skips else None


def _few(progress: Progress) -> bool:
    """Tell whether a variant whose replicas do not all start may have more of them."""
    return progress.level < _MOST_PER_SERVING * progress.ready


def bounded(progress: Progress) -> str | None:
    """Return in a word why the bounds allow no growth that the scaler would carry out; None if they allow one."""
    maximum = progress.variant.bounds.maximum
    if maximum is None:
        return None
    if progress.level >= maximum:
        return "maximum"
    return None if progress.current + progress.step <= maximum else "tolerance"


def _may_shrink(progress: Progress) -> bool:
    return progress.base == progress.current and progress.base - progress.step >= lowest(progress)


def lowest(progress: Progress) -> int:
    """Return the smallest number of a variant: the minimum of its scaler, and 1 without a minimum."""
    minimum = progress.variant.bounds.minimum
    return 1 if minimum is None else minimum


def _rank(each: VariantReadings) -> tuple[float, ...]:
    """Order variants of equal price: one with waiting replicas, or with little room, grows last and shrinks first."""
    kv, queue = each.room
    return each.progress.waiting, -kv, -queue


def want(model: ModelReadings, need: Need, found: Terms, stock: Stock, policy: Policy) -> Want:
    """Return what a model wants, without priority and weight. A variant that may not change keeps its number."""
    course, grows = found.course, found.course is Course.GROW
    goal = need.required
    if course in {Course.SHRINK, Course.REPLACE}:
        goal = need.sufficient if course is Course.SHRINK else min(need.sufficient, found.present)
    limited = policy.limited or policy.analyzer_for(model.key) is Analyzer.QUEUEING
    # A measured capacity may be false, so a limit follows from the number of Ready replicas.
    times = int(MOST_TIMES) * max(1, sum([each.progress.ready for each in model.variants]))
    offers = []
    for each in model.variants:
        progress, variant = each.progress, each.progress.variant
        bounds, limits = variant.bounds, stock.limits_of(variant) if limited else ()
        capacity = need.of(each.key) if course in MOVES and each.key in found.free else 0.0
        counted = progress.serving + progress.in_flight
        present, floor, ceiling, origin = progress.base, bounds.minimum or 0, bounds.maximum, bounds.ceiling_origin
        if not capacity > 0:
            # A variant that keeps its number carries a part of the goal, so the goal becomes smaller by this part.
            if course is Course.HOLD:
                present = bounds.clamp(progress.published)
            elif grows:
                present = max(present, bounds.clamp(progress.level) if progress.outstanding else 0)
            goal -= min(present, counted) * need.of(each.key)
        else:
            present, floor = found.free[each.key], lowest(progress)
            goal += max(0, present - counted) * capacity
            if grows:
                # Missing GPUs never remove replicas that exist, but may remove replicas that are only asked for.
                floor = max(floor, min(present, progress.current)) if limits else present
            elif each.key != found.opens:
                ceiling, origin = present, ""
            if need.foreseeable and (ceiling is None or ceiling > max(present, times)):
                ceiling, origin = max(present, times), ""
        offers.append(
            Offer(
                each.key,
                variant.cost,
                capacity,
                present,
                progress.current,
                floor,
                ceiling,
                origin,
                progress.step,
                max(1, variant.gpus_per_replica),
                limits,
                _rank(each) if len(model.variants) > 1 else (),
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
    zero: ScaleToZeroPolicy,
    now: float,
) -> list[Verdict]:
    """Return the verdicts on the variants of a model, in their order; ``zero``: whether and when it may go to zero."""
    course, variants = found.course, model.variants
    unread = not (need.recalls or model.complete) and any(each.unread for each in variants)
    numbers = {each.key: plan.numbers.get(each.key, each.progress.base) for each in variants}
    grows = course is Course.GROW and any(numbers[each.key] > each.progress.level for each in variants)
    # An unfinished growth can be withdrawn if the serving replicas less one would suffice.
    enough = False
    if any(each.progress.base > each.progress.current for each in variants):
        carried = [(each.progress.serving, need.of(each.key)) for each in variants]
        smallest = min([each for _, each in carried if each > 0], default=math.inf)
        enough = _counted(model, need) and not need.objection and math.isfinite(need.sufficient)
        enough = enough and sum([count * each for count, each in carried]) - smallest >= need.sufficient
    replaces = False
    if course is Course.REPLACE:
        # A replacement must save more than the move costs.
        changes = [(numbers[each.key] - each.progress.base, each.progress.variant.cost) for each in variants]
        replaces = sum([change * price * (1 + _MOVE * (change > 0)) for change, price in changes]) < 0
    going: dict[VariantKey, int] = {}
    if course is Course.SHRINK:
        # At most ``allowed`` replicas go in a cycle, or one step of the scaler. The dearest variant shrinks first; at
        # equal price the one with most replicas that do not serve, then the largest.
        allowed: float = math.inf if need.most_removed is None else need.most_removed

        def dearest(each: VariantReadings) -> tuple[object, ...]:
            progress = each.progress
            return progress.variant.cost, progress.waiting, progress.level, _rank(each), each.key

        for each in sorted(variants, key=dearest, reverse=True):
            planned = each.progress.base - numbers[each.key] if each.key in found.free else 0
            count = int(min(planned, allowed if going else max(allowed, each.progress.step)))
            if count >= each.progress.step and allowed > 0:
                going[each.key] = count
                allowed -= count
    verdicts = []
    for each in variants:
        progress, key = each.progress, each.key
        number, limit = numbers[key], plan.limits.get(key, NO_LIMIT)
        if not limit.by:
            limit = NO_LIMIT  # a ceiling of ``terms`` is a limit that no user has set
        keep, back = progress.published, max(progress.floor, progress.current)
        kept = min(keep, number) if limit.by and number < progress.base else keep
        # A growth that is past its deadline can be withdrawn, too, but not one that the bounds force.
        needless = (progress.overdue or enough) and progress.variant.bounds.clamp(back) < progress.base
        if course is Course.HOLD:
            rule, desired = Rule.HELD, kept
        elif course is Course.GROW and number > progress.level:
            rule, desired = Rule.GROWS, number
        elif course is Course.GROW and progress.outstanding:
            rule, desired = Rule.SHRINK_WITHDRAWN, back
        elif course is Course.GROW and limit.fewer and limit.by != progress.variant.bounds.ceiling_origin:
            rule, desired = Rule.NO_GPUS, kept
        elif course is Course.GROW and number < progress.base:
            rule, desired = Rule.GROWTH_WITHDRAWN, number  # replicas that are only asked for have no GPUs yet
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
        elif progress.base > progress.current and needless:
            rule, desired = Rule.GROWTH_WITHDRAWN, back
        elif unread:
            rule, desired = Rule.INCOMPLETE, kept
        elif progress.outstanding:
            rule, desired = Rule.SHRINK_UNFINISHED, kept
        elif key in going:
            rule, desired = Rule.SHRINKS, progress.base - going[key]
        elif replaces:
            # The replaced variant shrinks when the new replicas serve. So capacity never falls meanwhile.
            rule, desired = (Rule.REPLACES, number) if number > progress.base else (Rule.REPLACED, kept)
        elif progress.waiting or progress.silent:
            rule, desired = Rule.NOT_READY, kept
        elif going:
            rule, desired = Rule.SHRINK_KEPT, kept
        elif found.rule is Rule.OBJECTED and not _may_shrink(progress):
            others = any(_may_shrink(other.progress) for other in variants)
            rule, desired = (Rule.AT_FLOOR if others else Rule.STEADY), kept
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


def why_not_zero(
    model: ModelReadings, need: Need, policy: ScaleToZeroPolicy, growing: Iterable[str], now: float
) -> tuple[str, bool]:
    """Return in words why a model may not go to zero now, empty when it may; and whether that is a surprise.

    Missing data never counts as idle, nor does a time of which Prometheus has no samples. ``growing`` are the names of
    variants that are asked for more.
    """
    counts = model.counts
    if need.hold is not None or not model.complete:
        gap = "not every replica reports" if need.hold is None else need.hold.message
        return f"nothing is taken to zero on incomplete metrics ({gap})", False
    if counts is None or counts.finished is None or counts.in_progress is None:
        detail = "" if counts is None else counts.detail
        return f"the requests of the model are not known ({detail or 'not counted'})", False
    if counts.retention_seconds < policy.retention_seconds:
        return f"requests are known for the last {counts.retention_seconds:g} s only", False
    if counts.finished:
        return f"{counts.finished:g} requests finished within {counts.retention_seconds:g} s", False
    if counts.in_progress:
        return f"{counts.in_progress:g} requests run or wait", False
    queued = math.fsum([pod.queue_length.fresh_value or 0.0 for each in model.variants for pod in each.replicas])
    if queued > 0:
        return f"{queued:g} requests wait", False
    if not counts.covered:
        words = f"the history of requests covers {counts.covered_seconds:g} of {counts.retention_seconds:g} s"
        return words, True
    active = [each.progress for each in model.variants if each.progress.variant.active]
    moving = sorted(each.variant.key.name for each in active if each.since is not None) or sorted(growing)
    if moving:
        return f"unfinished change of {', '.join(moving)}", False
    started = [each.variant.activated_at for each in active if each.variant.activated_at is not None]
    age = now - max(started, default=-math.inf)
    if age < policy.retention_seconds:
        return f"started {max(0.0, age):.0f} s ago, gets {policy.retention_seconds:g} s", False
    return "", False
