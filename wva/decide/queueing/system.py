"""What is to be allocated, as values without numpy: accelerators, profiles, classes, servers.

A *server* is what serves one model for one service class. An *allocation* gives it replicas on one accelerator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from wva.decide.queueing.service import Parameters, Queue
from wva.decide.queueing.targets import Target
from wva.model.optimizers import BestEffort

LOWEST_PRIORITY: Final = 100
NO_ACCELERATOR: Final = ""
"""Accelerator of an allocation without replicas."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """``multiplicity`` cards of a ``type`` that is counted; the cost is that of all of them together."""

    name: str
    type: str
    cost: float
    multiplicity: int = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """How a model performs on an accelerator.

    ``accelerators`` are needed for one replica. ``max_batch`` was found at ``at_tokens`` tokens per answer, at any
    number of tokens if that is 0 (departure: the original divided by it).
    """

    model: str
    accelerator: str
    parameters: Parameters
    max_batch: int
    at_tokens: int = 0
    accelerators: int = 1

    @property
    def units(self) -> int:
        """Accelerators per replica, at least 1."""
        return self.accelerators if self.accelerators > 0 else 1


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """Targets per model. A priority outside 1 (most important) to 100 counts as 100."""

    name: str
    priority: int
    targets: Mapping[str, Target]

    @property
    def rank(self) -> int:
        """The priority in force."""
        return self.priority if 1 <= self.priority <= LOWEST_PRIORITY else LOWEST_PRIORITY


@dataclass(frozen=True, slots=True)
class Load:
    """Arriving requests per minute, and their mean tokens."""

    per_minute: float
    input_tokens: float
    output_tokens: float

    def problem(self) -> str:
        """Return in words what is wrong, empty if nothing is."""
        for name, value in (
            ("arrival rate", self.per_minute),
            ("input tokens", self.input_tokens),
            ("output tokens", self.output_tokens),
        ):
            if not (math.isfinite(value) and value >= 0):
                return f"{name} {value:g}, expected a number of at least 0"
        return ""

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute."""
        return self.per_minute == 0 or self.output_tokens == 0


@dataclass(frozen=True, slots=True)
class Allocation:
    """Replicas on an accelerator, what they cost, and what they do.

    ``value`` is what the solvers minimise: the cost of getting there from the current allocation.
    ``itl``, ``ttft`` and ``wait`` are means in ms, ``rho`` the used share of the batch and ``busy`` the share of time
    with any request, all at the offered load; ``rate`` is what one replica takes within its targets, and ``offered``
    what the server is asked for, both in requests per second. One that leaves ``short`` requests per second of that is
    for best effort alone; one with ``parts`` is all of these, on several accelerators.
    """

    accelerator: str
    replicas: int
    batch: int = 0
    cost: float = 0.0
    value: float = 0.0
    itl: float = 0.0
    ttft: float = 0.0
    wait: float = 0.0
    rho: float = 0.0
    busy: float = 0.0
    rate: float = 0.0
    offered: float = 0.0
    queue: Queue | None = None
    short: float = 0.0
    parts: tuple[Allocation, ...] = ()

    @property
    def max_rpm(self) -> float:
        """Requests per minute that one replica takes within its targets."""
        return self.rate * 60

    def saturated(self, per_minute: float) -> bool:
        """Whether more requests arrive per minute than the replicas take within their targets."""
        return per_minute > self.replicas * self.max_rpm

    def cut(self, replicas: int) -> Allocation:
        """Return the part of the allocation that there is capacity for; its latencies are those of the whole still."""
        factor = replicas / self.replicas
        return replace(self, replicas=replicas, cost=self.cost * factor, value=self.value * factor)


@dataclass(frozen=True, slots=True)
class Server:
    """One model for one class. ``max_batch`` 0 derives the batch from the profile."""

    name: str
    service_class: str
    model: str
    load: Load
    current: Allocation = field(default_factory=lambda: Allocation(NO_ACCELERATOR, 0))
    keep_accelerator: bool = False
    min_replicas: int = 0
    max_batch: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """How to solve. ``delayed``: best effort only after all classes were served, not after each."""

    unlimited: bool = True
    best_effort: BestEffort = BestEffort.NONE
    delayed: bool = False


class Market(Protocol):
    """What the solvers ask of a system."""

    @property
    def options(self) -> Options:
        """How to solve."""
        ...

    @property
    def servers(self) -> Mapping[str, Server]:
        """Everybody who may be served, by name."""
        ...

    @property
    def capacity(self) -> Mapping[str, int]:
        """Cards that there are, by type."""
        ...

    def rank(self, server: Server) -> int:
        """Return the priority of a server, 1 the highest."""
        ...

    def type_of(self, accelerator: str) -> str:
        """Return in which kind of cards an accelerator is counted."""
        ...

    def cards(self, server: Server, accelerator: str) -> int:
        """Return the cards that one replica takes."""
        ...


@dataclass(frozen=True, slots=True)
class System:
    """Everything an allocation depends on; ``capacity`` counts cards per type."""

    accelerators: Mapping[str, Accelerator]
    profiles: Mapping[tuple[str, str], Profile]
    classes: Mapping[str, ServiceClass]
    servers: Mapping[str, Server]
    capacity: Mapping[str, int] = field(default_factory=dict)
    options: Options = Options()

    def rank(self, server: Server) -> int:
        """Return the priority of a server; one of an unknown class comes last."""
        known = self.classes.get(server.service_class)
        return LOWEST_PRIORITY if known is None else known.rank

    def type_of(self, accelerator: str) -> str:
        """Return in which kind of cards an accelerator is counted."""
        return self.accelerators[accelerator].type

    def cards(self, server: Server, accelerator: str) -> int:
        """Return the cards that one replica takes."""
        return self.profiles[server.model, accelerator].units * self.accelerators[accelerator].multiplicity


def transition_value(current: Allocation, accelerator: str, *, replicas: int, cost: float) -> float:
    """Return the change in cost, with a penalty of a tenth of both costs for another accelerator."""
    if current.accelerator == accelerator:
        return 0.0 if current.replicas == replicas else cost - current.cost
    return _PENALTY * (current.cost + cost) + (cost - current.cost)


_PENALTY: Final = 0.1
