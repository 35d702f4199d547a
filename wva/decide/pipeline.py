"""``decide``: Snapshot, Memory, Policy and now in; one Decision per variant and the next Memory out.

``_conclude`` names the six steps of a cycle, each a module. All models go through each step together. The same inputs
give the same decisions to the last bit, in any order of the objects, so a recorded cycle can be replayed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from wva.decide import v05
from wva.decide.allocate import UNLIMITED, AllocationPolicy, Plan, SharingRule, Stock, Want, allocate
from wva.decide.explain import explain
from wva.decide.failed import Load, Outcome, asleep, isolated
from wva.decide.foresee import foresee
from wva.decide.measure import measure
from wva.decide.measure.need import REPLICAS, Need
from wva.decide.prices import stated
from wva.decide.progress import clocked, lateness
from wva.decide.rules import MOVES, Course, Rule
from wva.decide.settle import settle, terms, want
from wva.decide.trust import believe
from wva.model.decision import Decision
from wva.model.memory import Memory, ModelMemory, Shrink, VariantMemory
from wva.model.optimizers import BestEffort, Optimizer
from wva.model.policy import Compatibility, Policy
from wva.model.records import replace
from wva.model.service import LOWEST_PRIORITY
from wva.model.snapshot import Snapshot
from wva.model.trouble import Trouble
from wva.model.variant import ModelKey, VariantKey

_ROUNDS: Final = 3
_ENOUGH: Final = 1.0 - 1e-9


def decide(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> tuple[tuple[Decision, ...], Memory]:
    """Decide on every variant of the snapshot; decisions and memory are sorted. ``now``: seconds since the epoch."""
    outcome = conclude(snapshot, memory, policy, now)
    return outcome.decisions, outcome.memory


def conclude(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Outcome:
    """Decide as ``decide`` does, and also return failures and rules. It raises only errors that no model causes."""
    snapshot, policy = stated(snapshot, policy)
    if policy.compatibility is Compatibility.V0_5:
        return v05.conclude(snapshot, memory, policy, now)
    return isolated(_conclude, snapshot, memory, policy, now)


def _conclude(snapshot: Snapshot, memory: Memory, policy: Policy, now: float) -> Outcome:
    # 1 trust: which samples can be believed
    models, sleeping = believe(snapshot, memory, policy, now)
    # 2 measure: what each model needs, in the unit of its analyzer
    needs, after = measure(models, memory, policy, now)
    measured = needs
    # 3 foresee: what it will need when a replica that is ordered now serves
    needs, after = foresee(needs, models, after, policy, now, woken=snapshot.woken)
    # 4 allocate: the cheapest numbers of all models, within bounds, quotas and GPUs
    stock = UNLIMITED
    if policy.counts_gpus:
        stock = Stock.of(snapshot.inventory, snapshot.variants, unknown=policy.unknown_inventory)
    all_terms = [terms(model, need) for model, need in zip(models, needs, strict=True)]
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
            wanted, target = want(model, need, allowed, stock, policy), policy.service_target_for(model.key)
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
    late: dict[VariantKey, Trouble] = {}
    histories = {entry.key: entry for entry in after.models}
    remembered: list[ModelMemory] = []
    loads: dict[ModelKey, Load] = {}
    gpus = (snapshot.inventory_detail or "not read") if stock.frozen else ""
    for model, need, allowed in zip(models, needs, all_terms, strict=True):
        verdicts = settle(model, need, allowed, plan, policy.scale_to_zero_for(model.key), now)
        # 6 explain: the decisions in words, and what the next cycle must know
        decisions = explain(model, need, allowed, verdicts, gpus=gpus)
        if need.rate is not None and need.hold is None:
            serving = need.carried({each.key: each.progress.serving for each in model.variants})
            desired = need.carried({decision.key: decision.desired for decision in decisions})
            loads[model.key] = Load(need.demand, need.rate.error, serving, desired)
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
                if trouble := lateness(decision, each.progress):
                    late[each.key] = trouble
                continue
            # A variant that stays at zero has neither number nor clock. Its message still names a limit.
            resting, forgotten = asleep(each.progress.variant)
            if decision.limits:
                resting = replace(resting, message=f"{resting.message}; {decision.message}", steps=decision.steps)
            entries.append((resting, forgotten))
    entries += [asleep(variant) for variant in sleeping]
    entries.sort(key=lambda entry: entry[0].key)
    return Outcome(
        tuple([decision for decision, _ in entries]),
        replace(after, variants=tuple([entry for _, entry in entries]), models=tuple(remembered), failing=()),
        rules=ruled,
        late=late,
        loads=loads,
        ceilings={
            need.key: need.rate.ceiling for need in measured if need.rate is not None and need.rate.ceiling < math.inf
        },
        solved={
            each.key: each.solved
            for need in measured
            for each in (need, need.second)
            if each is not None and each.solved is not None
        },
    )


def fitted(wants: Sequence[Want], needs: Mapping[ModelKey, Need], stock: Stock, policy: AllocationPolicy) -> Plan:
    """Return a plan whose replicas together carry what each model wants, as ``Need.carried`` computes it.

    The allocator adds capacities up. But what replicas carry together may depend on their number, and on the variants
    among which a gateway spreads requests (``Need.carries``). So the need is scaled by the error of the sum, and the
    allocator is asked again. A plan that carries too little cannot come again: its sum is below the next need.
    """
    asked = {each.key: each for each in wants}
    plan = allocate(wants, stock, policy)
    open_ = [each for each in wants if each.need > 0.0 and needs[each.key].carries is not None]
    for turn in range(_ROUNDS):
        changed = False
        for each in open_:
            counts = {offer.key: plan.numbers[offer.key] for offer in each.offers}
            # Replicas without a known capacity keep their number, and carry no part of the need.
            still = {offer.key: counts[offer.key] for offer in each.offers if not offer.capacity > 0.0}
            carried = needs[each.key].carried(counts)
            carried -= needs[each.key].carried(still) if still else 0.0
            short = carried < each.need * _ENOUGH
            # The first plan may also have been too large. After that needs only grow, so that this ends.
            if carried > 0.0 and (short or turn == 0):
                total = sum([offer.capacity * counts[offer.key] for offer in each.offers])
                asked[each.key] = replace(each, need=each.need * total / carried)
                changed = True
        if not changed:
            break
        plan = allocate(list(asked.values()), stock, policy)
    return plan
