"""Which optimizer turns the need of a model into replicas, and how the model-based one shares scarce GPUs.

The percentage analyzer finds that replicas have too little spare; ``sized`` and ``one-step`` answer that. Analyzers
that know capacities say how much is missing; the other optimizers answer that. The demand analyzer has no choice of
optimizers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Analyzer(StrEnum):
    """What turns the load of a model into a need for replicas, under the names of ``analyzerName``."""

    PERCENTAGE = ""
    TOKENS = "saturation"
    QUEUEING = "queueing"
    DEMAND = "demand"

    @property
    def shown(self) -> str:
        """Its name for people; ``analyzerName`` may say it, too."""
        return self.value or "percentage"


ANALYZERS_BY_NAME: Final = {name: analyzer for analyzer in Analyzer for name in (analyzer.shown, analyzer.value)}
"""What ``analyzerName`` may say; version 0.5 had the empty name for the percentage analyzer."""


class Optimizer(StrEnum):
    """What turns a need into replicas, under the names of ``optimizerName``; empty is that of the analyzer."""

    BY_ANALYZER = ""
    SIZED = "sized"
    ONE_STEP = "one-step"
    COST_AWARE = "cost-aware"
    GREEDY_BY_SCORE = "greedy-by-score"
    MODEL_BASED = "model-based"


FITTING: Final = {
    Analyzer.PERCENTAGE: (Optimizer.SIZED, Optimizer.ONE_STEP),
    Analyzer.TOKENS: (Optimizer.COST_AWARE, Optimizer.GREEDY_BY_SCORE),
    Analyzer.QUEUEING: (Optimizer.MODEL_BASED, Optimizer.COST_AWARE, Optimizer.GREEDY_BY_SCORE),
    Analyzer.DEMAND: (),
}
"""The optimizers of each analyzer, its default first; empty if there is no choice."""


def fits(optimizer: Optimizer, analyzer: Analyzer) -> bool:
    """Tell whether an optimizer can answer what an analyzer finds."""
    return optimizer is Optimizer.BY_ANALYZER or optimizer in FITTING[analyzer]


class BestEffort(StrEnum):
    """What a model gets if it cannot have all the GPUs that it needs (``saturationPolicy``)."""

    NONE = "None"
    PRIORITY_EXHAUSTIVE = "PriorityExhaustive"
    PRIORITY_ROUND_ROBIN = "PriorityRoundRobin"
    ROUND_ROBIN = "RoundRobin"


@dataclass(frozen=True, slots=True)
class SolverPolicy:
    """How the model-based optimizer shares GPUs among all models.

    ``unlimited``: True never looks at the GPUs that there are, False always does, and None does while a GPU budget is
    in force. ``delayed``: best effort begins only after all classes were served, not after each.
    """

    unlimited: bool | None = None
    delayed: bool = False
    best_effort: BestEffort = BestEffort.NONE


BY_BUDGET: Final = SolverPolicy()
