"""Models as the token analyzer sees them, with defaults, so that a test names only its own values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tests.builders import NAMESPACE, NOW, sample
from tests.builders import variant as build_variant
from wva.decide.measure.need import Need
from wva.decide.measure.tokens import measure, read, totals
from wva.decide.progress import Moment, progress_of
from wva.decide.trust import ModelReadings, VariantReadings
from wva.model.memory import CapacityBasis, CapacityMemory, LearnedCapacity, Memory, ModelMemory, VariantMemory
from wva.model.metrics import EngineSignals, ReplicaMetrics, Sample
from wva.model.policy import Policy, SaturationPolicy
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
) -> VariantReadings:
    """Return a variant whose replicas are these pods, all Ready, unless fields say otherwise."""
    name = pods[0].variant.name if pods else "a"
    built = variant or build_variant(name, replicas=fields.pop("replicas", len(pods)), **fields)
    moment = Moment(NOW, DEADLINE_SECONDS)
    return VariantReadings(built.key, progress_of(built, replicas=pods, entry=entry, moment=moment), pods)


def long_known(**fields: Any) -> LearnedCapacity:
    """Return the memory of a model that WVA has looked at for an hour."""
    return LearnedCapacity(MODEL, NOW - LEARNED_AGO_SECONDS, **fields)


@dataclass(frozen=True)
class FoundVariant:
    """The result of the analysis for a variant."""

    key: VariantKey
    ready: int
    pending: int
    per_replica: float
    basis: CapacityBasis
    demand: float

    @property
    def utilization(self) -> float:
        """Demand over supply, 0 without any."""
        supply = self.ready * self.per_replica
        return self.demand / supply if supply else 0.0


@dataclass(frozen=True)
class FoundNeed:
    """A need, with two values that follow: what is missing of the coming supply, and the spare of the present one."""

    need: Need
    variants: tuple[FoundVariant, ...]

    def __getattr__(self, name: str) -> Any:
        """Return what the need says."""
        return getattr(self.need, name)

    @property
    def supply(self) -> float:
        """What the replicas carry that serve."""
        return math.fsum(one.ready * one.per_replica for one in self.variants)

    @property
    def anticipated(self) -> float:
        """What they carry with those on their way."""
        return math.fsum((one.ready + one.pending) * one.per_replica for one in self.variants)

    @property
    def utilization(self) -> float:
        """Demand over supply, 0 without any."""
        return self.need.demand / self.supply if self.supply else 0.0

    @property
    def required(self) -> float:
        """What is missing."""
        return max(0.0, self.need.required - self.anticipated)

    @property
    def spare(self) -> float:
        """What may go."""
        return max(0.0, self.supply - self.need.sufficient)


def analyzed(
    *reports: VariantReadings,
    learned: LearnedCapacity | None = None,
    now: float = NOW,
    queue: tuple[float | Sample | None, float | Sample | None] | None = None,
    failure: str | None = None,
    **thresholds: float,
) -> tuple[FoundNeed, LearnedCapacity]:
    """Analyse a model that has been known for long, unless told otherwise."""
    waiting = None if queue is None else SchedulerQueue(MODEL, sample(queue[0]), sample(queue[1]))
    policy, history = SaturationPolicy(**thresholds), ModelMemory(MODEL)
    model = ModelReadings(MODEL, policy, reports, (), None, False, waiting, None, history, failure)
    memory = Memory(capacity=CapacityMemory((learned or long_known(),)))
    (need,), after = measure([model], memory, Policy(), now, {})
    lesson = after.capacity.of(MODEL)
    assert lesson is not None
    ordered = sorted(reports, key=lambda report: report.key)
    variants, _ = read(ordered)
    demands = totals(variants, lambda reading: reading.demand)
    found = []
    for report, demand in zip(ordered, demands, strict=True):
        progress, capacity = report.progress, need.capacities[report.key]
        found.append(
            FoundVariant(report.key, progress.serving, progress.in_flight, capacity.per_replica, capacity.basis, demand)
        )
    return FoundNeed(need, tuple(found)), lesson


def capacity(*reports: VariantReadings, **given: Any) -> FoundNeed:
    """Return the result of an analysis alone."""
    return analyzed(*reports, **given)[0]
