"""``decide``: Snapshot, Memory, Policy and now in; one Decision per variant and the next Memory out.

Each model is analyzed, optimized and enforced. Then all models are limited together. Growth that finds no GPUs goes to
the next variant of its model (``overflow``). The function is pure and independent of the order in which objects are
listed: the same inputs give the same decisions, bit by bit, so that a recorded cycle can be replayed.

A model on which an exception is raised does not take the others with it: it is held with its last number, and the
others are decided without it (``separate``, ``failed``). If its namespace has ConfigMaps of its own, and the models of
the namespace can be decided without them, these decisions count, and the outcome names the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wva.decide import model_cycle
from wva.decide.amounts import bounded_snapshot
from wva.decide.failed import FailedModel, apart, held
from wva.decide.limit import Claim, GpuBudget, Stock, limit
from wva.decide.limit_v05 import limit_v05
from wva.decide.model_cycle import Cycle, ModelCycle, Shared
from wva.decide.optimize.by_capacity import Gap
from wva.decide.optimize.cost_aware import Candidate, spread
from wva.decide.optimize.greedy import Need, share
from wva.decide.overflow import Budgeting, Drafts, overflow
from wva.decide.separate import separate
from wva.decide.settling import Progress, settle
from wva.decide.wording import LIMITER
from wva.model.decision import Decision, Limit, MetricsVerdict, Reason, Source, Step
from wva.model.failures import cause_of
from wva.model.inventory import Inventory
from wva.model.memory import Memory, ModelMemory, VariantMemory
from wva.model.metrics import Coverage
from wva.model.optimizers import Optimizer
from wva.model.policy import Compatibility, Policy
from wva.model.queueing import ModelOpinion
from wva.model.service import LOWEST_PRIORITY
from wva.model.snapshot import Snapshot
from wva.model.variant import UNKNOWN_ACCELERATOR, ModelKey, Variant

Entry = tuple[Decision, VariantMemory]

_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cycle: decisions and memory, and what the model-based optimizer said of the models it judged.

    ``failures`` are the models that could not be decided on, sorted. ``refused`` are the namespaces that were decided
    on without their own configuration, because it makes decisions fail, each with the cause; sorted.
    """

    decisions: tuple[Decision, ...]
    memory: Memory
    opinions: tuple[ModelOpinion, ...] = ()
    failures: tuple[FailedModel, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


def decide(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> tuple[tuple[Decision, ...], Memory]:
    """Decide on every variant of the snapshot. ``now`` is in seconds since the epoch.

    The decisions are sorted by variant, and so is the memory; variants that are gone leave it.
    """
    outcome = conclude(snapshot, memory, policy, now)
    return outcome.decisions, outcome.memory


def conclude(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Outcome:
    """Do the same as ``decide``, and return all that explains it.

    Raises only what is raised without any model.
    """
    snapshot = bounded_snapshot(snapshot)
    unread = {entry.model: entry.message for entry in snapshot.unread}
    remembered = memory.by_key()

    def attempt(models: Collection[ModelKey], policy: Policy = policy) -> Outcome:
        compatible = policy.compatibility is not None
        return _conclude(apart(snapshot, models, remembered, counts_pods=compatible), memory, policy, now)

    models = sorted({variant.model for variant in snapshot.variants} - unread.keys())
    outcome, errors = separate(models, attempt, suspects=memory.failing)
    refused = _refused(errors, models, policy, attempt)
    if refused:
        without = _without_local(policy, refused.keys())
        outcome, errors = separate(models, lambda kept: attempt(kept, without), suspects=errors.keys())
    causes = unread | {model: f"deciding failed: {cause_of(error)}" for model, error in errors.items()}
    if not causes:
        return replace(outcome, refused=tuple(sorted(refused.items())))
    entries = [
        _held(variant, remembered.get(variant.key), causes[variant.model])
        for variant in snapshot.variants
        if variant.model in causes
    ]
    failures = (FailedModel(model, causes[model], error) for model, error in errors.items())
    return replace(
        outcome,
        decisions=tuple(
            sorted((*outcome.decisions, *(decision for decision, _ in entries)), key=lambda each: each.key)
        ),
        memory=_with_held(outcome.memory, memory, [entry for _, entry in entries if entry is not None], causes.keys()),
        failures=tuple(sorted(failures, key=lambda failure: failure.model)),
        refused=tuple(sorted(refused.items())),
    )


def _refused(
    errors: Mapping[ModelKey, Exception],
    models: Sequence[ModelKey],
    policy: Policy,
    attempt: Callable[[Collection[ModelKey], Policy], Outcome],
) -> dict[str, str]:
    """Return the namespaces that can be decided on without their own configuration alone, with what failed with it."""
    refused = {}
    for model, error in sorted(errors.items(), key=lambda each: each[0]):
        namespace = model.namespace
        if namespace in refused or all(local.namespace != namespace for local in policy.namespaces):
            continue
        neighbours = [other for other in models if other.namespace == namespace]
        try:
            attempt(neighbours, _without_local(policy, {namespace}))
        except Exception:  # noqa: BLE001, S112 - then it is not the configuration
            continue
        refused[namespace] = cause_of(error)
    return refused


def _without_local(policy: Policy, namespaces: Collection[str]) -> Policy:
    return replace(policy, namespaces=tuple(each for each in policy.namespaces if each.namespace not in namespaces))


def _held(variant: Variant, entry: VariantMemory | None, cause: str) -> tuple[Decision, VariantMemory | None]:
    """Keep the number of a variant, and what is remembered of it; one that is at zero stays there."""
    decision = held(variant, entry, cause)
    if not variant.active and decision.desired == 0:
        kept, asleep = _inactive(variant)
        return replace(kept, message=f"{kept.message}; {cause}"), asleep
    return decision, entry


def _with_held(after: Memory, before: Memory, entries: Iterable[VariantMemory], models: Collection[ModelKey]) -> Memory:
    """Return the memory of a cycle with what was remembered of the models that it did not decide on."""
    histories = (*after.models, *(entry for entry in before.models if entry.key in models))
    return replace(
        after,
        variants=tuple(sorted((*after.variants, *entries), key=lambda entry: entry.key)),
        models=tuple(sorted(histories, key=lambda entry: entry.key)),
        failing=tuple(sorted(models)),
    )


def _conclude(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Outcome:
    cycle = Cycle.of(snapshot, memory, policy, now)
    running, asleep = _models(snapshot.variants)
    analyzed = [model_cycle.analyze(key, running[key], cycle) for key in sorted(running)]
    models, observed = model_cycle.with_opinions(analyzed, cycle)
    limited = _within_budget(models, cycle, _budget(snapshot, policy))
    progresses = [progress for model in models for progress in model.progresses]
    entries = [_entry(decision, progress, now) for decision, progress in zip(limited, progresses, strict=True)]
    taking_part = {decision.key for decision in limited}
    entries += [_inactive(variant) for variant in asleep if variant.key not in taking_part]
    entries.sort(key=lambda entry: entry[0].key)
    learned = [model.learned for model in models if model.learned is not None]
    opinions = [model.answer or model.opinion for model in models]
    return Outcome(
        tuple(decision for decision, _ in entries),
        Memory(
            tuple(remembered for _, remembered in entries),
            memory.capacity.updated(learned, now=now),
            observed,
            _histories(models, limited, cycle),
        ),
        tuple(opinion for opinion in opinions if opinion is not None),
    )


def _histories(models: Sequence[ModelCycle], decisions: Iterable[Decision], cycle: Cycle) -> tuple[ModelMemory, ...]:
    of_model: dict[ModelKey, list[Decision]] = {}
    for decision in decisions:
        of_model.setdefault(decision.model, []).append(decision)
    found = [model_cycle.remembered(model, of_model[model.key], cycle) for model in models]
    return tuple(sorted((entry for entry in found if entry is not None), key=lambda entry: entry.key))


def _models(variants: Iterable[Variant]) -> tuple[dict[ModelKey, list[Variant]], list[Variant]]:
    """Return the variants of every model that runs, sorted, and all variants at zero."""
    ordered = sorted(variants, key=lambda variant: variant.key)
    running = {variant.model for variant in ordered if variant.active}
    models: dict[ModelKey, list[Variant]] = {}
    for variant in ordered:
        if variant.model in running:
            models.setdefault(variant.model, []).append(variant)
    return models, [variant for variant in ordered if not variant.active]


def _budget(snapshot: Snapshot, policy: Policy) -> GpuBudget | None:
    """Return the GPU budget, None when there is no limit."""
    if not policy.limited:
        return None
    inventory = snapshot.inventory
    if inventory is not None:
        inventory = Inventory.of(list(inventory.pools), list(inventory.quotas))
    return GpuBudget(inventory, snapshot.inventory_detail, policy.unknown_inventory)


def _within_budget(models: Sequence[ModelCycle], cycle: Cycle, budget: GpuBudget | None) -> tuple[Decision, ...]:
    """Return the decisions of all models, in their order."""

    def draft(seen: Sequence[ModelCycle]) -> Drafts:
        shared = _shared(seen, cycle, budget)
        return {model.key: model_cycle.decide(model, cycle, shared=shared.get(model.key)) for model in seen}

    def grant(drafts: Drafts) -> tuple[Decision, ...]:
        return _limited(_claims(models, drafts, cycle.policy), cycle.policy, budget)

    drafts = draft(models)
    decisions = grant(drafts)
    if budget is None or budget.inventory is None or cycle.policy.compatibility is not None:
        return decisions
    return overflow(models, drafts, Budgeting(draft, grant), decisions=decisions)


def _claims(models: Sequence[ModelCycle], drafts: Drafts, policy: Policy) -> list[Claim]:
    return [
        Claim(decision, progress.variant, _priority(policy, decision.model))
        for model in models
        for decision, progress in zip(drafts[model.key], model.progresses, strict=True)
    ]


def _shared(models: Sequence[ModelCycle], cycle: Cycle, budget: GpuBudget | None) -> dict[ModelKey, Shared]:
    """Share the free GPUs among the models in need, if their number is known.

    Several models have to be in need, or one whose optimizer was chosen to share.
    """
    growing = [
        (model.gap, choice)
        for model in models
        if model.gap is not None and (choice := _sharing(model, model.gap, cycle.policy)) is not None
    ]
    chosen = any(choice is Optimizer.GREEDY_BY_SCORE for _, choice in growing)
    if budget is None or budget.inventory is None or not (chosen or len(growing) >= _SEVERAL):
        return {}
    stock = Stock.of(budget.inventory, (progress.variant for model in models for progress in model.progresses))
    needs = [_need(gap, budget.inventory, cycle.policy) for gap, _ in growing]
    served = share(needs, stock.free_by_accelerator())
    equal = {need.model: tuple(spread(need.candidates, served[need.model])) for need in needs}
    return {gap.capacity.key: _served(gap, equal[gap.capacity.key]) for gap, _ in growing}


def _sharing(model: ModelCycle, gap: Gap, policy: Policy) -> Optimizer | None:
    """Return the optimizer of a model that grows, if it is one that shares GPUs."""
    if not gap.growing or model.held:
        return None
    optimizer = policy.optimizer_for(model.key)
    return optimizer if optimizer in {Optimizer.BY_ANALYZER, Optimizer.GREEDY_BY_SCORE} else None


def _served(gap: Gap, candidates: tuple[Candidate, ...]) -> Shared:
    """Return what a model got, and what its variants would have got alone and with GPUs enough."""
    numbers = {candidate.key: candidate.number for candidate in candidates}
    return Shared(
        candidates,
        {
            wanted.key: Limit(f"{LIMITER} {wanted.accelerator}", wanted.number - numbers[wanted.key])
            for wanted in gap.grown()
            if wanted.number > numbers[wanted.key]
        },
    )


def _need(gap: Gap, inventory: Inventory, policy: Policy) -> Need:
    """Return what a model needs, with the accelerators of its variants under the names of the inventory."""
    candidates = []
    for candidate in gap.candidates():
        pool = inventory.pool_of(candidate.accelerator)
        candidates.append(replace(candidate, accelerator="" if pool is None else pool.accelerator))
    key = gap.capacity.key
    importance = LOWEST_PRIORITY / _priority(policy, key)
    return Need(key, gap.capacity.required, tuple(candidates), importance, gap.capacity.growth_limit)


def _limited(claims: Sequence[Claim], policy: Policy, budget: GpuBudget | None) -> tuple[Decision, ...]:
    if budget is None:
        return tuple(claim.decision for claim in claims)
    if policy.compatibility is Compatibility.V0_5:
        return limit_v05(claims, budget.inventory)
    return limit(claims, budget)


def _priority(policy: Policy, model: ModelKey) -> int:
    target = policy.service_target_for(model)
    return LOWEST_PRIORITY if target is None else target.priority


def _entry(decision: Decision, progress: Progress, now: float) -> Entry:
    """Return the decision with its clock; a variant that stays at zero has neither number nor clock.

    Who kept it there is said all the same.
    """
    if progress.variant.active or decision.desired > 0:
        return settle(decision, progress, now=now)
    kept, remembered = _inactive(progress.variant)
    if decision.limits:
        kept = replace(kept, message=f"{kept.message}; {decision.message}", steps=decision.steps)
    return kept, remembered


def _inactive(variant: Variant) -> Entry:
    """Keep a variant at zero. When it comes back it begins anew: its past says nothing."""
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
