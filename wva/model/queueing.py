"""What the queueing analyzer remembers from cycle to cycle, and what it thinks of a model. Values without numpy.

Parameters are those of a replica as it can be observed from outside (optimizer.md 2.1, the later parameterisation): an
iteration over n requests takes alpha + n * (beta * computed tokens + gamma * resident tokens) milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wva.model.variant import ModelKey, VariantKey

WINDOW: Final = 16
"""Observations kept per model and accelerator."""

OBSERVATION_SECONDS: Final = 3600.0
"""Older observations say nothing about the replicas of today."""

ESTIMATE_SECONDS: Final = 7 * 86400.0
"""Without any observation for so long an estimate is forgotten."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a replica did in a cycle: requests per second, mean tokens per request, mean latencies in ms.

    ``batch`` is the largest number of requests that it computes at once; ``time`` in seconds since the epoch.
    """

    time: float
    rate: float
    input_tokens: float
    output_tokens: float
    ttft: float
    itl: float
    batch: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated alpha (ms), beta (ms per computed token) and gamma (ms per resident token).

    ``error`` is the root mean square of ln(model / observed) over the window. ``identified`` (0 to 3) counts the
    directions in which the observations, rather than the prior, decide.
    """

    alpha: float
    beta: float
    gamma: float
    error: float = 0.0
    identified: int = 0


@dataclass(frozen=True, slots=True)
class Learned:
    """The observations of a model on an accelerator, oldest first, and the estimate made from them."""

    model: ModelKey
    accelerator: str
    observations: tuple[Observation, ...] = ()
    estimate: Estimate | None = None

    @property
    def updated(self) -> float:
        """Time of the last observation, in seconds since the epoch."""
        return max((each.time for each in self.observations), default=0.0)

    def observing(self, new: Iterable[Observation], *, now: float) -> Learned:
        """Return it with more observations, without those that are too old or too many."""
        recent = (each for each in (*self.observations, *new) if now - each.time <= OBSERVATION_SECONDS)
        kept = tuple(sorted(recent, key=lambda each: each.time))[-WINDOW:]
        return Learned(self.model, self.accelerator, kept or self.observations[-1:], self.estimate)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Requests inside the replicas of a variant at a time (seconds since the epoch): running and waiting."""

    variant: VariantKey
    time: float
    requests: float


@dataclass(frozen=True, slots=True)
class QueueingMemory:
    """What the analyzer left: backlogs sorted by variant, what was learned sorted by model and accelerator."""

    backlogs: tuple[Backlog, ...] = ()
    learned: tuple[Learned, ...] = ()

    def backlog(self, variant: VariantKey) -> Backlog | None:
        """Return the last backlog of a variant, None when it is new."""
        return next((each for each in self.backlogs if each.variant == variant), None)

    def of(self, model: ModelKey, accelerator: str) -> Learned:
        """Return what is known of a model on an accelerator, which may be nothing."""
        known = (each for each in self.learned if (each.model, each.accelerator) == (model, accelerator))
        return next(known, Learned(model, accelerator))


NOTHING_OBSERVED: Final = QueueingMemory()
