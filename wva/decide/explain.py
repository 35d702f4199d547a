"""Step 6: the sentences. This module alone turns verdicts into decisions with words, as they are published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wva.decide.amounts import replicas
from wva.decide.failed import Load, asleep
from wva.decide.measure.need import REPLICAS, Need
from wva.decide.progress import Progress, clocked
from wva.decide.rules import Course, Rule, Terms, Verdict
from wva.decide.trust import ModelReadings, VariantReadings
from wva.model.decision import (
    ENGINES_READABLE,
    HOLD_REASONS,
    NO_LIMIT,
    ROLE_LIMIT,
    Decision,
    Limit,
    MetricsVerdict,
    Reason,
    Source,
    Step,
)
from wva.model.memory import VariantMemory
from wva.model.records import replace
from wva.model.trouble import TroubleReason, some_of
from wva.model.variant import ModelKey

_CHEAPEST: Final = "the cheapest numbers have {} of"  # the dearest variant need not be among those that shrink


def explain(
    model: ModelReadings,
    need: Need,
    model_terms: Terms,
    verdicts: Sequence[Verdict],
    *,
    gpus: str = "",
    binding: ModelKey | None = None,
) -> list[Decision]:
    """Return the decisions on the variants of a model, in their order.

    ``gpus`` says why the GPUs are not known. ``binding`` is the role that keeps the model from serving more.
    """
    shared, decisions = _shared(model, need, model_terms, verdicts), []
    for readings, verdict in zip(model.variants, verdicts, strict=True):
        progress, variant, held = readings.progress, readings.progress.variant, need.hold
        published, previous, number = progress.published, progress.previous, verdict.number
        if held is not None:
            source = Source.CURRENT_REPLICAS if previous is None else Source.PREVIOUS_DESIRED
            reason, message = held.reason, f"{held.message}; keeping {published} ({source.value})"
        else:
            reason, message = verdict.rule.reason, _sentence(model, need, model_terms, readings, verdict, shared)
            source = Source.MEASURED
            if reason in HOLD_REASONS:
                source = Source.CURRENT_REPLICAS if previous is None else Source.HELD
        message = model.key.with_role(message)
        measured = model.key.with_role(need.summary) if held is None else message
        steps = [Step("measure", measured, published, published)]
        limit = verdict.limit
        if limit.fewer and limit.by != variant.bounds.ceiling_origin:
            cause = f"{limit.by}: {gpus}" if gpus else limit.by
            message = f"limited to {number}: {replicas(limit.fewer)} fewer than wanted ({cause}); {message}"
            kind = Reason.ROLE_LIMITED if limit.by.startswith(ROLE_LIMIT) else Reason.GPU_LIMITED
            reason = reason if reason in HOLD_REASONS else kind
        elif limit.fewer:
            message = f"limited by {limit.by}: {replicas(limit.fewer)} fewer than wanted; {message}"
        moved = model_terms.course in {Course.GROW, Course.SHRINK} or verdict.rule in {Rule.REPLACES, Rule.REPLACED}
        if moved or limit.fewer:
            steps.append(Step("allocate", shared, published, verdict.planned, limit.by, limit.fewer))
        allowed, bound_limit = variant.bounds.clamp(number), NO_LIMIT
        if allowed != number:
            side, bound, origin = "below", "minimum", variant.bounds.minimum_origin
            if allowed < number:
                side, bound, origin = "above", "maximum", variant.bounds.ceiling_origin
                bound_limit = Limit(origin, number - allowed)
            message = f"{number} is {side} the {bound} {allowed} of {origin}; {message}"
            reason = reason if reason in HOLD_REASONS else Reason.BOUNDED
        if binding is not None:
            message = f"{message}; {binding.role} keeps the model from serving more"
        steps.append(Step("settle", message, steps[-1].after, allowed, bound_limit.by, bound_limit.fewer))
        if verdict.not_zero:
            words = f"not to zero: {verdict.not_zero}"
            steps.append(Step("zero", words, allowed, allowed))
            # Users do not expect that an idle model stays above zero, so the message says why.
            message = f"{message}; {words}" if verdict.surprising else message
        decisions.append(
            Decision(
                variant.key,
                variant.model,
                variant.known_accelerator,
                variant.cost,
                variant.current_replicas,
                allowed,
                previous,
                reason,
                message,
                source,
                readings.verdict,
                readings.coverage,
                tuple(steps),
                readings.spare_kv or 0.0,
                engines=_engines(model, need, readings),
                aim=need.aims.get(variant.key),
            )
        )
    return decisions


def load_of(model: ModelReadings, need: Need, decisions: Sequence[Decision]) -> Load | None:
    """Return the demand for a model and what its replicas carry, None if its demand is no rate."""
    if need.rate is None or need.hold is not None:
        return None
    serving = need.carried({variant.key: variant.progress.serving for variant in model.variants})
    desired = need.carried({decision.key: decision.desired for decision in decisions})
    return Load(need.demand, need.rate.error, serving, desired)


def to_publish(decision: Decision, progress: Progress, *, now: float) -> tuple[Decision, VariantMemory]:
    """Return the decision with its clock, and what the next cycle must remember of the variant.

    A variant that stays at zero has neither number nor clock. Its message still names a limit.
    """
    if progress.variant.active or decision.desired > 0:
        return clocked(decision, progress, now=now)
    resting, forgotten = asleep(progress.variant)
    if decision.limits:
        resting = replace(resting, message=f"{resting.message}; {decision.message}", steps=decision.steps)
    return resting, forgotten


def _engines(model: ModelReadings, need: Need, readings: VariantReadings) -> MetricsVerdict:
    """Return what is wrong with the engines of a variant.

    Series are missing, pods sleep, models share a name, it is not known which stages of a request the pods compute, or
    pods are slower than others.
    """
    missing = f"the percentage analyzer decides instead: {need.unusable}" if need.unusable else ""
    count = len(readings.dormant)
    pods = f"{count} Ready {'pod sleeps and counts' if count == 1 else 'pods sleep and count'} as no replica"
    dormant = f"{pods}: {some_of([pod.pod for pod in readings.dormant])}" if count else ""
    shared = next(filter(None, [pod.namesakes for pod in readings.ready_pods]), "")
    slow = need.slow.get(readings.key, "")
    problems = {
        TroubleReason.ENGINE_SERIES_UNUSABLE: missing,
        TroubleReason.ENGINES_DORMANT: dormant,
        TroubleReason.MODEL_NAME_SHARED: shared,
        TroubleReason.ROLE_UNKNOWN: _roleless(model),
        TroubleReason.ENGINES_SLOW: slow,
    }
    reason = next((reason for reason, words in problems.items() if words), None)
    if reason is None:
        return ENGINES_READABLE
    return MetricsVerdict(available=False, reason=reason.value, message=_joined(*problems.values()))


def _roleless(model: ModelReadings) -> str:
    """Return in words that variants do not say their role although others of the model do; else nothing."""
    if model.key.role or not model.others:
        return ""
    others = " and ".join(model.others)
    words = f"its pods say no known role, and other variants of the model are {others}"
    return f"{words}: it is sized by the requests of its own pods alone"


def _shared(model: ModelReadings, need: Need, model_terms: Terms, verdicts: Sequence[Verdict]) -> str:
    """Return the words about the whole model: what it needs, and which variants grow or shrink."""
    if model_terms.course in {Course.HOLD, Course.STAY}:
        return need.summary
    pairs = list(zip(model.variants, verdicts, strict=True))
    if model_terms.course is Course.GROW:
        wish = (
            need.wish or f"{need.required:.4g} {need.unit} needed, {model_terms.present:.4g} there ({_figures(need)})"
        )
        growing = [(variant, verdict) for variant, verdict in pairs if verdict.rule is Rule.GROWS]
        if growing:
            added = sum(verdict.number - variant.progress.level for variant, verdict in growing)
            choice = "the cheapest that can grow:"
            if need.unit != REPLICAS:
                choice = _CHEAPEST.format("more")
            elif any(variant.progress.waiting or variant.progress.silent for variant, _ in growing):
                choice = "the only variants left:"
            return f"{wish}; {replicas(added)} more, {choice} {_names(growing)}"
        if any(verdict.rule is Rule.NO_CANDIDATE for verdict in verdicts):
            obstacles = "; ".join(f"{variant.key.name}: {_obstacle(variant.progress, need)}" for variant, _ in pairs)
            return f"{wish}, but no variant can grow ({obstacles})"
        held_by = next((verdict.limit.by for verdict in verdicts if verdict.rule is Rule.ROLE_LIMITED), "")
        if held_by:
            return f"{wish}, but {held_by.removeprefix(ROLE_LIMIT)} can use no more"
        if any(verdict.rule is Rule.NO_GPUS for verdict in verdicts):
            return f"{wish}, but there are no GPUs for it"
        return f"{wish}, {need.deferred}" if need.deferred else wish
    if model_terms.course is Course.WAIT:
        if model_terms.rule is Rule.SUFFICES:
            coming = f"{replicas(model_terms.coming)} on the way" if model_terms.coming else "those that have just come"
            return f"{need.wish}, but {coming} would be enough"
        if model_terms.rule is Rule.ANSWERED:
            words = (
                f"what is under way ({replicas(model_terms.coming)}) was asked for it, and demand has not risen since"
            )
            return f"{need.wish or need.summary}; {words}"
        return f"{need.wish}, {need.deferred}"
    changes = [(variant.key.name, verdict.planned - variant.progress.base) for variant, verdict in pairs]
    if any(verdict.rule is Rule.REPLACES for _, verdict in pairs):
        come = ", ".join(f"{change} of {name}" for name, change in changes if change > 0)
        leave = ", ".join(f"{-change} of {name}" for name, change in changes if change < 0)
        return _joined(f"{come} would carry the load for less in place of {leave}", need.summary)
    going = [(variant, verdict) for variant, verdict in pairs if verdict.rule is Rule.SHRINKS]
    if going:
        remaining = sum(variant.progress.serving for variant, _ in pairs)
        remaining -= sum(variant.progress.base - verdict.number for variant, verdict in going)
        choice = "dearest variant that can shrink:" if need.unit == REPLICAS else _CHEAPEST.format("fewer")
        return _joined(f"{replicas(remaining)} can carry the load", f"{choice} {_names(going)}", _figures(need))
    return need.summary


def _figures(need: Need) -> str:
    """Return the figures of a need, with the requests that wait."""
    waiting = 0.0 if need.rate is None else need.rate.backlog
    return f"{need.summary}, {waiting:.4g} waiting" if waiting >= 1.0 else need.summary


def _names(changing: Sequence[tuple[VariantReadings, Verdict]]) -> str:
    return ", ".join(f"{variant.key.name} (cost {variant.progress.variant.cost:g})" for variant, _ in changing)


def _joined(*words: str) -> str:
    return "; ".join(filter(None, words))


def _enough(model: ModelReadings, need: Need, noun: str) -> str:
    """Say that there is enough of ``noun``, or, while requests wait, that these are no reason to grow."""
    samples = [pod.queue_length for variant in model.variants for pod in variant.replicas]
    samples += [] if model.queue is None else [model.queue.size]
    waiting = sum([sample.fresh_value or 0.0 for sample in samples])
    waiting = waiting if need.rate is None else max(waiting, need.rate.backlog)
    return f"{waiting:.4g} waiting in queues, which asks for no more replicas" if waiting > 0 else f"enough {noun}"


def _sentence(
    model: ModelReadings, need: Need, model_terms: Terms, readings: VariantReadings, verdict: Verdict, shared: str
) -> str:
    """Return why a variant has its number."""
    progress, rule = readings.progress, verdict.rule
    if rule is Rule.STEADY:
        ignored, base = "", progress.base
        if progress.step > 1 and base == progress.current and base > progress.lowest:
            counts = {variant.key: variant.progress.base for variant in model.variants}
            if need.carried(counts | {readings.key: base - 1}) >= need.sufficient:
                ignored = f"1 replica less would do, but its scaler ignores a change of less than {progress.step}"
        return _joined(_enough(model, need, "capacity"), ignored, need.objection or need.summary)
    if rule is Rule.OBJECTED:
        return need.objection
    coming = progress.waiting + progress.silent
    if rule is Rule.OWN_PENDING:
        return f"{replicas(progress.in_flight)} pending; {shared}"
    if rule is Rule.SHRINK_WITHDRAWN:
        return f"{shared}, so the unfinished shrink to {progress.base} is withdrawn"
    if rule is Rule.SIBLING_KEPT:
        names = ", ".join([variant.key.name for variant in model.variants if variant.progress.outstanding])
        return f"{shared}; withdrawing the unfinished shrink of {names} covers that"
    if rule is Rule.GROWTH_WITHDRAWN:
        if progress.overdue:
            return f"{replicas(progress.base)} not reached in time and no longer needed"
        instead = "other variants cover the need" if model_terms.course is Course.GROW else "fewer than now would do"
        return f"{replicas(progress.base)} no longer needed: {instead}"
    if rule is Rule.INCOMPLETE:
        gaps = "; ".join(
            f"{variant.key.name}: {variant.verdict.message}" for variant in model.variants if variant.unread
        )
        return f"nothing shrinks on incomplete metrics ({gaps})"
    if rule is Rule.SHRINK_UNFINISHED:
        cause = "the others carry the load" if model.complete else "held until Ready pods and replicas agree"
        return _joined(f"{replicas(progress.outstanding)} still to go", cause, need.summary)
    if rule is Rule.NOT_READY:
        if progress.overdue:
            return f"{replicas(progress.waiting)} not ready within {progress.allowed}, no longer counted on"
        return f"{replicas(coming)} pending" if progress.waiting else f"{replicas(coming)} new and not reporting yet"
    if rule is Rule.SIBLING_PENDING:
        return f"nothing shrinks while replicas of {', '.join(model_terms.concerned)} are pending"
    if rule is Rule.SIBLING_UNFINISHED:
        return f"waits for the shrink of {', '.join(model_terms.concerned)}"
    if rule is Rule.UNCOUNTED:
        words = "nothing shrinks until Ready pods and replicas agree"
        return _joined(_enough(model, need, "spare"), words, need.summary)
    if rule is Rule.AT_FLOOR:
        tolerance = "" if progress.step == 1 else f", and its scaler ignores a step of less than {progress.step}"
        return f"{_enough(model, need, 'spare')}; it cannot go below {max(1, progress.lowest)}{tolerance}"
    if rule is Rule.KEPT:
        return _joined("fewer replicas would carry the present demand", model_terms.cause, need.summary)
    if rule is Rule.IDLE:
        return "no request within the retention period and none in progress"
    return shared


def _obstacle(progress: Progress, need: Need) -> str:
    """Return what keeps a variant from growing."""
    count = progress.variant.unschedulable_pods
    if count:
        return f"{count} {'pod' if count == 1 else 'pods'} without a node to run on"
    bounds, obstacle = progress.variant.bounds, progress.blocked(skips=True) or progress.bounded()
    if obstacle == "waiting":
        return f"{replicas(progress.waiting)} {'stuck' if progress.overdue or progress.late else 'pending'}"
    if obstacle == "silent":
        return f"{replicas(progress.silent)} new and not reporting yet"
    if obstacle == "maximum":
        return f"at the maximum {bounds.maximum}"
    if obstacle == "tolerance":
        ignored = f"its scaler ignores a step of {bounds.tolerance:.0%} or less"
        return f"{ignored}, and its maximum {bounds.maximum} is no further away"
    if not need.of(progress.variant.key) > 0:
        return "what one of its replicas carries is not known"
    return "no GPUs for it"
