"""Step 2: the analyzer of each model measures what the model needs.

An analyzer is one function in a module of its own, and one line in ``ANALYZERS``. In HYBRID mode the queueing analyzer
measures every model, too. After step 3 the larger of the two needs counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

from wva.decide.measure import demand, percentage, tokens
from wva.decide.measure.demand import Observed, observed
from wva.decide.measure.need import REPLICAS, Need
from wva.decide.measure.queues import QueueModel
from wva.decide.trust import ModelReadings
from wva.model.memory import DemandMemory, Memory
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy
from wva.model.records import let_go, replace
from wva.model.variant import ModelKey

__all__ = ["ANALYZERS", "ceilings", "larger", "measure", "present_capacity", "solutions"]

Measuring = Callable[[Sequence[ModelReadings], Memory, Policy, float, Observed], tuple[list[Need], Memory]]
"""Measures all models of an analyzer at once. It gets the models, the memory, the policy, the time in seconds since the
epoch, and what was observed of the models whose requests are counted. It returns the needs of the models, in their
order, and the memory with the analyzer's part replaced."""


def _queueing(
    models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float, observations: Observed
) -> tuple[list[Need], Memory]:
    from wva.decide.measure.queueing import measure as queueing  # noqa: PLC0415 - imports numpy, which takes 20 MB

    return queueing(models, memory, policy, now, observations)


ANALYZERS: Final[Mapping[Analyzer, Measuring]] = {
    Analyzer.PERCENTAGE: percentage.measure,
    Analyzer.TOKENS: tokens.measure,
    Analyzer.QUEUEING: _queueing,
    Analyzer.DEMAND: demand.measure,
}
"""Each analyzer by its name in the configuration."""
_COUNTING: Final = {Analyzer.QUEUEING, Analyzer.DEMAND}  # they share what is observed of requests


def measure(models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float) -> tuple[list[Need], Memory]:
    """Return the needs of all models, in their order, and the memory after the measurement."""
    groups: dict[Analyzer, list[ModelReadings]] = {}
    before, observations = {entry.key: entry for entry in memory.demand}, {}
    for model in models:
        name = policy.analyzer_for(model.key)
        if model.key.role and name is Analyzer.QUEUEING:  # its formulas are of requests with prompt and answer
            name = Analyzer.DEMAND
        groups.setdefault(name, []).append(model)
        if policy.proactive_model or name in _COUNTING:
            observations[model.key] = observed(model, before.get(model.key) or DemandMemory(model.key), now)
    memory = replace(memory, demand=tuple([observation.after for observation in observations.values()]))
    needs: dict[ModelKey, Need] = {}
    for name, group in groups.items():
        group_needs, memory = ANALYZERS[name](group, memory, policy, now, observations)
        needs |= {need.key: need for need in group_needs}
    groups.pop(Analyzer.QUEUEING, None)
    remaining = [model for group in groups.values() for model in group if not model.key.role]
    if policy.proactive_model and remaining:
        group_needs, memory = _queueing(remaining, memory, policy, now, observations)
        for model, second in zip(remaining, group_needs, strict=True):
            needs[model.key] = replace(needs[model.key], second=second)
    let_go(observations)
    return [needs[model.key] for model in models], memory


def ceilings(needs: Sequence[Need]) -> dict[ModelKey, float]:
    """Return the requests in progress that the replicas of each model carry, where that is known.

    Those of all its roles are counted together: the engines count a request in each role that it is at.
    """
    totals: dict[ModelKey, float] = {}
    for need in needs:
        ceiling = inf if need.rate is None else need.rate.ceiling
        totals[need.key.whole] = totals.get(need.key.whole, 0.0) + ceiling
    return {key: ceiling for key, ceiling in totals.items() if ceiling < inf}


def solutions(needs: Sequence[Need]) -> dict[ModelKey, QueueModel]:
    """Return what the queueing formulas found of each model that they were asked about."""
    all_needs = [part for need in needs for part in (need, need.second) if part is not None]
    return {part.key: part.solved for part in all_needs if part.solved is not None}


def present_capacity(model: ModelReadings, need: Need) -> float:
    """Return the capacity of the replicas that are asked for, without those that are overdue or find no node.

    It is in the unit of the need. A variant whose capacity is not known adds nothing.
    """
    progresses = {variant.key: variant.progress for variant in model.variants}
    return need.carried(
        {key: min(progress.base, progress.serving + progress.in_flight) for key, progress in progresses.items()}
    )


def larger(first: Need, second: Need, model: ModelReadings) -> Need:
    """Return the larger of two needs of a model, each as a share of the present capacity in its own unit.

    If one of them holds, or if there is no capacity to compare with, the first counts, with the words of both. A shrink
    must leave what both want to keep, and neither may object to it. If the first only counts replicas, a shrink is in
    the unit of the second, which knows what each replica carries. Otherwise the strongest replicas would go first.
    """
    first_present, second_present = present_capacity(model, first), present_capacity(model, second)
    if first.hold is not None or second.hold is not None or not (first_present > 0 and second_present > 0):
        return replace(first, summary=f"{first.summary}; Hybrid mode: {second.summary}")
    calm = not first.wish and first.required <= first_present and first.unit == REPLICAS
    larger_share = (
        second.required / second_present > first.required / first_present and second.required > second_present
    )
    leading, following, scale, limit = first, second, first_present / second_present, first_present
    if calm or larger_share:
        leading, following, scale, limit = second, first, second_present / first_present, second_present
    removable = [need.most_removed for need in (first, second) if need.most_removed is not None]
    return replace(
        leading,
        sufficient=max(leading.sufficient, following.sufficient * scale),
        required=max(leading.required, min(following.required * scale, limit)),
        objection=first.objection or second.objection,
        recalls=first.recalls and second.recalls,
        most_removed=min(removable, default=None),
        aims=first.aims,
        summary=f"{leading.summary}; Hybrid mode: {following.summary}",
    )
