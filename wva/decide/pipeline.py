"""``decide``: Snapshot, Memory, Policy and now in; one Decision per variant and the next Memory out.

``_conclude`` names the six steps of a cycle, each a module: trust, measure, foresee, allocate, settle, explain. All
models go through each step together. The function is pure and independent of the order in which objects are listed: the
same inputs give the same decisions, bit by bit, so that a recorded cycle can be replayed.

A model on which an exception is raised does not take the others with it (``failed``). ``compatibility: v0.5`` has an
engine of its own (``v05``).
"""

from __future__ import annotations

from collections.abc import Sequence

from wva.decide.allocate import UNLIMITED, AllocationPolicy, SharingRule, Stock, Want
from wva.decide.explain import explain
from wva.decide.failed import Entry, asleep, isolated
from wva.decide.fitted import fitted
from wva.decide.foresee import foresee
from wva.decide.measure import measure
from wva.decide.measure.need import REPLICAS, Need
from wva.decide.outcome import Outcome
from wva.decide.progress import Progress, clocked
from wva.decide.settle import MOVES, Course, Rule, Terms, Verdict, settle, terms, want
from wva.decide.trust import ModelReadings, VariantReadings, believe
from wva.decide.v05 import engine as v05
from wva.model import optimizers
from wva.model.decision import Decision
from wva.model.memory import Memory, ModelMemory, Shrink
from wva.model.optimizers import Optimizer
from wva.model.policy import Compatibility, Policy
from wva.model.records import replace
from wva.model.service import LOWEST_PRIORITY
from wva.model.snapshot import Snapshot
from wva.model.variant import DEFAULT_COST, VariantKey


def decide(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> tuple[tuple[Decision, ...], Memory]:
    """Decide on every variant of the snapshot. ``now`` is in seconds since the epoch.

    The decisions are sorted by variant, and so is the memory; variants that are gone leave it.
    """
    outcome = conclude(snapshot, memory, policy, now)
    return outcome.decisions, outcome.memory


def conclude(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Outcome:
    """Do the same as ``decide``, and return all that explains it.

    An exception that a model causes is handled here. One that is raised without any model is not.
    """
    if policy.compatibility is Compatibility.V0_5:
        return v05.conclude(snapshot, memory, policy, now)
    return isolated(_conclude, snapshot, memory, policy, now)


def _conclude(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Outcome:
    # 1 trust: what of the samples can be believed
    models, sleeping = believe(snapshot, memory, policy, now)
    # 2 measure: what each model needs, in the unit of its analyzer
    needs, after = measure(models, memory, policy, now)
    # 3 foresee: what it will need when a replica that is ordered now serves
    needs, after = foresee(needs, models, after, policy, now)
    # 4 allocate: the cheapest numbers of all models, within bounds, quotas and GPUs
    known = (snapshot.inventory, snapshot.variants)
    stock = Stock.of(*known, unknown=policy.unknown_inventory) if policy.counts_gpus else UNLIMITED
    prices = _prices(models, policy)
    courses = [terms(model, need, prices) for model, need in zip(models, needs, strict=True)]
    rules = _sharing(models, courses, policy)
    wants = [
        _in_turn(want(model, need, course, prices, stock, policy), need, course, rules.sharing, policy)
        for model, need, course in zip(models, needs, courses, strict=True)
        if course.course in MOVES or (stock.counted and any(_orders(each.progress) for each in model.variants))
    ]
    plan = fitted(wants, {need.key: need for need in needs}, stock, rules)
    # 5 settle: which rule holds for each variant
    entries: list[Entry] = []
    ruled: dict[VariantKey, Rule] = {}
    histories = {entry.key: entry for entry in after.models}
    remembered: list[ModelMemory] = []
    gpus = (snapshot.inventory_detail or "not read") if stock.frozen else ""
    for model, need, course in zip(models, needs, courses, strict=True):
        zero = policy.scale_to_zero_for(model.key)
        verdicts = settle(model, need, course, plan, prices, zero, now)
        # 6 explain: the decisions in words, and what the next cycle must know
        decisions = explain(model, need, course, verdicts, gpus=gpus)
        kept = _remembered(histories.get(model.key, model.memory), need, course, decisions, verdicts, now)
        if kept.peaks or kept != ModelMemory(model.key):
            remembered.append(kept)
        for each, verdict, decision in zip(model.variants, verdicts, decisions, strict=True):
            ruled[each.key] = verdict.rule
            entries.append(_entry(decision, each, now))
    entries += [asleep(variant) for variant in sleeping]
    entries.sort(key=lambda entry: entry[0].key)
    return Outcome(
        tuple([decision for decision, _ in entries]),
        replace(after, variants=tuple([entry for _, entry in entries]), models=tuple(remembered), failing=()),
        rules=ruled,
    )


def _sharing(models: Sequence[ModelReadings], courses: Sequence[Terms], policy: Policy) -> AllocationPolicy:
    """Return how scarce GPUs are shared: by score if a growing model asks for that, else by the policy of best effort.

    Without either, by priority.
    """
    growing = [model.key for model, found in zip(models, courses, strict=True) if found.course is Course.GROW]
    if any(policy.optimizer_for(key) is Optimizer.GREEDY_BY_SCORE for key in growing):
        return AllocationPolicy(SharingRule.SCORE)
    if policy.solver.best_effort is not optimizers.BestEffort.NONE:
        return AllocationPolicy(SharingRule(policy.solver.best_effort.value), delayed=policy.solver.delayed)
    return AllocationPolicy()


def _orders(progress: Progress) -> bool:
    """Tell whether replicas that do not exist yet are asked for. All others have their GPUs."""
    return progress.base > progress.current


def _in_turn(wanted: Want, need: Need, found: Terms, sharing: SharingRule, policy: Policy) -> Want:
    """Return the want with the priority of its model, and the weight of the model among those of equal priority."""
    target = policy.service_target_for(wanted.key)
    priority = LOWEST_PRIORITY if target is None else target.priority
    weight = need.demand / found.present if found.present > 0 else 1.0
    if sharing is SharingRule.SCORE:
        smallest = min([offer.capacity for offer in wanted.offers if offer.capacity > 0], default=1.0)
        weight = LOWEST_PRIORITY / priority / smallest
    return replace(wanted, priority=priority, weight=weight)


def _prices(models: Sequence[ModelReadings], policy: Policy) -> dict[VariantKey, float]:
    """Return what a replica of each variant costs.

    What the variants say counts. Where none of a model says anything, the unit costs of their accelerators do, if all
    are known: costs of two kinds cannot be compared.
    """
    prices = {each.key: each.progress.variant.cost for model in models for each in model.variants}
    for model in models if policy.accelerator_costs else ():
        variants = [each.progress.variant for each in model.variants]
        units = [policy.accelerator_cost(variant.accelerator) for variant in variants]
        known = [unit for unit in units if unit is not None]
        if len(known) == len(units) and all(variant.cost == DEFAULT_COST for variant in variants):
            for variant, unit in zip(variants, known, strict=True):
                prices[variant.key] = unit * max(1, variant.gpus_per_replica)
    return prices


def _remembered(
    history: ModelMemory,
    need: Need,
    found: Terms,
    decisions: Sequence[Decision],
    verdicts: Sequence[Verdict],
    now: float,
) -> ModelMemory:
    """Return what the next cycle must know of a model: what was asked for, and what was given up."""
    answered = history.answered if found.coming or found.course is Course.HOLD else None
    shrunk = history.shrunk
    if need.unit == REPLICAS and found.course in {Course.GROW, Course.SHRINK}:
        rules = {verdict.rule for verdict in verdicts}
        if Rule.GROWS in rules:
            answered = max(answered or 0.0, need.demand)
        if Rule.SHRINKS in rules:
            shrunk = Shrink(sum([decision.desired for decision in decisions]), need.demand, now)
    if answered == history.answered and shrunk is history.shrunk:
        return history
    return ModelMemory(history.key, history.peaks, shrunk, history.regretted, answered)


def _entry(decision: Decision, each: VariantReadings, now: float) -> Entry:
    """Return the decision with its clock; a variant that stays at zero has neither number nor clock.

    Its message still names what kept it there.
    """
    variant = each.progress.variant
    if variant.active or decision.desired > 0:
        return clocked(decision, each.progress, now=now)
    kept, remembered = asleep(variant)
    if decision.limits:
        kept = replace(kept, message=f"{kept.message}; {decision.message}", steps=decision.steps)
    return kept, remembered
