"""``compatibility: v0.5``: the numbers of the Go controller from our Snapshot (docs/design/compatibility-v05.md).

Three things come back: the target arithmetic with its transition rule; a sample that is not fresh counts as 0 beside a
fresh or an impossible (NaN) one; and without a decision the number in the status is published, also when it is 0. Where
scale to zero is switched on, the enforcer that knows finished requests only comes back too. Conditions, sources, bounds
and the accelerator ``unknown`` stay ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wva.decide.analyze import saturation_v05
from wva.decide.analyze.saturation import VariantReport
from wva.decide.assessment import ModelAssessment
from wva.decide.assessment_v05 import ModelLoad, ReplicaLoad, Target, VariantState
from wva.decide.enforce_v05 import idle_targets, kept_targets
from wva.decide.optimize import one_step_v05
from wva.model.decision import Decision, Reason, Source
from wva.model.metrics import ReplicaMetrics, SampleState
from wva.model.policy import ScaleToZeroPolicy
from wva.model.snapshot import RequestCounts


def decide_v05(
    model: ModelAssessment, drafts: tuple[Decision, ...], *, reports: Sequence[VariantReport]
) -> tuple[Decision, ...]:
    """Return the drafts with the numbers of v0.5. Drafts and reports are in the order of the model's variants."""
    loads = [load for report in reports for load in _loads(report)]
    if model.hold is not None and (model.hold.reason is Reason.PROMETHEUS_ERROR or not loads):
        return tuple(
            _without_decision(draft, report, model.hold.reason) for draft, report in zip(drafts, reports, strict=True)
        )
    analysis = saturation_v05.analyze(loads, model.policy)
    found = {
        target.variant: target for target in one_step_v05.targets(analysis, [_state(report) for report in reports])
    }
    return tuple(
        _with_target(draft, found[draft.key.name], analysis)
        if draft.key.name in found
        else _without_decision(draft, report, Reason.METRICS_MISSING)
        for draft, report in zip(drafts, reports, strict=True)
    )


def enforce_v05(
    decisions: tuple[Decision, ...], policy: ScaleToZeroPolicy, counts: RequestCounts | None
) -> tuple[Decision, ...]:
    """Return the decisions of a model as the old enforcer leaves them; it knew those with a target only.

    The old enforcer took a time without samples in Prometheus for a time without requests. This function does not.
    """
    targets = {entry.key.name: entry.desired for entry in decisions if entry.reason is Reason.COMPATIBILITY}
    if policy.enabled:
        finished = counts.finished if counts is not None and counts.covered else None
        changed, applied = idle_targets(targets, finished=finished)
        reason, words = Reason.IDLE, f"no request finished within {policy.retention_seconds:g} s"
    else:
        costs = {entry.key.name: entry.cost for entry in decisions}
        changed, applied = kept_targets(targets, costs)
        reason, words = Reason.MODEL_MINIMUM, "the model may not go to zero"
    return tuple(
        decision.with_step("enforce", reason, words, changed[decision.key.name])
        if applied and decision.key.name in changed
        else decision
        for decision in decisions
    )


def _with_target(draft: Decision, target: Target, analysis: ModelLoad) -> Decision:
    words = f"{target.reason}; {analysis.scale_up_reason}" if analysis.scale_up_reason else target.reason
    decision = replace(draft, spare_capacity=target.spare_capacity, source=Source.MEASURED)
    return decision.with_step("optimize", Reason.COMPATIBILITY, words, target.target)


def _without_decision(draft: Decision, report: VariantReport, reason: Reason) -> Decision:
    """Return the number of the status, 0 included.

    The original published nothing for a variant that it had never decided on; a series is owed all the same, and it
    says what exists.
    """
    variant = report.progress.variant
    number = max(0, variant.status_desired or 0)
    source, origin = Source.PREVIOUS_DESIRED, "the number in the status"
    if not number and not variant.status_accelerator:
        number, source, origin = variant.current_replicas, Source.CURRENT_REPLICAS, "what exists, never decided on"
    words = f"{draft.metrics.message}; publishing {number}, {origin}"
    decision = replace(draft, accelerator=variant.status_accelerator or draft.accelerator, source=source)
    return decision.with_step("optimize", reason, words, number)


def _state(report: VariantReport) -> VariantState:
    variant = report.progress.variant
    return VariantState(
        variant=variant.key.name,
        current=variant.current_replicas,
        desired=variant.status_desired or 0,
        pending=variant.pending_replicas,
        gpus_per_replica=variant.gpus_per_replica,
    )


def _loads(report: VariantReport) -> list[ReplicaLoad]:
    variant = report.progress.variant
    return [_load(replica, variant.accelerator, variant.cost) for replica in report.replicas if _reported(replica)]


def _reported(replica: ReplicaMetrics) -> bool:
    """Tell whether the original counted the pod: any answer made it a replica, and it read NaN as 0."""
    return replica.reports or SampleState.INVALID in {replica.kv_usage.state, replica.queue_length.state}


def _load(replica: ReplicaMetrics, accelerator: str, cost: float) -> ReplicaLoad:
    return ReplicaLoad(
        pod=replica.pod,
        variant=replica.variant.name,
        accelerator=accelerator,
        cost=cost,
        kv_usage=replica.kv_usage.fresh_value or 0.0,
        queue_length=replica.queue_length.fresh_value or 0.0,
    )
