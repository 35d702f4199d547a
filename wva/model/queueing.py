"""What the queueing analyzer remembers from cycle to cycle, and what it thinks of a model. Values without numpy.

Parameters are those that can be learned from what a replica reports: an iteration over n requests takes
alpha + n * (beta * computed tokens + gamma * resident tokens) milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wva.model.absence import Absence
from wva.model.capacity import ModelCapacity
from wva.model.variant import ModelKey, VariantKey

WINDOW: Final = 16
"""Observations kept per model and accelerator."""

OBSERVATION_SECONDS: Final = 3600.0
"""Older observations say nothing about the replicas of today."""

BACKLOG_SECONDS: Final = 600.0
"""A backlog that is older says nothing about how fast the queues grow."""

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
    directions in which the observations, rather than the prior, decide. ``fitted`` is when it was made, in seconds
    since the epoch.
    """

    alpha: float
    beta: float
    gamma: float
    error: float = 0.0
    identified: int = 0
    fitted: float = 0.0


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
    """Requests of a model that had arrived and were not answered at a time (seconds since the epoch)."""

    model: ModelKey
    time: float
    requests: float


@dataclass(frozen=True, slots=True)
class QueueingMemory:
    """What the analyzer left: backlogs sorted by model, what was learned sorted by model and accelerator."""

    backlogs: tuple[Backlog, ...] = ()
    learned: tuple[Learned, ...] = ()

    def backlog(self, model: ModelKey) -> Backlog | None:
        """Return the last backlog of a model, None when it is new."""
        return next((each for each in self.backlogs if each.model == model), None)

    def of(self, model: ModelKey, accelerator: str) -> Learned:
        """Return what is known of a model on an accelerator, which may be nothing."""
        known = (each for each in self.learned if (each.model, each.accelerator) == (model, accelerator))
        return next(known, Learned(model, accelerator))

    def updated(self, backlogs: Iterable[Backlog], learned: Iterable[Learned], *, now: float) -> QueueingMemory:
        """Return the memory after a cycle: what it saw replaced, the rest kept until it is too old."""
        requests = {each.model: each for each in self.backlogs} | {each.model: each for each in backlogs}
        known = {(each.model, each.accelerator): each for each in self.learned}
        known |= {(each.model, each.accelerator): each for each in learned}
        return QueueingMemory(
            tuple(requests[key] for key in sorted(requests) if now - requests[key].time <= BACKLOG_SECONDS),
            tuple(known[key] for key in sorted(known) if now - known[key].updated <= ESTIMATE_SECONDS),
        )


NOTHING_OBSERVED: Final = QueueingMemory()


@dataclass(frozen=True, slots=True)
class Plan:
    """What the replicas that the model asks for would do at the present load.

    ``batch`` requests at once per replica, cost of all replicas and its change, mean latencies in ms, ``busy`` the
    share of time with any request, ``max_rpm`` the requests per minute that one replica takes within the targets.
    """

    replicas: int
    batch: int
    cost: float
    value: float
    itl: float
    wait: float
    ttft: float
    busy: float
    max_rpm: float
    per_minute: float

    @property
    def saturated(self) -> bool:
        """Whether more requests arrive than the replicas take within the targets."""
        return self.per_minute > self.replicas * self.max_rpm


@dataclass(frozen=True, slots=True)
class VariantOpinion:
    """What the model says of one variant. ``desired`` None is no opinion, never 0; ``words`` says why.

    ``rate`` is what one replica takes within the targets in requests per second, None when that is not known;
    ``basis`` where its parameters come from. ``cards`` are the GPUs of one replica. ``denied`` are the replicas fewer
    than it would have if there were GPUs enough, ``limited_by`` whose limit that is.
    """

    key: VariantKey
    accelerator: str
    desired: int | None
    words: str
    rate: float | None = None
    basis: str = ""
    cards: int = 1
    plan: Plan | None = None
    denied: int = 0
    limited_by: str = ""


@dataclass(frozen=True, slots=True)
class ModelOpinion:
    """What the model-based optimizer says of a model.

    ``arrivals`` are the requests per second that arrive: those answered and those that made the queues longer.
    ``hold`` says why there is no opinion at all, ``objection`` why nothing may shrink. ``capacity`` says the same as
    supply and demand in requests per second, for optimizers that turn these into replicas. ``candidates`` is the number
    of ways to carry the demand among which the solver chose.
    """

    key: ModelKey
    variants: tuple[VariantOpinion, ...]
    capacity: ModelCapacity
    arrivals: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    ttft_milliseconds: float = 0.0
    itl_milliseconds: float = 0.0
    tps: float = 0.0
    class_name: str = ""
    hold: Absence | None = None
    objection: str = ""
    summary: str = ""
    candidates: int = 0

    def of(self, variant: VariantKey) -> VariantOpinion | None:
        """Return the opinion about a variant, None when there is none."""
        return next((each for each in self.variants if each.key == variant), None)
