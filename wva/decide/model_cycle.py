"""One model in one cycle: its variants, what the analyzer finds, and the numbers before GPUs are counted.

``analyze`` comes first for all models, since scarce GPUs are shared among them; then ``decide`` for each, which is
where the optimizer is chosen: the percentage analyzer has sized growth, an analyzer that knows capacities the
cost-aware rule or its share of the GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wva.decide.amounts import bounded_policy
from wva.decide.analyze.history import recall, remember
from wva.decide.analyze.saturation import VariantReport, assess, drafts
from wva.decide.analyze.tokens import TokenInputs, analyze_tokens
from wva.decide.arbitrate import arbitrate
from wva.decide.assessment import ModelAssessment, VariantAssessment
from wva.decide.compatibility import decide_v05, enforce_v05
from wva.decide.enforce import Idleness, enforce, keep_one, rest
from wva.decide.gpus import GpuView
from wva.decide.optimize.by_capacity import Denials, Gap, close, cost_aware
from wva.decide.optimize.cost_aware import Candidate
from wva.decide.optimize.model_based import model_based
from wva.decide.optimize.sized import sized
from wva.decide.settling import Moment, Progress, progress_of
from wva.model.capacity import LearnedCapacity
from wva.model.decision import Decision
from wva.model.memory import Memory, ModelMemory, VariantMemory
from wva.model.metrics import ReplicaMetrics
from wva.model.optimizers import Analyzer, Optimizer
from wva.model.policy import Compatibility, Policy
from wva.model.queueing import ModelOpinion, QueueingMemory
from wva.model.snapshot import RequestCounts, SchedulerQueue, Snapshot
from wva.model.variant import ModelKey, Variant, VariantKey


@dataclass(frozen=True, slots=True)
class Cycle:
    """The inputs of a cycle, indexed once."""

    policy: Policy
    now: float
    memory: Memory
    remembered: dict[VariantKey, VariantMemory]
    histories: dict[ModelKey, ModelMemory]
    replicas: dict[VariantKey, tuple[ReplicaMetrics, ...]]
    failures: dict[str, str]
    counts: dict[ModelKey, RequestCounts]
    queues: dict[ModelKey, SchedulerQueue]
    gpus: GpuView

    @staticmethod
    def of(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Cycle:
        """Index the inputs; the order of listing does not matter."""
        replicas: dict[VariantKey, list[ReplicaMetrics]] = {}
        for replica in sorted(snapshot.replicas, key=lambda replica: (replica.variant, replica.pod)):
            replicas.setdefault(replica.variant, []).append(replica)
        failures: dict[str, str] = {}
        for failure in snapshot.failures:
            for namespace in failure.namespaces:
                failures[namespace] = min(failure.message, failures.get(namespace, failure.message))
        return Cycle(
            policy,
            now,
            memory,
            memory.by_key(),
            {entry.key: entry for entry in memory.models},
            {key: tuple(pods) for key, pods in replicas.items()},
            failures,
            {counts.model: counts for counts in snapshot.request_counts},
            {queue.model: queue for queue in snapshot.queues},
            GpuView.of(snapshot, policy),
        )

    def history(self, model: ModelKey) -> ModelMemory:
        """Return what is remembered of a model; nothing, if that is how it is."""
        return self.histories.get(model, ModelMemory(model))

    def report(self, variant: Variant, deadline_seconds: float) -> VariantReport:
        """Return where a variant stands, with its Ready pods."""
        pods = self.replicas.get(variant.key, ())
        entry, moment = self.remembered.get(variant.key), Moment(self.now, deadline_seconds)
        return VariantReport(progress_of(variant, replicas=pods, entry=entry, moment=moment), pods)


@dataclass(frozen=True, slots=True)
class Shared:
    """A model's candidates after scarce GPUs were shared, and what they would have had beyond that."""

    candidates: tuple[Candidate, ...]
    denials: Denials


@dataclass(frozen=True, slots=True)
class ModelCycle:
    """One model with its analysis.

    ``gap`` is None for an analyzer that knows no capacities, ``learned`` for one that learns none. What the model-based
    optimizer says is an ``opinion`` where it is to be heard beside the analyzer, an ``answer`` where it is the
    analyzer's own.
    """

    key: ModelKey
    assessment: ModelAssessment
    reports: tuple[VariantReport, ...]
    gap: Gap | None = None
    learned: LearnedCapacity | None = None
    opinion: ModelOpinion | None = None
    answer: ModelOpinion | None = None

    @property
    def held(self) -> bool:
        """Whether nothing can be decided."""
        return self.assessment.hold is not None

    @property
    def progresses(self) -> tuple[Progress, ...]:
        """Where the variants stand, in their order."""
        return tuple(report.progress for report in self.reports)


def analyze(key: ModelKey, variants: list[Variant], cycle: Cycle) -> ModelCycle:
    """Analyse one model that has a running variant; ``variants`` are all of it, sorted by key.

    Of those at zero replicas the ones take part that their scaler can bring back (its minimum is 0): they may grow when
    their siblings are saturated.
    """
    saturation = bounded_policy(cycle.policy.saturation_for(key))
    everything = tuple(cycle.report(variant, saturation.transition_deadline_seconds) for variant in variants)
    compatible = cycle.policy.compatibility is not None
    reports = tuple(report for report in everything if _takes_part(report.progress.variant, compatible=compatible))
    failure = cycle.failures.get(key.namespace)
    assessment = assess(key, reports=reports, policy=saturation, failure=failure, now=cycle.now)
    if compatible:
        return ModelCycle(key, assessment, reports)
    if cycle.policy.analyzer_for(key) is not Analyzer.TOKENS:
        history = recall(reports, cycle.history(key), policy=saturation, now=cycle.now)
        return ModelCycle(key, replace(assessment, history=history), reports)
    inputs = TokenInputs(everything, cycle.queues.get(key), failure)
    capacity, learned = analyze_tokens(
        key,
        inputs=inputs,
        policy=saturation,
        learned=cycle.memory.capacity.of(key),
        now=cycle.now,
    )
    assessment = replace(assessment, hold=capacity.hold)
    return ModelCycle(key, assessment, reports, Gap(assessment, capacity), learned)


def remembered(model: ModelCycle, decisions: Sequence[Decision], cycle: Cycle) -> ModelMemory | None:
    """Return what the next cycle must know of a model beside its variants; None where sized growth has no say."""
    if model.gap is not None or cycle.policy.compatibility is not None:
        return None
    return remember(model.assessment, decisions, model.reports, before=cycle.history(model.key), now=cycle.now)


def with_opinions(models: list[ModelCycle], cycle: Cycle) -> tuple[list[ModelCycle], QueueingMemory]:
    """Ask the model-based optimizer about the models that want it, all at once; return what it remembers too.

    Its number is the need of a model whose analyzer it is, and a second opinion on the others in HYBRID mode.
    """
    policy, memory = cycle.policy, cycle.memory.queueing
    asked = [model for model in models if _asks(model.key, policy)]
    if not asked:
        return models, memory
    from wva.decide.analyze.queueing import QueueingInputs, analyze_queueing  # noqa: PLC0415 - numpy, if it is wanted

    inputs = [
        QueueingInputs(model.key, model.reports, cycle.queues.get(model.key), cycle.failures.get(model.key.namespace))
        for model in asked
    ]
    opinions, memory = analyze_queueing(inputs, policy=policy, memory=memory, now=cycle.now, fleet=cycle.gpus.fleet)
    heard = {opinion.key: opinion for opinion in opinions}
    return [_heard(model, heard.get(model.key), policy) for model in models], memory


def _asks(key: ModelKey, policy: Policy) -> bool:
    return policy.compatibility is None and (policy.proactive_model or policy.analyzer_for(key) is Analyzer.QUEUEING)


def _heard(model: ModelCycle, opinion: ModelOpinion | None, policy: Policy) -> ModelCycle:
    if opinion is None or policy.analyzer_for(model.key) is not Analyzer.QUEUEING:
        return replace(model, opinion=opinion)
    assessment = replace(model.assessment, hold=opinion.hold)
    return replace(model, assessment=assessment, gap=Gap(assessment, opinion.capacity), answer=opinion)


def with_ceilings(model: ModelCycle, ceilings: Mapping[VariantKey, int]) -> ModelCycle:
    """Return the model as an optimizer shall see it when some variants can have no more than so many replicas.

    Only its view of their maximum changes: the reports keep the bounds of the scaler.
    """
    assessment = replace(
        model.assessment, variants=tuple(_with_ceiling(variant, ceilings) for variant in model.assessment.variants)
    )
    gap = None if model.gap is None else replace(model.gap, model=assessment)
    return replace(model, assessment=assessment, gap=gap)


def _with_ceiling(variant: VariantAssessment, ceilings: Mapping[VariantKey, int]) -> VariantAssessment:
    ceiling = ceilings.get(variant.key)
    if ceiling is None:
        return variant
    static = variant.progress.variant
    bounds = replace(static.bounds, maximum=ceiling)
    return replace(variant, progress=replace(variant.progress, variant=replace(static, bounds=bounds)))


def decide(model: ModelCycle, cycle: Cycle, *, shared: Shared | None) -> tuple[Decision, ...]:
    """Return the decisions of a model within its bounds, in the order of its reports.

    ``shared`` is what it got when scarce GPUs were shared, None when they were not.
    """
    summary = None if model.gap is None else model.gap.capacity.summary
    decisions = drafts(model.assessment, summary=summary)
    if cycle.policy.compatibility is Compatibility.V0_5:
        decisions = decide_v05(model.assessment, decisions, reports=model.reports)
        decisions = enforce_v05(decisions, cycle.policy.scale_to_zero_for(model.key), cycle.counts.get(model.key))
    else:
        if not model.held:
            decisions = _arbitrated(model, _optimized(model, decisions, cycle, shared), cycle.gpus)
        decisions = keep_one(rest(decisions, _idleness(model, cycle)))
    return tuple(
        enforce(decision, progress.variant.bounds)
        for decision, progress in zip(decisions, model.progresses, strict=True)
    )


def _optimized(
    model: ModelCycle, decisions: tuple[Decision, ...], cycle: Cycle, shared: Shared | None
) -> tuple[Decision, ...]:
    optimizer = cycle.policy.optimizer_for(model.key)
    if model.gap is None:
        return sized(model.assessment, decisions, most=1 if optimizer is Optimizer.ONE_STEP else None)
    if shared is not None:
        return close(model.gap, decisions, shared.candidates, rule="greedy-by-score", denials=shared.denials)
    if optimizer is Optimizer.MODEL_BASED and model.answer is not None:
        return model_based(model.gap, decisions, model.answer)
    return cost_aware(model.gap, decisions)


def _arbitrated(model: ModelCycle, decisions: tuple[Decision, ...], gpus: GpuView) -> tuple[Decision, ...]:
    """Return the decisions after the model-based optimizer was heard, as they are where it was not asked."""
    opinion = model.opinion
    if opinion is None:
        return decisions
    return tuple(
        arbitrate(decision, opinion.of(decision.key), bounds=progress.variant.bounds, most=gpus.most(progress))
        for decision, progress in zip(decisions, model.progresses, strict=True)
    )


def _takes_part(variant: Variant, *, compatible: bool) -> bool:
    return variant.active or (variant.bounds.minimum == 0 and not compatible)


def _idleness(model: ModelCycle, cycle: Cycle) -> Idleness:
    assessment = model.assessment
    gap = ""
    if assessment.hold is not None:
        gap = assessment.hold.message
    elif not assessment.complete:
        gap = "not every replica reports"
    return Idleness(
        policy=cycle.policy.scale_to_zero_for(model.key),
        counts=cycle.counts.get(model.key),
        progresses=tuple(progress for progress in model.progresses if progress.variant.active),
        gap=gap,
        queued=assessment.queue.used,
        now=cycle.now,
    )
