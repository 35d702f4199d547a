"""The results of sizing and evaluating a replica, as values without numpy."""

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
    """The highest rate (requests per second) that meets a target, and where in the usable range it is.

    If ``flat``, no usable rate changes the latency. ``best`` is the latency in ms at the lowest rate.
    """

    rate: float
    where: Where
    flat: bool = False
    best: float = math.nan


@dataclass(frozen=True, slots=True)
class Performance:
    """The performance of one replica at a rate, in requests per second and ms.

    ``rho`` is the used share of the batch, ``busy`` the share of time with at least one request.
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
    """The highest rate of one replica.

    ``rate`` is the number of requests completed per second at the tightest limit. If no rate meets the targets, it is
    None and ``problem`` says why.
    """

    rate: float | None
    problem: str = ""
    ttft: RateLimit | None = None
    itl: RateLimit | None = None
    tps_rate: float = math.nan
    lowest_rate: float = math.nan
    highest_rate: float = math.nan
    performance: Performance | None = None
