"""Step 2: what each model needs, as the analyzer that it asks for measures it.

An analyzer is one class in a module of its own, and one line in ``ANALYZERS``. All that comes after it is the same for
all of them. HYBRID asks the queueing analyzer about every model, too. Once both needs are foreseen, the larger counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from wva.decide.measure.demand import Demand, Observations
from wva.decide.measure.need import REPLICAS, Need
from wva.decide.measure.percentage import Percentage
from wva.decide.trust import ModelReadings
from wva.model import optimizers
from wva.model.memory import Memory
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.variant import ModelKey

__all__ = ["ANALYZERS", "Analyzer", "larger", "measure", "present_capacity"]


class Analyzer(Protocol):
    """Measures all models that ask for it at once."""

    def measure(
        self, models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float
    ) -> tuple[Sequence[Need], Memory]:
        """Return the needs of models, in their order, and the memory with the analyzer's part of it replaced.

        ``now`` is in seconds since the epoch.
        """
        ...


def _tokens(_: Observations) -> Analyzer:
    from wva.decide.measure.tokens import Tokens  # noqa: PLC0415 - what is not asked for is not imported

    return Tokens()


def _queueing(observations: Observations) -> Analyzer:
    from wva.decide.measure.queueing import Queueing  # noqa: PLC0415 - numpy, if it is wanted

    return Queueing(observations)


ANALYZERS: Final[Mapping[optimizers.Analyzer, Callable[[Observations], Analyzer]]] = {
    optimizers.Analyzer.PERCENTAGE: lambda _: Percentage(),
    optimizers.Analyzer.TOKENS: _tokens,
    optimizers.Analyzer.QUEUEING: _queueing,
    optimizers.Analyzer.DEMAND: Demand,
}
"""How to get each analyzer, by its name in the configuration. Those that count requests share what they observe."""


def measure(models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float) -> tuple[list[Need], Memory]:
    """Return the needs of all models, in their order, and the memory after the measurement."""
    groups: dict[optimizers.Analyzer, list[ModelReadings]] = {}
    for model in models:
        groups.setdefault(policy.analyzer_for(model.key), []).append(model)
    observations = Observations(memory)
    needs: dict[ModelKey, Need] = {}
    for name, group in groups.items():
        found, memory = ANALYZERS[name](observations).measure(group, memory, policy, now)
        needs |= {need.key: need for need in found}
    groups.pop(optimizers.Analyzer.QUEUEING, None)
    asked = [model for group in groups.values() for model in group]
    if policy.proactive_model and asked:
        found, memory = _queueing(observations).measure(asked, memory, policy, now)
        for model, second in zip(asked, found, strict=True):
            needs[model.key] = replace(needs[model.key], second=second)
    after = observations.after
    memory = replace(memory, demand=tuple([after[model.key] for model in models if model.key in after]))
    return [needs[model.key] for model in models], memory


def present_capacity(model: ModelReadings, need: Need) -> float:
    """Return what the replicas carry that are asked for, without those that are overdue or find no node.

    In the unit of the need. A variant whose capacity is not known counts for nothing.
    """
    counts = {}
    for variant in model.variants:
        progress = variant.progress
        counts[variant.key] = min(progress.base, progress.serving + progress.in_flight)
    return need.carried(counts)


def larger(first: Need, second: Need, model: ModelReadings) -> Need:
    """Return the larger of two needs of a model, each as a share of the capacity that there is in its own unit.

    If one of them has no answer, or nothing is there to compare, the first counts, with the words of both. A shrink
    leaves what both want to keep, and neither objects to it. Where the first counts replicas only, a shrink is in the
    unit of the second, which knows what each replica carries: otherwise the strongest would go first.
    """
    present, other = present_capacity(model, first), present_capacity(model, second)
    if first.hold is not None or second.hold is not None or not (present > 0 and other > 0):
        return replace(first, summary=f"{first.summary}; Hybrid mode: {second.summary}")
    calm = not first.wish and first.required <= present and first.unit == REPLICAS
    larger_share = second.required / other > first.required / present and second.required > other
    leading = second if calm or larger_share else first
    following = first if leading is second else second
    scale = present / other if leading is first else other / present
    return replace(
        leading,
        sufficient=max(leading.sufficient, following.sufficient * scale),
        required=max(leading.required, min(following.required * scale, present if leading is first else other)),
        objection=first.objection or second.objection,
        most_removed=min(
            (each for each in (first.most_removed, second.most_removed) if each is not None), default=None
        ),
        summary=f"{leading.summary}; Hybrid mode: {following.summary}",
    )
