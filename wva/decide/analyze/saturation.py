"""The percentage analyzer: KV usage and queue length of the replicas in, the assessment of their model out.

A replica is saturated when a fresh KV usage reaches K or a fresh queue length reaches Q. Four things differ from v0.5.1
(docs/decisions.md#departures-from-v051, rows 6, 7, 14 and 23): saturated replicas count in the means with a spare of 0;
a sample that is not fresh is unknown instead of 0; variants without samples belong to the model; and a model whose
reporting replicas are all saturated wants to grow with any triggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wva.decide.analyze.evidence import absence, coverage, verdict
from wva.decide.assessment import ModelAssessment, VariantAssessment
from wva.decide.settling import Progress
from wva.decide.spare import Evidence, Spare
from wva.model.decision import Decision, Reason, Source
from wva.model.metrics import SAMPLE_WINDOW_SECONDS, ReplicaMetrics
from wva.model.policy import SaturationPolicy
from wva.model.variant import UNKNOWN_ACCELERATOR, ModelKey

_SAME_GROWTH_SECONDS: Final = 15.0
"""Replicas that become Ready within this time of each other answer the same growth."""


@dataclass(frozen=True, slots=True)
class VariantReport:
    """Input per active variant: where it stands, and its Ready pods."""

    progress: Progress
    replicas: tuple[ReplicaMetrics, ...]


def assess(
    key: ModelKey, *, reports: Sequence[VariantReport], policy: SaturationPolicy, failure: str | None, now: float
) -> ModelAssessment:
    """Assess one model. ``failure`` says why its samples could not be collected, None when they could.

    ``now`` is in seconds since the epoch.
    """
    replicas = [replica for report in reports for replica in report.replicas]
    newest = _newest(replicas, now)
    return ModelAssessment(
        key=key,
        policy=policy,
        variants=tuple(_assess_variant(report, policy, failure) for report in reports),
        evidence=evidence_of(replicas, policy),
        newest=evidence_of(newest, policy) if newest else None,
        hold=absence(replicas, failure=failure),
    )


def drafts(model: ModelAssessment, *, summary: str | None = None) -> tuple[Decision, ...]:
    """Return a decision per variant that keeps the number published last, and says what was measured.

    ``summary`` says it in the words of another analyzer; None: in those of this one.
    """
    return tuple(_draft(model, variant, summary) for variant in model.variants)


def _assess_variant(report: VariantReport, policy: SaturationPolicy, failure: str | None) -> VariantAssessment:
    kv, queue = _spares(report.replicas, policy)
    return VariantAssessment(
        progress=report.progress,
        coverage=coverage(report.replicas),
        verdict=verdict(report.replicas, failure=failure),
        kv=kv,
        queue=queue,
    )


def evidence_of(replicas: Sequence[ReplicaMetrics], policy: SaturationPolicy) -> Evidence:
    """Return what some replicas of a model report together."""
    kv, queue = _spares(replicas, policy)
    return Evidence(
        kv,
        queue,
        reporting=sum(replica.reports for replica in replicas),
        saturated=sum(_saturated(replica, policy) for replica in replicas),
    )


def _newest(replicas: Sequence[ReplicaMetrics], now: float) -> list[ReplicaMetrics]:
    """Return the reporting replicas that became Ready last, all within a short time, if that is not long ago.

    The samples are maxima over a window. Until it has passed, those of older replicas show the peaks from which the
    newest were to relieve them; only the newest can say whether there are enough replicas now. Empty when all samples
    are of one time, or when it is unknown when the replicas became Ready.
    """
    reporting = [replica for replica in replicas if replica.reports]
    times = [replica.ready_since for replica in reporting if replica.ready_since is not None]
    latest = max(times, default=None)
    if latest is None or now - latest >= SAMPLE_WINDOW_SECONDS:
        return []
    earliest = latest - _SAME_GROWTH_SECONDS
    newest = [replica for replica in reporting if replica.ready_since is not None and replica.ready_since >= earliest]
    return newest if len(newest) < len(reporting) else []


def _spares(replicas: Sequence[ReplicaMetrics], policy: SaturationPolicy) -> tuple[Spare, Spare]:
    kv = (replica.kv_usage.fresh_value for replica in replicas)
    queue = (replica.queue_length.fresh_value for replica in replicas)
    return (
        Spare.of((value for value in kv if value is not None), threshold=policy.kv_cache_threshold),
        Spare.of((value for value in queue if value is not None), threshold=policy.queue_length_threshold),
    )


def _saturated(replica: ReplicaMetrics, policy: SaturationPolicy) -> bool:
    kv, queue = replica.kv_usage.fresh_value, replica.queue_length.fresh_value
    full = kv is not None and kv >= policy.kv_cache_threshold
    return full or (queue is not None and queue >= policy.queue_length_threshold)


def _draft(model: ModelAssessment, assessed: VariantAssessment, summary: str | None) -> Decision:
    progress, variant = assessed.progress, assessed.progress.variant
    hold = model.hold
    fallback = Source.CURRENT_REPLICAS if progress.previous is None else Source.PREVIOUS_DESIRED
    draft = Decision(
        key=variant.key,
        model=variant.model,
        accelerator=variant.accelerator or variant.status_accelerator or UNKNOWN_ACCELERATOR,
        cost=variant.cost,
        current=variant.current_replicas,
        desired=progress.published,
        previous=progress.previous,
        reason=Reason.STEADY,
        message="",
        source=Source.MEASURED if hold is None else fallback,
        metrics=assessed.verdict,
        coverage=assessed.coverage,
        spare_capacity=assessed.kv.mean or 0.0,
    )
    if hold is None:
        return draft.with_step("analyze", Reason.STEADY, summary or _summary(model), draft.desired)
    message = f"{hold.message}; keeping {draft.desired} ({draft.source.value})"
    return draft.with_step("analyze", hold.reason, message, draft.desired)


def _summary(model: ModelAssessment) -> str:
    kv, queue = model.kv.mean, model.queue.mean
    words = [f"{model.reporting} of {model.ready} replicas report, {model.saturated} saturated"]
    if kv is not None:
        words.append(f"mean spare KV {kv:.4g}")
    if queue is not None:
        words.append(f"mean spare queue {queue:.4g}")
    return ", ".join(words)
