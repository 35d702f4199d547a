"""Before step 4: what the allocator may do with each model, and what it is asked for.

``terms`` says whether a model grows, shrinks or stays, and which of its variants may change: the allocator must not
give a replica to a variant that cannot grow. ``want`` turns this into a request to the allocator. ``planned`` asks it
for all models together, and up to three times again where what the replicas carry together differs from what a model
wants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from wva.decide.allocate import UNLIMITED, AllocationPolicy, Offer, Plan, SharingRule, Stock, Want, allocate
from wva.decide.foresee import MOST_TIMES
from wva.decide.measure import present_capacity
from wva.decide.measure.need import REPLICAS, Need
from wva.decide.rules import MOVES, Course, Rule, Terms
from wva.decide.trust import ModelReadings, VariantReadings
from wva.model.memory import CapacityBasis
from wva.model.optimizers import Analyzer, BestEffort, Optimizer
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.roles import DECODE, computes, needs_others, place_of
from wva.model.service import LOWEST_PRIORITY
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, VariantKey

SPACING_SECONDS: Final = 30.0
"""For so many seconds a model that is measured in replicas does not grow again while replicas start."""
MOVE_SHARE: Final = AllocationPolicy().move_share
"""A replacement must save so much of the price of the new replicas, at least."""

_ROUNDING: Final = 1e-9
_RISEN: Final = 1.1  # demand has risen if it is so many times that of the last growth; an HPA ignores less, too
_CERTAIN: Final = 2.0  # while replicas are under way, more are ordered for what is missing beyond so many errors
_SUPPOSED: Final = {CapacityBasis.BORROWED, CapacityBasis.UNKNOWN}  # the capacity was neither measured nor configured
_LEAST_PART: Final = 0.01  # of the requests that come to a role; by chance it may seem to be less
_ROUNDS: Final = 3
_ENOUGH: Final = 1.0 - 1e-9


def with_roles(models: Sequence[ModelReadings], needs: Sequence[Need], parts: Mapping[ModelKey, float]) -> list[Need]:
    """Return the needs, adjusted to the other roles of their model; ``parts`` are those of ``parts_of``.

    A role that computes no answers does not shrink while it counts replicas: its pods hold few requests, however busy
    they are.
    """
    # By model, in the order of its roles: the role, and how many requests it will pass on.
    passing: dict[ModelKey, list[tuple[tuple[int, str], float]]] = {}
    for model, need in zip(models, needs, strict=True):
        if need.key in parts:
            passed = min(_most_passed(model, need), need.required) / parts[need.key]
            passing.setdefault(need.key.whole, []).append((place_of(need.key.role), passed))
    adjusted = []
    for model, need in zip(models, needs, strict=True):
        before = [entry for entry in passing.get(need.key.whole, ()) if entry[0][0] < place_of(need.key.role)[0]]
        if need.key in parts and before:
            (_, role), passed = max(before, key=lambda entry: entry[1])
            adjusted.append(_with_passed(need, role, passed * parts[need.key]))
        elif need.unit == REPLICAS and model.others and not computes(model.key.role, DECODE):
            adjusted.append(replace(need, objection=need.objection or "it is not known yet what its pods carry"))
        else:
            adjusted.append(need)
    return adjusted


def _most_passed(model: ModelReadings, need: Need) -> float:
    """Return what replicas that compute no answers get through, perhaps late; those under way count, too.

    Each is a queue with one server: with ``batch`` requests in progress it is busy for ``batch / (1 + batch)`` of the
    time. When it is busy all the time, it gets through ``1 + 1 / batch`` times as much.
    """
    present, serving = present_capacity(model, need), sum([variant.progress.serving for variant in model.variants])
    batch = need.rate.ceiling / serving if need.rate is not None and serving else math.inf
    return present * (1.0 + 1.0 / batch) if batch > 0.0 else present


def _with_passed(need: Need, role: str, passed: float) -> Need:
    """Return a need whose shrink leaves the capacity for what a role before it will pass on.

    If the role before has been short, that is more than comes now: the role has replicas under way, or works off what
    has piled up in front of it.
    """
    if need.sufficient >= passed:
        return need
    rate = need.rate
    if rate is not None and rate.stays:
        words = f"{role} will pass on {passed:.3g} {need.unit}"
        rate = replace(rate, stays=(*rate.stays, (passed, words)))
    return replace(need, sufficient=passed, rate=rate)


def terms(model: ModelReadings, need: Need) -> Terms:
    """Return what the allocator may do with a model.

    The first that applies decides: a hold; growth, unless an answer to it is under way; a wish to grow that waits;
    replicas that come or go; replicas that do not count; an objection; a shrink; a replacement. Else the numbers stay.
    """
    variants = model.variants
    present = present_capacity(model, need)
    if need.hold is not None:
        return Terms(Course.HOLD, Rule.HELD, present, {})
    awaited = tuple([variant.key.name for variant in variants if variant.progress.in_flight])
    coming = sum([variant.progress.in_flight for variant in variants]) if awaited else 0
    # Replicas under way were ordered for an earlier demand. More are needed only if what is required now, the backlog
    # included, certainly exceeds the capacity of all that are asked for.
    certain = need.required - (_CERTAIN * need.rate.error if coming and need.rate is not None else 0.0)
    if certain > present * (1 + _ROUNDING) + _ROUNDING:
        if coming and _answered(model, need):
            return Terms(Course.WAIT, Rule.ANSWERED, present, {}, coming, awaited)
        able = _able(variants, skips=need.unit == REPLICAS)
        free = {variant.key: variant.progress.level for variant in able if need.of(variant.key) > 0}
        return Terms(Course.GROW, Rule.NO_CANDIDATE, present, free, coming, awaited)
    if need.deferred or need.wish:
        return Terms(Course.WAIT, Rule.DEFERRED if need.deferred else Rule.SUFFICES, present, {}, coming, awaited)
    if awaited:
        return Terms(Course.STAY, Rule.SIBLING_PENDING, present, {}, coming, awaited)
    shrinking = tuple(
        [variant.key.name for variant in variants if variant.progress.outstanding and not variant.progress.overdue]
    )
    if shrinking:
        return Terms(Course.STAY, Rule.SIBLING_UNFINISHED, present, {}, coming, shrinking)
    if not counted(model, need):
        return Terms(Course.STAY, Rule.UNCOUNTED, present, {})
    if need.objection:
        return Terms(Course.STAY, Rule.OBJECTED, present, {})
    free = {
        variant.key: variant.progress.base for variant in variants if variant.progress.base == variant.progress.current
    }
    if need.sufficient < present * (1 - _ROUNDING) and (
        need.unit == REPLICAS or _left(variants, need, need.sufficient)
    ):
        return Terms(Course.SHRINK, Rule.STEADY, present, free)
    replacement = _replacement(variants, need, free)
    course = Course.REPLACE if replacement else Course.STAY
    held_back, cause = _held_back(variants, need, present)
    if cause:
        return Terms(course, Rule.KEPT, present, free, concerned=held_back, replacement=replacement, cause=cause)
    return Terms(course, Rule.STEADY, present, free, replacement=replacement)


def _answered(model: ModelReadings, need: Need) -> bool:
    """Tell whether replicas under way were asked for the present demand.

    This matters only if the unit is replicas: other needs say how much is missing beside what is under way.

    For some seconds the replicas that start count as ordered for the present demand. After that a variant without such
    replicas may grow. Where every variant has some, the model waits unless its demand has risen since. To take back an
    unfinished shrink is quicker than to start replicas, so then the model does not wait.
    """
    variants = model.variants
    if need.unit != REPLICAS or any(variant.progress.returns for variant in variants):
        return False
    if min([variant.progress.age_seconds for variant in variants if variant.progress.in_flight]) < SPACING_SECONDS:
        return True
    if any(variant.progress.may_grow(skips=True) for variant in variants):
        return False
    answered = model.memory.answered
    return answered is not None and need.demand <= answered * _RISEN


def _able(variants: Sequence[VariantReadings], *, skips: bool) -> list[VariantReadings]:
    """Return the variants that may grow.

    In the unit of replicas (``skips``) it is not known what a replica under way will carry, so its variant gets no
    more. An analyzer that knows capacities has counted it already. If no other variant can grow, a variant with
    starting replicas may. But if its new replicas never start, it gets only a few, and if its scaler does not even
    create them, it gets none.
    """
    obstacles = [(variant, variant.progress.blocked(skips=skips)) for variant in variants]
    able = [variant for variant, obstacle in obstacles if obstacle is None]
    if not any(variant.progress.bounded() is None for variant in able):
        able += [
            variant
            for variant, obstacle in obstacles
            if obstacle in {"waiting", "silent"}
            and variant.progress.few
            and not (variant.progress.overdue and variant.progress.base > variant.progress.current)
        ]
    return able


def _replacement(variants: Sequence[VariantReadings], need: Need, free: Mapping[VariantKey, int]) -> VariantKey | None:
    """Return the variant that may take the place of others, the cost of the move included; None if there is none.

    It is the one whose measured capacity is the cheapest. Another one might save cost only because its size happens to
    fit the present demand, and only until demand changes. Without a forecast it is not known for how long a move pays.
    """
    if need.rate is None or need.sufficient == math.inf:
        return None
    prices = {
        variant.key: variant.progress.variant.cost / need.of(variant.key)
        for variant in variants
        if variant.key in free and need.of(variant.key) > 0
    }
    measured = [
        (prices[variant.key], variant.key)
        for variant in variants
        if variant.key in prices
        and need.capacities[variant.key].basis not in _SUPPOSED
        and variant.progress.may_grow(skips=False)
    ]
    price, cheapest = min(measured, default=(math.inf, None))
    dearer = [variant for variant in variants if prices.get(variant.key, 0.0) > price * (1 + move_share(need))]
    return cheapest if any(variant.progress.may_shrink for variant in dearer) else None


def move_share(need: Need) -> float:
    """Return how much of the price of the new replicas a replacement must save.

    The old replicas stay until the new ones serve, so a start is paid twice. It has to be repaid within the time for
    which the demand will stay as it is: about as long again as it has been so.
    """
    return MOVE_SHARE if need.rate is None else max(MOVE_SHARE, 1.0 / need.rate.lasted)


def _held_back(variants: Sequence[VariantReadings], need: Need, present: float) -> tuple[tuple[str, ...], str]:
    """Return the variants that keep replicas which the present demand does not need, and why; no words if none does.

    These are the variants that could shrink by a step if only the present demand counted (``DemandRate.stays``). The
    reason is the first that asks for more than any of these shrinks would leave.
    """
    stays = () if need.rate is None else need.rate.stays
    left = _left(variants, need, stays[0][0]) if stays and stays[0][0] < present else {}
    for amount, cause in stays[1:] if left else ():
        if amount > max(left.values()):
            return tuple(left), cause
    return (), ""


def _left(variants: Sequence[VariantReadings], need: Need, least: float) -> dict[str, float]:
    """Return the variants that can shrink by a step and leave at least ``least``: names, and the capacity left."""
    counts = {variant.key: max(0, variant.progress.base - variant.progress.dormant) for variant in variants}
    left = {}
    for variant in variants:
        if variant.progress.may_shrink:
            carried = need.carried(counts | {variant.key: max(0, counts[variant.key] - variant.progress.step)})
            if carried >= least * (1 - _ROUNDING):
                left[variant.key.name] = carried
    return left


def counted(model: ModelReadings, need: Need) -> bool:
    """Tell whether every replica counts in the need.

    Either each replica reports, or the analyzer remembers those that do not. For the latter the numbers of pods and
    replicas must agree.
    """
    return model.complete or (need.recalls and all(variant.progress.countable for variant in model.variants))


def want(model: ModelReadings, need: Need, model_terms: Terms, stock: Stock, policy: Policy) -> Want:
    """Return what a model wants, without priority and weight. A variant that may not change keeps its number."""
    course, grows = model_terms.course, model_terms.course is Course.GROW
    goal = need.required
    if course in {Course.SHRINK, Course.REPLACE}:
        goal = need.sufficient if course is Course.SHRINK else min(need.sufficient, model_terms.present)
    limited = policy.limited or policy.analyzer_for(model.key) is Analyzer.QUEUEING
    # A measured capacity may be false, so a limit follows from the number of Ready replicas.
    most_replicas = int(MOST_TIMES) * max(1, sum([readings.progress.ready for readings in model.variants]))
    offers = []
    for readings in model.variants:
        progress, variant = readings.progress, readings.progress.variant
        bounds, limits = variant.bounds, stock.limits_of(variant) if limited else ()
        capacity = need.of(readings.key) if course in MOVES and readings.key in model_terms.free else 0.0
        supply = progress.serving + progress.in_flight
        present, floor, ceiling, origin = progress.base, bounds.minimum or 0, bounds.maximum, bounds.ceiling_origin
        if not capacity > 0:
            # A variant that keeps its number carries a part of the goal, so the goal becomes smaller by this part.
            if course is Course.HOLD:
                present = bounds.clamp(progress.published)
            elif grows:
                present = max(present, bounds.clamp(progress.level) if progress.outstanding else 0)
            goal -= min(present, supply) * need.of(readings.key)
        else:
            present, floor = model_terms.free[readings.key], progress.lowest
            # Some of the replicas from which it starts may carry nothing; they are planned in addition.
            goal += max(0, present - supply) * capacity
            if grows:
                # Missing GPUs never remove replicas that exist, but may remove replicas that are only asked for.
                floor = max(floor, min(present, progress.current)) if limits else present
            elif readings.key != model_terms.replacement:
                ceiling, origin = present, ""
            if need.rate is not None and (ceiling is None or ceiling > max(present, most_replicas)):
                ceiling, origin = max(present, most_replicas), ""
        offers.append(
            Offer(
                readings.key,
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
                readings.rank if len(model.variants) > 1 else (),
            )
        )
    beside = need.required - goal if grows else 0.0
    most_added = 1 if policy.optimizer_for(model.key) is Optimizer.ONE_STEP else need.most_added
    smallest = min([offer.capacity for offer in offers if offer.capacity > 0], default=math.inf)
    if grows and most_added is not None and math.isfinite(smallest):
        numbers = [min(offer.present, math.inf if offer.ceiling is None else offer.ceiling) for offer in offers]
        carried = sum([count * offer.capacity for count, offer in zip(numbers, offers, strict=True)])
        goal = min(goal, carried + most_added * smallest)
    return Want(
        model.key,
        max(0.0, goal),
        tuple(offers),
        keeps_one=course in {Course.SHRINK, Course.REPLACE},
        beside=beside,
    )


def parts_of(models: Sequence[ModelReadings], needs: Sequence[Need]) -> dict[ModelKey, float]:
    """Return by role which part of the requests of its model comes to it, if these need other roles, too.

    The part is what comes to the role, divided by what comes to the last role of the model. A role that is short passes
    on less than comes to it, so the quotient may be above 1; a part is at most 1. A role that counts replicas is left
    out, because it is not known how many requests they carry.
    """
    joined = [
        (need.key, need.demand)
        for model, need in zip(models, needs, strict=True)
        if model.others and need.unit != REPLICAS and need.hold is None and needs_others(need.key.role, model.others)
    ]
    last: dict[ModelKey, tuple[tuple[int, str], float]] = {}
    for key, demand in joined:
        candidate = place_of(key.role), demand
        last[key.whole] = max(last.get(key.whole, candidate), candidate)
    wholes = {key: demand for key, (_, demand) in last.items()}
    return {
        key: 1.0 if demand >= wholes[key.whole] else max(_LEAST_PART, demand / wholes[key.whole])
        for key, demand in joined
    }


def stock_of(snapshot: Snapshot, policy: Policy) -> Stock:
    """Return the GPUs that are free."""
    if not policy.counts_gpus:
        return UNLIMITED
    return Stock.of(snapshot.inventory, snapshot.variants, unknown=policy.unknown_inventory)


def planned(
    models: Sequence[ModelReadings],
    needs: Sequence[Need],
    parts: Mapping[ModelKey, float],
    allowed: Sequence[Terms],
    stock: Stock,
    policy: Policy,
) -> Plan:
    """Return the cheapest numbers of all models; those of a model that wants nothing are not in it."""
    rule = _sharing(models, allowed, policy)
    wants = []
    for model, need, model_terms in zip(models, needs, allowed, strict=True):
        # Replicas that exist have their GPUs already. The limiter can deny only replicas that are asked for beyond
        # them.
        asks = stock.counted and any(variant.progress.base > variant.progress.current for variant in model.variants)
        if model_terms.course in MOVES or asks:
            wanted, target = want(model, need, model_terms, stock, policy), policy.service_target_for(model.key)
            priority = LOWEST_PRIORITY if target is None else target.priority
            if model_terms.course is Course.GROW:
                wanted = replace(wanted, part=parts.get(need.key, 0.0))
            # Within a priority the model comes first whose demand is the highest in relation to its capacity. By score,
            # what is missing counts in replicas, times the importance.
            weight = need.demand / model_terms.present if model_terms.present > 0 else 1.0
            if rule.sharing is SharingRule.SCORE:
                smallest = min([offer.capacity for offer in wanted.offers if offer.capacity > 0], default=1.0)
                weight = LOWEST_PRIORITY / priority / smallest
            wants.append(replace(wanted, priority=priority, weight=weight))
    return fitted(wants, {need.key: need for need in needs}, stock, rule)


def _sharing(models: Sequence[ModelReadings], allowed: Sequence[Terms], policy: Policy) -> AllocationPolicy:
    """Return how scarce GPUs are shared.

    By score if a growing model asks for that, else by the policy of best effort, else by priority. Among models of one
    priority the weight counts.
    """
    growing = [
        model.key for model, model_terms in zip(models, allowed, strict=True) if model_terms.course is Course.GROW
    ]
    if any(policy.optimizer_for(key) is Optimizer.GREEDY_BY_SCORE for key in growing):
        return AllocationPolicy(SharingRule.SCORE)
    if policy.solver.best_effort is not BestEffort.NONE:
        return AllocationPolicy(SharingRule(policy.solver.best_effort.value), delayed=policy.solver.delayed)
    return AllocationPolicy()


def fitted(wants: Sequence[Want], needs: Mapping[ModelKey, Need], stock: Stock, policy: AllocationPolicy) -> Plan:
    """Return a plan whose replicas together carry what each model wants, as nearly as three more plans allow.

    The allocator adds capacities up. But what replicas carry together may depend on their number, and on the variants
    among which a gateway spreads requests (``Need.carries``). So the need is scaled by the error of the sum, and the
    allocator is asked again. A plan that carries too little cannot come again: its sum is below the next need. But the
    last plan may still carry too little.
    """
    adjusted = {wanted.key: wanted for wanted in wants}
    plan = allocate(wants, stock, policy)
    adjustable = [wanted for wanted in wants if wanted.need > 0.0 and needs[wanted.key].carries is not None]
    for turn in range(_ROUNDS):
        changed = False
        for wanted in adjustable:
            counts = {offer.key: plan.numbers[offer.key] for offer in wanted.offers}
            # Replicas without a known capacity keep their number, and carry no part of the need.
            fixed = {offer.key: counts[offer.key] for offer in wanted.offers if not offer.capacity > 0.0}
            carried = needs[wanted.key].carried(counts)
            carried -= needs[wanted.key].carried(fixed) if fixed else 0.0
            short = carried < wanted.need * _ENOUGH
            # The first plan may also have been too large. After that needs only grow, so that this ends.
            if carried > 0.0 and (short or turn == 0):
                total = sum([offer.capacity * counts[offer.key] for offer in wanted.offers])
                scale = total / carried
                adjusted[wanted.key] = replace(
                    wanted, need=wanted.need * scale, part=wanted.part * scale, beside=wanted.beside * scale
                )
                changed = True
        if not changed:
            break
        plan = allocate(list(adjusted.values()), stock, policy)
    return plan
