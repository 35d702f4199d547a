"""Models as the token analyzer sees them: a test names only what it is about."""

from __future__ import annotations

from typing import Any

from tests.builders import NAMESPACE, NOW, sample
from tests.builders import variant as build_variant
from wva.decide.analyze.saturation import VariantReport
from wva.decide.analyze.tokens import TokenInputs, analyze_tokens
from wva.decide.settling import Moment, progress_of
from wva.model.capacity import LearnedCapacity, ModelCapacity
from wva.model.memory import VariantMemory
from wva.model.metrics import EngineSignals, ReplicaMetrics, Sample
from wva.model.policy import SaturationPolicy
from wva.model.snapshot import SchedulerQueue
from wva.model.variant import ModelKey, Variant, VariantKey

MODEL = ModelKey(NAMESPACE, "m")
DEADLINE_SECONDS = 600.0
LEARNED_AGO_SECONDS = 3600.0


def pod(
    name: str = "a-0",
    *,
    kv: float | Sample | None = 0.5,
    queue: float | Sample | None = 0,
    size: float | Sample | None = 16_000,
    request: tuple[float, float] | None = (100, 50),
    **signals: float | Sample | None,
) -> ReplicaMetrics:
    """Return a Ready pod; ``request`` is the mean prompt and answer in tokens, None when nothing has finished."""
    prompt, answer = request or (None, None)
    engine = EngineSignals(
        kv_capacity_tokens=sample(size),
        input_tokens=sample(prompt),
        output_tokens=sample(answer),
        **{key: sample(value) for key, value in signals.items()},
    )
    return ReplicaMetrics(name, VariantKey(NAMESPACE, name.rsplit("-", 1)[0]), sample(kv), sample(queue), engine)


def report(
    *pods: ReplicaMetrics, variant: Variant | None = None, entry: VariantMemory | None = None, **fields: Any
) -> VariantReport:
    """Return a variant whose replicas are these pods, all Ready, unless fields say otherwise."""
    name = pods[0].variant.name if pods else "a"
    built = variant or build_variant(name, replicas=fields.pop("replicas", len(pods)), **fields)
    moment = Moment(NOW, DEADLINE_SECONDS)
    return VariantReport(progress_of(built, replicas=pods, entry=entry, moment=moment), pods)


def long_known(**fields: Any) -> LearnedCapacity:
    """Return what is known of a model that has been looked at for an hour."""
    return LearnedCapacity(MODEL, NOW - LEARNED_AGO_SECONDS, **fields)


def analyzed(
    *reports: VariantReport,
    learned: LearnedCapacity | None = None,
    now: float = NOW,
    queue: tuple[float | Sample | None, float | Sample | None] | None = None,
    failure: str | None = None,
    **thresholds: float,
) -> tuple[ModelCapacity, LearnedCapacity]:
    """Analyse a model that has been known for long, unless told otherwise."""
    waiting = None if queue is None else SchedulerQueue(MODEL, sample(queue[0]), sample(queue[1]))
    return analyze_tokens(
        MODEL,
        inputs=TokenInputs(reports, queue=waiting, failure=failure),
        policy=SaturationPolicy(**thresholds),
        learned=learned or long_known(),
        now=now,
    )


def capacity(*reports: VariantReport, **given: Any) -> ModelCapacity:
    """Return the result of an analysis alone."""
    return analyzed(*reports, **given)[0]
