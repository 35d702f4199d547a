"""Step 5: the rule and the number of each variant; and before step 4, what the allocator may do.

Before step 4, ``terms`` says whether a model grows, shrinks or stays, and which of its variants may change: the
allocator must not give a replica to a variant that cannot grow. After step 4, ``settle`` gives each variant its number:
the first rule of ``RULES`` that matches decides, and the decision names it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from wva.decide.allocate import AllocationPolicy, Offer, Plan, Stock, Want
from wva.decide.foresee import MOST_TIMES
from wva.decide.measure import present_capacity
from wva.decide.measure.need import REPLICAS, Need
from wva.decide.rules import MOVES, Course, ModelCase, Rule, Terms, VariantCase, Verdict, verdict
from wva.decide.trust import ModelReadings, VariantReadings
from wva.model.decision import NO_LIMIT
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
_MOVE: Final = AllocationPolicy().move_share
_SUPPOSED: Final = {CapacityBasis.BORROWED, CapacityBasis.UNKNOWN}  # the capacity was neither measured nor configured


def terms(model: ModelReadings, need: Need) -> Terms:
    """Return what the allocator may do with a model."""
    variants = model.variants
    present = present_capacity(model, need)
    if need.hold is not None:
        return Terms(Course.HOLD, Rule.HELD, present, {})
    growing = tuple([each.key.name for each in variants if each.progress.in_flight])
    coming = sum([each.progress.in_flight for each in variants]) if growing else 0
    # Replicas under way were ordered for an earlier demand. More are needed only if demand has certainly risen since.
    certain = need.required - (_CERTAIN * need.rate.error if coming and need.rate is not None else 0.0)
    short = certain > present * (1 + _ROUNDING) + _ROUNDING
    counts_replicas = need.unit == REPLICAS
    # To take back an unfinished shrink is quicker than to start replicas, so then the model does not wait.
    if short and coming and counts_replicas and not any(each.progress.returns for each in variants):
        # For some seconds the replicas that start count as ordered for the present demand. After that a variant without
        # such replicas may grow. Where every variant has some, the model waits unless its demand has risen since.
        waits = min([each.progress.age_seconds for each in variants if each.progress.in_flight]) < SPACING_SECONDS
        if not waits and not any(each.progress.may_grow(skips=True) for each in variants):
            answered = model.memory.answered
            waits = answered is not None and need.demand <= answered * _RISEN
        if waits:
            return Terms(Course.WAIT, Rule.ANSWERED, present, {}, coming, growing)
    if short:
        # In the unit of replicas it is not known what a replica under way will carry, so its variant gets no more. An
        # analyzer that knows capacities has counted it already.
        obstacles = [(each, each.progress.blocked(skips=counts_replicas)) for each in variants]
        able = [each for each, obstacle in obstacles if obstacle is None]
        if not any(each.progress.bounded() is None for each in able):
            # If no other variant can grow, a variant with starting replicas may. But if its new replicas never start,
            # it gets only a few, and if its scaler does not even create them, it gets none.
            able += [
                each
                for each, obstacle in obstacles
                if obstacle in {"waiting", "silent"}
                and each.progress.few
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
    if need.rate is not None and need.sufficient != math.inf:
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
            and each.progress.may_grow(skips=False)
        ]
        rate, cheapest = min(measured, default=(math.inf, None))
        dearer = [each for each in variants if rates.get(each.key, 0.0) > rate * (1 + _MOVE)]
        opens = cheapest if any(each.progress.may_shrink for each in dearer) else None
    course = Course.REPLACE if opens else Course.STAY
    stays = () if need.rate is None else need.rate.stays
    left = _left(variants, need, stays[0][0]) if stays and stays[0][0] < present else {}
    for amount, cause in stays[1:] if left else ():
        if amount > max(left.values()):
            return Terms(course, Rule.KEPT, present, free, concerned=tuple(left), opens=opens, cause=cause)
    return Terms(course, Rule.STEADY, present, free, opens=opens)


def _left(variants: Sequence[VariantReadings], need: Need, least: float) -> dict[str, float]:
    """Return the variants that can shrink by a step and leave at least ``least``: names, and the capacity left."""
    counts = {each.key: max(0, each.progress.base - each.progress.dormant) for each in variants}
    left = {}
    for each in variants:
        if each.progress.may_shrink:
            carried = need.carried(counts | {each.key: max(0, counts[each.key] - each.progress.step)})
            if carried >= least * (1 - _ROUNDING):
                left[each.key.name] = carried
    return left


def _counted(model: ModelReadings, need: Need) -> bool:
    """Tell whether each replica has a reading, a present or a remembered one."""
    return model.complete or (need.recalls and all(each.progress.countable for each in model.variants))


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
            present, floor = found.free[each.key], progress.lowest
            goal += max(0, present - counted) * capacity
            if grows:
                # Missing GPUs never remove replicas that exist, but may remove replicas that are only asked for.
                floor = max(floor, min(present, progress.current)) if limits else present
            elif each.key != found.opens:
                ceiling, origin = present, ""
            if need.rate is not None and (ceiling is None or ceiling > max(present, times)):
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
    variants = model.variants
    numbers = {each.key: plan.numbers.get(each.key, each.progress.base) for each in variants}
    leaving = _leaving(model, need, found, numbers)
    whole = ModelCase(
        found,
        deferred=bool(need.deferred),
        grows=found.course is Course.GROW and any(numbers[each.key] > each.progress.level for each in variants),
        covered=found.course is Course.GROW
        and model.key not in plan.missing
        and any(each.progress.returns for each in variants),
        enough=_enough(model, need),
        unread=not (need.recalls or model.complete) and any(each.unread for each in variants),
        shrinks=bool(leaving),
        replaces=found.course is Course.REPLACE and _replaces(variants, numbers),
        flexible=found.rule is Rule.OBJECTED and any(each.progress.may_shrink for each in variants),
    )
    verdicts = []
    for each in variants:
        key, limit = each.key, plan.limits.get(each.key, NO_LIMIT)
        if not limit.by:
            limit = NO_LIMIT  # a ceiling of ``terms`` is a limit that no user has set
        verdicts.append(verdict(VariantCase(whole, key, each.progress, numbers[key], leaving.get(key, 0), limit)))
    return _or_zero(model, need, verdicts, zero, now) if zero.enabled else verdicts


def _enough(model: ModelReadings, need: Need) -> bool:
    """Tell whether the serving replicas less one would suffice, so that an unfinished growth is not needed."""
    if not any(each.progress.base > each.progress.current for each in model.variants):
        return False  # there is none
    if not _counted(model, need) or need.objection or not math.isfinite(need.sufficient):
        return False
    carried = [(each.progress.serving, need.of(each.key)) for each in model.variants]
    smallest = min([each for _, each in carried if each > 0], default=math.inf)
    return sum([count * each for count, each in carried]) - smallest >= need.sufficient


def _replaces(variants: Sequence[VariantReadings], numbers: Mapping[VariantKey, int]) -> bool:
    """Tell whether the planned numbers save more than the move to them costs."""
    changes = [(numbers[each.key] - each.progress.base, each.progress.variant.cost) for each in variants]
    return sum([change * price * (1 + _MOVE * (change > 0)) for change, price in changes]) < 0


def _leaving(
    model: ModelReadings, need: Need, found: Terms, numbers: Mapping[VariantKey, int]
) -> dict[VariantKey, int]:
    """Return how many replicas of each variant go in this cycle, of those that shrink.

    At most ``most_removed`` go, or one step of the scaler. The dearest variant shrinks first; at equal price the one
    with most replicas that do not serve, then the largest.
    """
    if found.course is not Course.SHRINK:
        return {}
    allowed: float = math.inf if need.most_removed is None else need.most_removed

    def dearest(each: VariantReadings) -> tuple[object, ...]:
        progress = each.progress
        return progress.variant.cost, progress.waiting, progress.level, _rank(each), each.key

    leaving: dict[VariantKey, int] = {}
    for each in sorted(model.variants, key=dearest, reverse=True):
        planned = each.progress.base - numbers[each.key] if each.key in found.free else 0
        count = int(min(planned, allowed if leaving else max(allowed, each.progress.step)))
        if count >= each.progress.step and allowed > 0:
            leaving[each.key] = count
            allowed -= count
    return leaving


def _or_zero(
    model: ModelReadings, need: Need, verdicts: Sequence[Verdict], zero: ScaleToZeroPolicy, now: float
) -> list[Verdict]:
    """Return the verdicts, or those of an idle model that goes to zero."""
    asked = zip(model.variants, verdicts, strict=True)
    more = [each.key.name for each, found in asked if found.number > each.progress.variant.current_replicas]
    objection, surprising = why_not_zero(model, need, zero, more, now)
    if objection:
        return [replace(found, not_zero=objection, surprising=surprising) for found in verdicts]
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
