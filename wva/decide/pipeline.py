"""``decide``: Snapshot, Memory, Policy and now in; one Decision per variant and the next Memory out.

Analyze, optimize, enforce, model by model. Pure and independent of the order in which anything is listed: the same
inputs give the same decisions, bit by bit, so that a recorded cycle can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wva.decide.analyze.saturation import VariantReport, assess, drafts
from wva.decide.assessment import ModelAssessment
from wva.decide.compatibility import decide_v05
from wva.decide.enforce import enforce
from wva.decide.optimize.sized import sized
from wva.decide.settling import Moment, progress_of, settle
from wva.model.decision import Decision, MetricsVerdict, Reason, Source, Step
from wva.model.memory import Memory, VariantMemory
from wva.model.metrics import Coverage, ReplicaMetrics
from wva.model.policy import Compatibility, Policy
from wva.model.snapshot import Snapshot
from wva.model.variant import UNKNOWN_ACCELERATOR, ModelKey, Variant, VariantKey

Optimizer = Callable[[ModelAssessment, tuple[Decision, ...]], tuple[Decision, ...]]
"""Turns the drafts of a model (in the order of its variants) into its decisions."""

Entry = tuple[Decision, VariantMemory]


def decide(
    snapshot: Snapshot, memory: Memory, policy: Policy, now: float, *, optimizer: Optimizer = sized
) -> tuple[tuple[Decision, ...], Memory]:
    """Decide on every variant of the snapshot. ``now`` is in seconds since the epoch.

    The decisions are sorted by variant, and so is the memory; variants that are gone leave it.
    """
    cycle = _Cycle(snapshot, memory, policy, now, optimizer)
    entries = sorted(cycle.entries(), key=lambda entry: entry[0].key)
    return tuple(decision for decision, _ in entries), Memory(tuple(remembered for _, remembered in entries))


@dataclass(frozen=True, slots=True)
class _Input:
    """An active variant with its Ready pods and its memory, if any."""

    variant: Variant
    pods: tuple[ReplicaMetrics, ...]
    entry: VariantMemory | None


@dataclass(frozen=True, slots=True)
class _Cycle:
    """The inputs of one cycle, cut into models."""

    snapshot: Snapshot
    memory: Memory
    policy: Policy
    now: float
    optimizer: Optimizer

    def entries(self) -> Iterator[Entry]:
        """Yield the decision and the memory of every variant, model by model."""
        replicas = self._replicas()
        remembered = self.memory.by_key()
        models: dict[ModelKey, list[_Input]] = {}
        for variant in sorted(self.snapshot.variants, key=lambda variant: variant.key):
            if variant.active:
                pods = tuple(replicas.get(variant.key, ()))
                models.setdefault(variant.model, []).append(_Input(variant, pods, remembered.get(variant.key)))
            else:
                yield _inactive(variant)
        for model in sorted(models):
            yield from self._decide_model(model, models[model])

    def _replicas(self) -> dict[VariantKey, list[ReplicaMetrics]]:
        replicas: dict[VariantKey, list[ReplicaMetrics]] = {}
        for replica in sorted(self.snapshot.replicas, key=lambda replica: (replica.variant, replica.pod)):
            replicas.setdefault(replica.variant, []).append(replica)
        return replicas

    def _decide_model(self, key: ModelKey, inputs: list[_Input]) -> Iterator[Entry]:
        saturation = self.policy.saturation_for(key)
        moment = Moment(self.now, saturation.transition_deadline_seconds)
        reports = [
            VariantReport(progress_of(given.variant, replicas=given.pods, entry=given.entry, moment=moment), given.pods)
            for given in inputs
        ]
        model = assess(key, reports=reports, policy=saturation, failure=self._failure(key.namespace), now=self.now)
        decisions = drafts(model)
        if self.policy.compatibility is Compatibility.V0_5:
            decisions = decide_v05(model, decisions, reports=reports)
        elif model.hold is None:
            decisions = self.optimizer(model, decisions)
        for decision, report in zip(decisions, reports, strict=True):
            bounded = enforce(decision, report.progress.variant.bounds)
            yield settle(bounded, report.progress, now=self.now)

    def _failure(self, namespace: str) -> str | None:
        """Return why the metrics of a namespace could not be read, None when they could."""
        messages = (failure.message for failure in self.snapshot.failures if namespace in failure.namespaces)
        return min(messages, default=None)


def _inactive(variant: Variant) -> Entry:
    """Keep a variant at zero: only scale-from-zero brings it back, and then its past says nothing."""
    message = "scaled to zero"
    decision = Decision(
        key=variant.key,
        model=variant.model,
        accelerator=variant.accelerator or variant.status_accelerator or UNKNOWN_ACCELERATOR,
        cost=variant.cost,
        current=0,
        desired=0,
        previous=variant.status_desired,
        reason=Reason.INACTIVE,
        message=message,
        source=Source.CURRENT_REPLICAS,
        metrics=MetricsVerdict(
            available=False, reason="MetricsUnavailable", message="scaled to zero: no replica to report"
        ),
        coverage=Coverage(0, 0),
        steps=(Step("analyze", message, 0, 0),),
    )
    return decision, VariantMemory(variant.key, 0, None, 0)
