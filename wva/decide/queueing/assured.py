"""From targets to the rate of one replica at which a share of the requests meets them, for many replicas at once.

A target for the mean latency is met by about half of the requests. Where requests one by one shall meet it, the
latencies at a load that is exceeded rarely are compared. Everything is in closed form, so that all replicas of a fleet
take a few dozen operations on columns. Formulas: docs/design/queueing-formulas.md#assured-rates.

Requests inside a replica. At a rate x their mean is N = x * base / (1 - x * slope), since a request takes
base + slope * n ms among n. Their variance is N / (1 - x * slope), less where a router evens out several replicas, and
more where requests differ in size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from wva.decide.queueing.service import Service, Target

ATTAINMENT: Final = 0.95
"""Share of the requests that shall meet their targets."""

MISSED: Final = (1 - ATTAINMENT) / 2
"""Share of the requests that may miss a target while the load is steady: the other half of what is allowed is left to
what comes too fast for any replica."""

DEVIATIONS: Final = 2.0
"""Standard deviations above its mean that a load exceeds with this probability."""

UNEVEN: Final = 0.35
"""Share of the variance that a router does not even out: it does not know how long answers will be."""

MOST_USED: Final = 0.97
"""Share of the highest rate that may be used at all."""

_ROUNDS: Final = 4
_POINTS: Final = 64
"""Rates of an interval that are tried at once, in so many rounds: to 1e-7 of it."""

_BEYOND: Final = 1 + 1e-5
"""A rate that is beyond the limit that was found, by more than its error."""

SEQUENCES, ITL, TTFT = "sequences", "ITL", "TTFT"
"""What limits a replica: how many requests it computes at once, or a target."""

Numbers = NDArray[np.float64]


class Assured(Struct, frozen=True, gc=False):
    """What a replica takes: ``rate`` in requests per second, with the share ``used`` of its sequences, and its limit.

    ``itl`` and ``ttft`` are the latencies in ms that hardly any request exceeds at that rate, ``least_itl`` and
    ``least_ttft`` those of a request that is alone. ``feasible`` is false where one of these is above its target: then
    the rate is the one at the limit that is left. A request takes ``base`` + ``slope`` * n ms among n, and ``size`` are
    computed at once.
    """

    rate: float
    used: float
    itl: float
    ttft: float
    least_itl: float
    least_ttft: float
    limit: str
    feasible: bool
    base: float
    slope: float
    size: float

    def rate_at(self, used: float) -> float:
        """Return the requests per second while this share of the sequences is in use."""
        inside = used * self.size
        return 1000 * inside / (self.base + self.slope * inside)


def assure(services: Sequence[Service], targets: Sequence[Target], pooled: Sequence[float]) -> list[Assured]:
    """Return for each replica and its target what it takes; ``pooled``: among how many a router evens out the load."""
    if not services:
        return []
    rows = [
        (*(each.base, each.slope, each.prefill, each.prefill_slope, each.decode, each.decode_slope, each.first),
         *(each.size, each.work, max(1.0, among), target.ttft or np.inf, target.itl or np.inf, target.use))
        for each, target, among in zip(services, targets, pooled, strict=True)
    ]  # fmt: skip
    columns: Numbers = np.array(rows, dtype=np.float64).T
    base, slope, size, wanted_ttft, wanted_itl, use = columns[[0, 1, 7, 10, 11, 12]]
    _, _, least_itl, least_ttft = _latencies(columns, np.zeros(len(rows)))
    possible_itl, possible_ttft = least_itl <= wanted_itl, least_ttft <= wanted_ttft
    bound_itl, bound_ttft = np.where(possible_itl, wanted_itl, np.inf), np.where(possible_ttft, wanted_ttft, np.inf)
    most = np.where(possible_ttft, np.inf, size)
    # What holds at a rate holds at all lower ones.
    top = np.minimum(use, MOST_USED) * size / (base + slope * size)
    rate, width = np.zeros(len(rows)), top
    places = np.arange(1, _POINTS + 1)[:, None] / _POINTS
    for _ in range(_ROUNDS):
        tried = rate + width * places
        _, inside, itl, ttft = _latencies(columns, tried)
        holds = (itl <= bound_itl) & (ttft <= bound_ttft) & (inside <= most)
        held = np.logical_and.accumulate(holds, axis=0).sum(axis=0)
        rate, width = rate + width * (held / _POINTS), np.where(held < _POINTS, width / _POINTS, 0.0)
    mean, inside, itl, ttft = _latencies(columns, rate)
    by_itl = (rate < top) & (_latencies(columns, rate * _BEYOND)[2] > bound_itl)
    full = (rate >= top) | (inside >= size)
    limits = np.where(by_itl, ITL, np.where(full, SEQUENCES, TTFT))
    numbers = (rate * 1000, mean / size, itl, ttft, least_itl, least_ttft)
    found = (*numbers, limits, possible_itl & possible_ttft, base, slope, size)
    return [Assured(*row) for row in zip(*[column.tolist() for column in found], strict=True)]


def _latencies(columns: Numbers, rate: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return what replicas have inside at rates per ms, what is exceeded rarely, and the latencies in ms that are.

    At the rate 0 a request is alone. The time to the first token is a place, the prompts before it, its own prompt. All
    places are taken with the probability of Halfin and Whitt, for few places with that of Sakasegawa; then the wait has
    an exponential tail.
    """
    base, slope, prefill, prefill_slope, decode, decode_slope, first, size, work, pooled = columns[:10]
    alone = 1 / np.maximum(1 - rate * slope, 1e-9)
    mean = rate * base * alone
    # The variance is that of one replica, as far as a router does not even it out.
    variance = mean * (alone / pooled + UNEVEN * (1 - 1 / pooled))
    inside = mean + DEVIATIONS * np.sqrt(variance)
    computed = np.minimum(inside, size)
    itl = decode + decode_slope * computed
    room = np.maximum((size - mean) / np.sqrt(np.maximum(variance, 1e-9)), 0)
    free = 1 / (1 + np.exp(-1.702 * np.minimum(room, 30)))
    taken = 1 / (1 + room * free * np.sqrt(2 * np.pi) * np.exp(np.minimum(room**2 / 2, 300.0)))
    few = np.minimum(mean / size, 1.0) ** (np.sqrt(2 * (size * pooled + 1)) - 1)
    taken = np.maximum(taken, taken * (few / np.maximum(taken, 1e-300)) ** (1 / np.sqrt(size)))
    left = np.maximum(size / (base + slope * size) - rate, 1e-12)
    place = np.log(np.maximum(taken / MISSED, 1.0)) / (pooled * left)
    used = np.minimum(rate * work, MOST_USED)
    behind = work / (2 * (1 - used)) * np.log(np.maximum(used / MISSED, 1.0))
    return mean, inside, itl, place + behind + prefill + prefill_slope * computed + first * itl
