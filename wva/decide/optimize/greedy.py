"""Greedy by score: scarce GPUs are shared among the models that need them.

The weight of a model is its priority times the capacity that it lacks. The heaviest model is served until its weight is
no more than the mean of the models that still wait; then the model that is the heaviest now is served, and so on. So
every model that needs GPUs gets some, and the model that needs most gets most. Within a model the rule is that of
cost-aware growth, bounded by the free GPUs of each accelerator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from wva.decide.amounts import rounded_up
from wva.decide.optimize.cost_aware import Candidate
from wva.model.variant import ModelKey
from wva.numbers import MAX_REPLICAS

_FINEST: Final = 1_000
"""A step is at least this part of what a model lacks, so a need of any size takes some thousand steps. For a need
of up to so many replicas this part is one replica at most, so such a need is shared one replica at a time."""


@dataclass(frozen=True, slots=True)
class Need:
    """A model that lacks ``required`` of the analyzer's unit; ``importance`` is priority times score."""

    model: ModelKey
    required: float
    candidates: tuple[Candidate, ...]
    importance: float = 1.0
    limit: int | None = None

    @property
    def weight(self) -> float:
        """The importance times the missing capacity; the missing capacity alone without an importance."""
        return self.importance * self.required or self.required


def share(needs: Sequence[Need], free: Mapping[str, int]) -> dict[ModelKey, tuple[Candidate, ...]]:
    """Return the candidates of every model after sharing ``free`` GPUs, by accelerator, among those in need."""
    left = dict(free)
    state = {need.model: _possible(need) for need in needs}
    active = [need.model for need in state.values() if need.weight > 0]
    while active and any(count > 0 for count in left.values()):
        weights = [state[model].weight for model in active]
        mean = sum(weights) / len(weights)
        heaviest = max(weights)
        model = active[weights.index(heaviest)]
        goal = heaviest - _reference(heaviest, mean, len(active))
        served = _serve(state[model], goal, left)
        progressed = served.required < state[model].required
        state[model] = served
        if not progressed or served.weight > mean or served.weight <= 0:
            active.remove(model)
    return {model: need.candidates for model, need in state.items()}


def _possible(need: Need) -> Need:
    """Return a need with no more than its variants can carry with all replicas that there can be."""
    most = max((candidate.per_replica for candidate in need.candidates), default=0.0) * MAX_REPLICAS
    return need if need.required <= most else replace(need, required=most)


def _reference(weight: float, mean: float, count: int) -> float:
    """Return down to which weight a model is served before others have their turn."""
    if count == 1:
        return 0.0
    return mean if weight > mean else mean - weight / count


def _serve(need: Need, goal: float, left: dict[str, int]) -> Need:
    """Grow one model by at most ``goal``, taking from the free GPUs."""
    candidates = list(need.candidates)
    target = min(need.required, max(goal, need.required / _FINEST))
    required, allowed = need.required, math.inf if need.limit is None else need.limit
    for index in sorted(range(len(candidates)), key=lambda index: candidates[index].cost_per_capacity):
        candidate = candidates[index]
        if target <= 0 or candidate.per_replica <= 0:
            break
        gpus = max(1, candidate.gpus_per_replica)
        affordable = left.get(candidate.accelerator, 0) // gpus
        count = int(min(rounded_up(target / candidate.per_replica), affordable, candidate.room, allowed))
        if count > 0:
            candidates[index] = candidate.by(count)
            left[candidate.accelerator] -= count * gpus
            allowed -= count
            target -= count * candidate.per_replica
            required = max(0.0, required - count * candidate.per_replica)
    limit = None if need.limit is None else int(allowed)
    return replace(need, required=required, candidates=tuple(candidates), limit=limit)
