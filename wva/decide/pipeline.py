"""``decide``: Snapshot, Memory, Policy and now in; one Decision per variant and the next Memory out.

``_conclude`` names the six steps of a cycle, each a module: trust, measure, foresee, allocate, settle, explain. All
models go through each step together. The function is pure and independent of the order in which objects are listed: the
same inputs give the same decisions, bit by bit, so that a recorded cycle can be replayed.

An exception on one model does not end the decisions on the others (``failed``). ``compatibility: v0.5`` has an engine
of its own (``v05``).
"""

from __future__ import annotations

from collections.abc import Sequence

from wva.decide.allocate import UNLIMITED, AllocationPolicy, SharingRule, Stock
from wva.decide.explain import explain
from wva.decide.failed import Outcome, asleep, isolated
from wva.decide.fitted import fitted
from wva.decide.foresee import foresee
from wva.decide.measure import measure
from wva.decide.measure.need import REPLICAS
from wva.decide.progress import clocked
from wva.decide.settle import MOVES, Course, Rule, settle, terms, want
from wva.decide.trust import ModelReadings, believe
from wva.decide.v05 import engine as v05
from wva.model.decision import Decision
from wva.model.memory import Memory, ModelMemory, Shrink, VariantMemory
from wva.model.optimizers import BestEffort, Optimizer
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
    """Decide as ``decide`` does, and also return failures and rules.

    An exception that a model causes becomes a failure. An exception that comes without any model is raised.
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
    stock = UNLIMITED
    if policy.counts_gpus:
        stock = Stock.of(snapshot.inventory, snapshot.variants, unknown=policy.unknown_inventory)
    prices = _prices(models, policy)
    all_terms = [terms(model, need, prices) for model, need in zip(models, needs, strict=True)]
    # Scarce GPUs are shared by score if a growing model asks for that, else by the policy of best effort, else by
    # priority. Among models of one priority the weight counts.
    sharing = AllocationPolicy()
    growing = [model.key for model, found in zip(models, all_terms, strict=True) if found.course is Course.GROW]
    if any(policy.optimizer_for(key) is Optimizer.GREEDY_BY_SCORE for key in growing):
        sharing = AllocationPolicy(SharingRule.SCORE)
    elif policy.solver.best_effort is not BestEffort.NONE:
        sharing = AllocationPolicy(SharingRule(policy.solver.best_effort.value), delayed=policy.solver.delayed)
    wants = []
    for model, need, allowed in zip(models, needs, all_terms, strict=True):
        # Replicas that exist have their GPUs already. The limiter can deny only replicas that are asked for beyond
        # them.
        asks = stock.counted and any(each.progress.base > each.progress.current for each in model.variants)
        if allowed.course in MOVES or asks:
            wanted, target = want(model, need, allowed, prices, stock, policy), policy.service_target_for(model.key)
            priority = LOWEST_PRIORITY if target is None else target.priority
            weight = need.demand / allowed.present if allowed.present > 0 else 1.0
            if sharing.sharing is SharingRule.SCORE:
                smallest = min([offer.capacity for offer in wanted.offers if offer.capacity > 0], default=1.0)
                weight = LOWEST_PRIORITY / priority / smallest
            wants.append(replace(wanted, priority=priority, weight=weight))
    plan = fitted(wants, {need.key: need for need in needs}, stock, sharing)
    # 5 settle: which rule holds for each variant
    entries: list[tuple[Decision, VariantMemory]] = []
    ruled: dict[VariantKey, Rule] = {}
    histories = {entry.key: entry for entry in after.models}
    remembered: list[ModelMemory] = []
    gpus = (snapshot.inventory_detail or "not read") if stock.frozen else ""
    for model, need, allowed in zip(models, needs, all_terms, strict=True):
        verdicts = settle(model, need, allowed, plan, prices, policy.scale_to_zero_for(model.key), now)
        # 6 explain: the decisions in words, and what the next cycle must know
        decisions = explain(model, need, allowed, verdicts, gpus=gpus)
        kept = histories.get(model.key, model.memory)
        answered = kept.answered if allowed.coming or allowed.course is Course.HOLD else None
        shrunk = kept.shrunk
        if need.unit == REPLICAS and allowed.course in {Course.GROW, Course.SHRINK}:
            rules = {verdict.rule for verdict in verdicts}
            if Rule.GROWS in rules:
                answered = max(answered or 0.0, need.demand)
            if Rule.SHRINKS in rules:
                shrunk = Shrink(sum([decision.desired for decision in decisions]), need.demand, now)
        if answered != kept.answered or shrunk is not kept.shrunk:
            kept = replace(kept, shrunk=shrunk, answered=answered)
        if kept.peaks or kept != ModelMemory(model.key):
            remembered.append(kept)
        for each, verdict, decision in zip(model.variants, verdicts, decisions, strict=True):
            ruled[each.key] = verdict.rule
            if each.progress.variant.active or decision.desired > 0:
                entries.append(clocked(decision, each.progress, now=now))
                continue
            # A variant that stays at zero has neither number nor clock. Its message still names the reason.
            resting, forgotten = asleep(each.progress.variant)
            if decision.limits:
                message = f"{resting.message}; {decision.message}"
                resting = replace(resting, message=message, steps=decision.steps)
            entries.append((resting, forgotten))
    entries += [asleep(variant) for variant in sleeping]
    entries.sort(key=lambda entry: entry[0].key)
    return Outcome(
        tuple([decision for decision, _ in entries]),
        replace(after, variants=tuple([entry for _, entry in entries]), models=tuple(remembered), failing=()),
        rules=ruled,
    )


def _prices(models: Sequence[ModelReadings], policy: Policy) -> dict[VariantKey, float]:
    """Return the cost of a replica of each variant, as the variant gives it.

    If no variant of a model gives a cost, the unit costs of their accelerators count, but only if all of these are
    known: a unit cost and a default cost cannot be compared.
    """
    prices = {each.key: each.progress.variant.cost for model in models for each in model.variants}
    for model in models if policy.accelerator_costs else ():
        variants = [each.progress.variant for each in model.variants]
        costs = {
            variant.key: unit * max(1, variant.gpus_per_replica)
            for variant in variants
            if variant.cost == DEFAULT_COST and (unit := policy.accelerator_cost(variant.accelerator)) is not None
        }
        if len(costs) == len(variants):
            prices |= costs
    return prices
