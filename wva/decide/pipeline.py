"""``decide``: Snapshot, Memory, Policy and now in; one Decision per variant and the next Memory out.

``_conclude`` calls the six steps of a cycle in their order. All models go through each step together. The same inputs
give the same decisions to the last bit, in any order of the objects, so a recorded cycle can be replayed.

The order of the rules is that of the table ``RULES`` in ``decide.rules``: the first rule that holds gives the number.
"""

from __future__ import annotations

from collections.abc import Sequence

from wva.decide import v05
from wva.decide.explain import explain, load_of, to_publish
from wva.decide.failed import Load, Outcome, asleep, isolated
from wva.decide.foresee import foresee
from wva.decide.measure import ceilings, measure, solutions
from wva.decide.measure.need import Need
from wva.decide.prices import stated
from wva.decide.progress import lateness
from wva.decide.rules import Rule, Terms, Verdict
from wva.decide.settle import remembered, settle, settled_or_zero, zeros_of
from wva.decide.trust import ModelReadings, believe
from wva.decide.wants import parts_of, planned, stock_of, terms, with_roles
from wva.model.decision import Decision
from wva.model.memory import Memory, ModelMemory
from wva.model.policy import Compatibility, Policy
from wva.model.records import let_go, replace
from wva.model.snapshot import Snapshot
from wva.model.trouble import Trouble
from wva.model.variant import ModelKey, Variant, VariantKey


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
    measured, after = measure(models, memory, policy, now)
    # 3 foresee: what it will need when a replica that is ordered now serves
    urgent = frozenset(snapshot.urgent)
    needs, after = foresee(measured, models, after, policy, now, woken=snapshot.woken, urgent=urgent)
    # 4 allocate: the cheapest numbers of all models, within bounds, quotas and GPUs
    parts = parts_of(models, needs)
    needs = with_roles(models, needs, parts)
    stock = stock_of(snapshot, policy)
    allowed = [terms(model, need) for model, need in zip(models, needs, strict=True)]
    plan = planned(models, needs, parts, allowed, stock, policy)
    # 5 settle: which rule holds for each variant
    settled = [
        settle(model, need, model_terms, plan) for model, need, model_terms in zip(models, needs, allowed, strict=True)
    ]
    zeros = zeros_of(models, needs, policy)
    settled = settled_or_zero(models, needs, settled, zeros, now)
    # 6 explain: the decisions in words, and what the next cycle must know
    gpus = (snapshot.inventory_detail or "not read") if stock.frozen else ""
    decisions = [
        explain(model, need, model_terms, verdicts, gpus=gpus, binding=plan.binding.get(model.key.whole))
        for model, need, model_terms, verdicts in zip(models, needs, allowed, settled, strict=True)
    ]
    cases = list(zip(models, needs, allowed, settled, decisions, strict=True))
    outcome = _outcome(cases, sleeping, measured, after, now)
    idle = {model.key.whole: zero.retention_seconds for model, zero in zip(models, zeros, strict=True) if zero.enabled}
    outcome = replace(outcome, retentions=idle)
    let_go(cases, models, measured, needs, allowed, settled, decisions)
    return outcome


def _outcome(
    cases: Sequence[tuple[ModelReadings, Need, Terms, list[Verdict], list[Decision]]],
    sleeping: Sequence[Variant],
    measured: Sequence[Need],
    after: Memory,
    now: float,
) -> Outcome:
    """Return the outcome of a cycle. Each case has the readings, need, terms, verdicts and decisions of a model."""
    past = {entry.key: entry for entry in after.models}
    histories: list[ModelMemory] = []
    entries = [asleep(variant) for variant in sleeping]
    rules: dict[VariantKey, Rule] = {}
    late: dict[VariantKey, Trouble] = {}
    loads: dict[ModelKey, Load] = {}
    for model, need, model_terms, verdicts, decisions in cases:
        memory = remembered(past.get(model.key, model.memory), need, model_terms, verdicts, decisions, now)
        if memory.peaks or memory != ModelMemory(model.key):
            histories.append(memory)
        if load := load_of(model, need, decisions):
            loads[model.key.whole] = load.beside(loads.get(model.key.whole))
        for readings, verdict, decision in zip(model.variants, verdicts, decisions, strict=True):
            entries.append(to_publish(decision, readings.progress, now=now))
            rules[readings.key] = verdict.rule
            if trouble := lateness(decision, readings.progress):
                late[readings.key] = trouble
    entries.sort(key=lambda entry: entry[0].key)
    return Outcome(
        tuple([decision for decision, _ in entries]),
        replace(after, variants=tuple([entry for _, entry in entries]), models=tuple(histories), failing=()),
        rules=rules,
        late=late,
        loads=loads,
        ceilings=ceilings(measured),
        solved=solutions(measured),
    )
