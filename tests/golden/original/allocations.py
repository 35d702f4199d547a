"""The values of an allocation, without numpy: servers, allocations, and the solvers' view of a system.

A *server* serves one model for one service class. An *allocation* gives it replicas on one accelerator.
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
    """Requests per minute, and their mean tokens."""

    per_minute: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class Allocation:
    """Replicas on an accelerator, their cost and their performance.

    The solvers minimise ``value``: the cost of the change from the current allocation.
    ``itl``, ``ttft`` and ``wait`` are means in ms, ``rho`` the used share of the batch and ``busy`` the share of time
    with any request, all at the offered load. ``rate`` is the rate that one replica serves within its targets, and
    ``offered`` the rate that the server must serve, both in requests per second. Only best effort uses an allocation
    that leaves ``short`` requests per second unserved. An allocation with ``parts`` is their sum, on several
    accelerators.
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
        """Requests per minute that one replica serves within its targets."""
        return self.rate * 60

    def cut(self, replicas: int) -> Allocation:
        """Return a part of the allocation that fits the capacity; its latencies are still those of the whole."""
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
    """How to solve. With ``delayed``, best effort begins after all classes were served, not after each."""

    unlimited: bool = True
    best_effort: BestEffort = BestEffort.NONE
    delayed: bool = False


class Market(Protocol):
    """The view of a system that the solvers need."""

    @property
    def options(self) -> Options:
        """How to solve."""
        ...

    @property
    def servers(self) -> Mapping[str, OriginalServer]:
        """All servers by name."""
        ...

    @property
    def capacity(self) -> Mapping[str, int]:
        """Existing cards by type."""
        ...

    def rank(self, server: OriginalServer) -> int:
        """Return the priority of a server; 1 is the highest."""
        ...

    def type_of(self, accelerator: str) -> str:
        """Return the type of card that counts an accelerator."""
        ...

    def cards(self, server: OriginalServer, accelerator: str) -> int:
        """Return the cards that one replica needs."""
        ...
