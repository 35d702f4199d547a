"""The values of an allocation, without numpy: servers, allocations, and what the solvers ask of a system.

A *server* is what serves one model for one service class. An *allocation* gives it replicas on one accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from tests.golden.original.queues import BoundedQueue
from wva.model.optimizers import BestEffort
from wva.model.records import replace

NO_ACCELERATOR: Final = ""
"""Accelerator of an allocation without replicas."""


@dataclass(frozen=True, slots=True)
class OriginalLoad:
    """Arriving requests per minute, and their mean tokens."""

    per_minute: float
    input_tokens: float
    output_tokens: float


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
    queue: BoundedQueue | None = None
    short: float = 0.0
    parts: tuple[Allocation, ...] = ()

    @property
    def max_rpm(self) -> float:
        """Requests per minute that one replica takes within its targets."""
        return self.rate * 60

    def cut(self, replicas: int) -> Allocation:
        """Return the part of the allocation that there is capacity for; its latencies are those of the whole still."""
        factor = replicas / self.replicas
        return replace(self, replicas=replicas, cost=self.cost * factor, value=self.value * factor)


@dataclass(frozen=True, slots=True)
class OriginalServer:
    """One model for one class. ``max_batch`` 0 derives the batch from the profile."""

    name: str
    service_class: str
    model: str
    load: OriginalLoad
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
    def servers(self) -> Mapping[str, OriginalServer]:
        """All servers that may be served, by name."""
        ...

    @property
    def capacity(self) -> Mapping[str, int]:
        """Cards that there are, by type."""
        ...

    def rank(self, server: OriginalServer) -> int:
        """Return the priority of a server, 1 the highest."""
        ...

    def type_of(self, accelerator: str) -> str:
        """Return in which kind of cards an accelerator is counted."""
        ...

    def cards(self, server: OriginalServer, accelerator: str) -> int:
        """Return the cards that one replica takes."""
        ...
