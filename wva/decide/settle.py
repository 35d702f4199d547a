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

_SHORTEST_IDLE_SECONDS: Final = 30.0
_SCRAPES_OF_IDLE: Final = 2.0
_STARTS_OF_IDLE: Final = 0.2
"""How long an idle replica is worth its cost, in starts.

If seconds, minutes and hours until the next request are equally likely, the chance that it comes within the next second
is 1 / (t ln(3 h / t)) after t seconds without one. To stay is cheaper than another start while that times the length of
a start is above 1: for a seventh of a start of one minute, and nearly a quarter of one of ten minutes.
"""


def settle(model: ModelReadings, need: Need, model_terms: Terms, plan: Plan) -> list[Verdict]:
    """Return the verdicts on the variants of a model, in their order, before the question whether it goes to zero."""
    variants = model.variants
    numbers = {variant.key: plan.numbers.get(variant.key, variant.progress.base) for variant in variants}
    leaving = _leaving(model, need, model_terms, numbers)
    model_case = ModelCase(
        model_terms.concerned,
        deferred=bool(need.deferred),
        grows=model_terms.course is Course.GROW
        and any(numbers[variant.key] > variant.progress.level for variant in variants),
        covered=model_terms.course is Course.GROW
        and model.key not in plan.missing
        and any(variant.progress.returns for variant in variants),
        enough=_enough(model, need),
        unread=not (need.recalls or model.complete) and any(variant.unread for variant in variants),
        shrinks=bool(leaving),
        replaces=model_terms.course is Course.REPLACE and _replaces(variants, numbers, move_share(need)),
        progresses=[variant.progress for variant in variants],
    )
    verdicts = []
    for variant in variants:
        key, limit = variant.key, plan.limits.get(variant.key, NO_LIMIT)
        if not limit.by:
            limit = NO_LIMIT  # a ceiling of ``want`` is a limit that no user has set
        planned, leaves = numbers[key], leaving.get(key, 0)
        case = VariantCase(
            model_terms.course, model_terms.rule, model_case, key, variant.progress, planned, leaves, limit
        )
        verdicts.append(verdict(case))
    return verdicts


def zeros_of(models: Sequence[ModelReadings], needs: Sequence[Need], policy: Policy) -> list[ScaleToZeroPolicy]:
    """Return whether each model may go to zero, and after how long without a request.

    If no time is given, a model goes sooner where that makes nobody late. Roles go together, and keep the default.
    """
    zeros = []
    for model, need in zip(models, needs, strict=True):
        zero = policy.scale_to_zero_for(model.key)
        if zero.enabled and not zero.given and not model.key.role:
            zero = replace(zero, retention_seconds=min(zero.retention_seconds, _useless_after(model, need)))
        zeros.append(zero)
    return zeros


def _useless_after(model: ModelReadings, need: Need) -> float:
    """Return after how many seconds without a request replicas save their users no wait; infinite if they always do.

    A replica that waits for requests saves users the wait for a start. If even a start that takes half as long again as
    those of its pods did is within the objective for the first token, it saves them nothing. Then it waits only while
    it costs less than another start is likely to, and for two scrapes that show no request.
    """
    pods = [pod for variant in model.variants for pod in variant.replicas]
    slowest = max([pod.start_seconds for pod in pods if pod.start_seconds is not None], default=math.inf)
    patience = min([aim.objectives.ttft_seconds for aim in need.aims.values()], default=0.0)
    if SLOW_START * slowest > patience:
        return math.inf
    between = max([pod.scrape_seconds or 0.0 for pod in pods], default=0.0)  # None: no longer than between two cycles
    return max(_SHORTEST_IDLE_SECONDS, _SCRAPES_OF_IDLE * between, _STARTS_OF_IDLE * slowest)


def settled_or_zero(
    models: Sequence[ModelReadings],
    needs: Sequence[Need],
    settled: Sequence[list[Verdict]],
    zeros: Sequence[ScaleToZeroPolicy],
    now: float,
) -> list[list[Verdict]]:
    """Return the verdicts on the variants of all models; those of idle models that go to zero are replaced.

    The roles of a model go to zero together, when there is no objection in any of them.
    """
    if not any(zero.enabled for zero in zeros):
        return list(settled)
    objections: list[tuple[str, bool]] = []
    role_objections: dict[ModelKey, str] = {}
    for model, need, verdicts, zero in zip(models, needs, settled, zeros, strict=True):
        pairs = zip(model.variants, verdicts, strict=True)
        growing = [
            variant.key.name for variant, verdict in pairs if verdict.number > variant.progress.variant.current_replicas
        ]
        objection = ("", False)
        if zero.enabled and model.others and not model.key.role:
            objection = ("its role is not known, so it could not be started again", True)
        elif zero.enabled:
            objection = why_not_zero(model, need, zero, growing, now)
        objections.append(objection)
        if words := objections[-1][0]:
            role_objections.setdefault(model.key.whole, f"{model.key.role or 'a variant'}: {words}")
    concluded = []
    for model, verdicts, zero, (words, surprising) in zip(models, settled, zeros, objections, strict=True):
        if not zero.enabled:
            concluded.append(verdicts)
        elif reason := words or role_objections.get(model.key.whole, ""):
            concluded.append([replace(verdict, not_zero=reason, surprising=surprising) for verdict in verdicts])
        else:
            concluded.append([Verdict(Rule.IDLE, 0, 0) for _ in verdicts])
    return concluded


def remembered(
    memory: ModelMemory,
    need: Need,
    model_terms: Terms,
    verdicts: Sequence[Verdict],
    decisions: Sequence[Decision],
    now: float,
) -> ModelMemory:
    """Return the memory of a model with the demand at which it grows or shrinks.

    Only an analyzer that counts replicas needs this: the others would not answer the same demand twice.
    """
    answered = memory.answered if model_terms.coming or model_terms.course is Course.HOLD else None
    shrunk = memory.shrunk
    if need.unit == REPLICAS and model_terms.course in {Course.GROW, Course.SHRINK}:
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
    if not any(variant.progress.base > variant.progress.current for variant in model.variants):
        return False  # there is none
    if not counted(model, need) or need.objection or not math.isfinite(need.sufficient):
        return False
    supply = [(variant.progress.serving, need.of(variant.key)) for variant in model.variants]
    smallest = min([capacity for _, capacity in supply if capacity > 0], default=math.inf)
    return sum([count * capacity for count, capacity in supply]) - smallest >= need.sufficient


def _replaces(variants: Sequence[VariantReadings], numbers: Mapping[VariantKey, int], share: float) -> bool:
    """Tell whether the planned numbers save more than the move to them costs: a share of the price of new replicas."""
    changes = [(numbers[variant.key] - variant.progress.base, variant.progress.variant.cost) for variant in variants]
    return sum([change * price * (1 + share * (change > 0)) for change, price in changes]) < 0


def _leaving(
    model: ModelReadings, need: Need, model_terms: Terms, numbers: Mapping[VariantKey, int]
) -> dict[VariantKey, int]:
    """Return how many replicas of each variant go in this cycle, of those that shrink.

    At most ``most_removed`` go, or one step of the scaler. The dearest variant shrinks first; at equal price the one
    with most replicas that do not serve, then the largest.
    """
    if model_terms.course is not Course.SHRINK:
        return {}
    allowed: float = math.inf if need.most_removed is None else need.most_removed

    def dearest(variant: VariantReadings) -> tuple[object, ...]:
        progress = variant.progress
        return progress.variant.cost, progress.waiting, progress.level, variant.rank, variant.key

    leaving: dict[VariantKey, int] = {}
    for variant in sorted(model.variants, key=dearest, reverse=True):
        planned = variant.progress.base - numbers[variant.key] if variant.key in model_terms.free else 0
        count = int(min(planned, allowed if leaving else max(allowed, variant.progress.step)))
        if count >= variant.progress.step and allowed > 0:
            leaving[variant.key] = count
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
    queued = math.fsum([pod.queue_length.fresh_value or 0.0 for variant in model.variants for pod in variant.replicas])
    if queued > 0:
        return f"{queued:g} requests wait", False
    if not counts.covered:
        words = f"the history of requests covers {counts.covered_seconds:g} of {counts.retention_seconds:g} s"
        return words, True
    active = [variant.progress for variant in model.variants if variant.progress.variant.active]
    moving = sorted(progress.variant.key.name for progress in active if progress.since is not None) or sorted(growing)
    if moving:
        return f"unfinished change of {', '.join(moving)}", False
    started = [progress.variant.activated_at for progress in active if progress.variant.activated_at is not None]
    age = now - max(started, default=-math.inf)
    if age < policy.retention_seconds:
        return f"started {max(0.0, age):.0f} s ago, gets {policy.retention_seconds:g} s", False
    return "", False
