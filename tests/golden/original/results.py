"""What sizing and evaluation of a replica give, as values without numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Where(StrEnum):
    """Where in the usable range a latency meets its target."""

    NO_TARGET = "no target"
    INFEASIBLE = "infeasible"
    INTERIOR = "interior"
    UNCONSTRAINED = "unconstrained"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The highest rate (requests per second) at which a target is met, and where that is.

    ``flat``: no usable rate changes the latency. ``best`` is the latency in ms at the lowest rate.
    """

    rate: float
    where: Where
    flat: bool = False
    best: float = math.nan


@dataclass(frozen=True, slots=True)
class Performance:
    """What one replica does at a rate: requests per second, ms.

    ``rho`` is the used share of the batch, ``busy`` the share of time in which there is any request at all.
    """

    throughput: float
    service: float
    wait: float
    ttft: float
    itl: float
    prefill: float
    serving: float
    batch: float
    rho: float
    busy: float
    loss: float


@dataclass(frozen=True, slots=True)
class Sizing:
    """What one replica can take.

    ``rate`` is what it completes per second at the tightest limit, None when there is none; then ``problem`` says why.
    """

    rate: float | None
    problem: str = ""
    ttft: RateLimit | None = None
    itl: RateLimit | None = None
    tps_rate: float = math.nan
    lowest_rate: float = math.nan
    highest_rate: float = math.nan
    performance: Performance | None = None
