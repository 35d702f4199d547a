"""Step 5: the rule and the number of each variant.

``settle`` gives each variant of a model its number: the first rule of ``RULES`` that matches decides, and the decision
names it. ``settled_or_zero`` takes a model that is idle to zero if it may.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from wva.decide.allocate import Plan
from wva.decide.measure.need import REPLICAS, Need
from wva.decide.progress import SLOW_START
from wva.decide.rules import Course, ModelCase, Rule, Terms, VariantCase, Verdict, verdict
from wva.decide.trust import ModelReadings, VariantReadings
from wva.decide.wants import counted, move_share
from wva.model.decision import NO_LIMIT, Decision
from wva.model.memory import ModelMemory, Shrink
from wva.model.policy import Policy, ScaleToZeroPolicy
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

_SHORTEST_IDLE_SECONDS: Final = 60.0
_SCRAPES_OF_IDLE: Final = 4.0


def settle(model: ModelReadings, need: Need, found: Terms, plan: Plan) -> list[Verdict]:
    """Return the verdicts on the variants of a model, in their order, before the question whether it goes to zero."""
    variants = model.variants
    numbers = {each.key: plan.numbers.get(each.key, each.progress.base) for each in variants}
    leaving = _leaving(model, need, found, numbers)
    whole = ModelCase(
        found.concerned,
        deferred=bool(need.deferred),
        grows=found.course is Course.GROW and any(numbers[each.key] > each.progress.level for each in variants),
        covered=found.course is Course.GROW
        and model.key not in plan.missing
        and any(each.progress.returns for each in variants),
        enough=_enough(model, need),
        unread=not (need.recalls or model.complete) and any(each.unread for each in variants),
        shrinks=bool(leaving),
        replaces=found.course is Course.REPLACE and _replaces(variants, numbers, move_share(need)),
        progresses=[each.progress for each in variants],
    )
    verdicts = []
    for each in variants:
        key, limit = each.key, plan.limits.get(each.key, NO_LIMIT)
        if not limit.by:
            limit = NO_LIMIT  # a ceiling of ``terms`` is a limit that no user has set
        planned, leaves = numbers[key], leaving.get(key, 0)
        case = VariantCase(found.course, found.rule, whole, key, each.progress, planned, leaves, limit)
        verdicts.append(verdict(case))
    return verdicts


def zeros_of(models: Sequence[ModelReadings], needs: Sequence[Need], policy: Policy) -> list[ScaleToZeroPolicy]:
    """Return whether each model may go to zero, and after how long without a request.

    If no time is given, a model goes sooner where that makes nobody late. Roles go together, and keep the default.
    """
    found = []
    for model, need in zip(models, needs, strict=True):
        zero = policy.scale_to_zero_for(model.key)
        if zero.enabled and not zero.given and not model.key.role:
            zero = replace(zero, retention_seconds=min(zero.retention_seconds, _useless_after(model, need)))
        found.append(zero)
    return found


def _useless_after(model: ModelReadings, need: Need) -> float:
    """Return after how many seconds without a request replicas save their users nothing; infinite if they always do.

    A replica that waits for requests saves users the wait for a start. Where a start that takes half as long again as
    those of its pods did is within the objective of the first token, it saves them nothing. Then four scrapes without a
    request are enough.
    """
    pods = [pod for each in model.variants for pod in each.replicas]
    starts = [pod.start_seconds for pod in pods if pod.start_seconds is not None]
    patience = min([aim.objectives.ttft_seconds for aim in need.aims.values()], default=0.0)
    if SLOW_START * max(starts, default=math.inf) > patience:
        return math.inf
    between = max([pod.scrape_seconds or 0.0 for pod in pods], default=0.0)
    return max(_SHORTEST_IDLE_SECONDS, _SCRAPES_OF_IDLE * between)


def settled_or_zero(
    models: Sequence[ModelReadings],
    needs: Sequence[Need],
    settled: Sequence[list[Verdict]],
    zeros: Sequence[ScaleToZeroPolicy],
    now: float,
) -> list[list[Verdict]]:
    """Return the verdicts on the variants of all models, those of idle models that go to zero replaced.

    The roles of a model go to zero together, when nothing objects in any of them.
    """
    if not any(zero.enabled for zero in zeros):
        return list(settled)
    objections: list[tuple[str, bool]] = []
    of_roles: dict[ModelKey, str] = {}
    for model, need, verdicts, zero in zip(models, needs, settled, zeros, strict=True):
        asked = zip(model.variants, verdicts, strict=True)
        more = [each.key.name for each, one in asked if one.number > each.progress.variant.current_replicas]
        objection = ("", False)
        if zero.enabled and model.others and not model.key.role:
            objection = ("its role is not known, so it could not be started again", True)
        elif zero.enabled:
            objection = why_not_zero(model, need, zero, more, now)
        objections.append(objection)
        if words := objections[-1][0]:
            of_roles.setdefault(model.key.whole, f"{model.key.role or 'a variant'}: {words}")
    concluded = []
    for model, verdicts, zero, (words, surprising) in zip(models, settled, zeros, objections, strict=True):
        if not zero.enabled:
            concluded.append(verdicts)
        elif reason := words or of_roles.get(model.key.whole, ""):
            concluded.append([replace(each, not_zero=reason, surprising=surprising) for each in verdicts])
        else:
            concluded.append([Verdict(Rule.IDLE, 0, 0) for _ in verdicts])
    return concluded


def remembered(
    memory: ModelMemory,
    need: Need,
    found: Terms,
    verdicts: Sequence[Verdict],
    decisions: Sequence[Decision],
    now: float,
) -> ModelMemory:
    """Return the memory of a model with the demand at which it grows or shrinks.

    Only an analyzer that counts replicas needs this: no other one would answer the same demand twice.
    """
    answered = memory.answered if found.coming or found.course is Course.HOLD else None
    shrunk = memory.shrunk
    if need.unit == REPLICAS and found.course in {Course.GROW, Course.SHRINK}:
        rules = {verdict.rule for verdict in verdicts}
        if Rule.GROWS in rules:
            answered = max(answered or 0.0, need.demand)
        if Rule.SHRINKS in rules:
            shrunk = Shrink(sum([decision.desired for decision in decisions]), need.demand, now)
    if answered == memory.answered and shrunk is memory.shrunk:
        return memory
    return replace(memory, shrunk=shrunk, answered=answered)


def _enough(model: ModelReadings, need: Need) -> bool:
    """Tell whether the serving replicas less one would suffice, so that an unfinished growth is not needed."""
    if not any(each.progress.base > each.progress.current for each in model.variants):
        return False  # there is none
    if not counted(model, need) or need.objection or not math.isfinite(need.sufficient):
        return False
    carried = [(each.progress.serving, need.of(each.key)) for each in model.variants]
    smallest = min([each for _, each in carried if each > 0], default=math.inf)
    return sum([count * each for count, each in carried]) - smallest >= need.sufficient


def _replaces(variants: Sequence[VariantReadings], numbers: Mapping[VariantKey, int], share: float) -> bool:
    """Tell whether the planned numbers save more than the move to them costs: a share of the price of new replicas."""
    changes = [(numbers[each.key] - each.progress.base, each.progress.variant.cost) for each in variants]
    return sum([change * price * (1 + share * (change > 0)) for change, price in changes]) < 0


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
        return progress.variant.cost, progress.waiting, progress.level, each.rank, each.key

    leaving: dict[VariantKey, int] = {}
    for each in sorted(model.variants, key=dearest, reverse=True):
        planned = each.progress.base - numbers[each.key] if each.key in found.free else 0
        count = int(min(planned, allowed if leaving else max(allowed, each.progress.step)))
        if count >= each.progress.step and allowed > 0:
            leaving[each.key] = count
            allowed -= count
    return leaving


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
