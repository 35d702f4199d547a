"""One candidate after the other: numpy computes the closed form over the states of one queue, plain floats the rest.

The benchmark compares the evaluation of all candidates at once with this code. The code is not slowed down on purpose:
it computes once what does not depend on the load, skips targets that cannot bind and latencies that are not asked for,
and finds roots by the same method from the same first guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.golden.original.queues import BoundedQueue
from tests.golden.original.service import ServiceLaw
from tests.golden.original.sizing import EPSILON
from tests.golden.original.targets import OriginalTarget

_SERIES = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600)


class Single:
    """The chain of one queue."""

    def __init__(self, queue: BoundedQueue) -> None:
        """Prepare everything that does not depend on the load."""
        law: ServiceLaw = queue.parameters.law(queue.request)
        self.law, self.size, self.room = law, queue.max_batch, queue.max_queue
        states = np.arange(1, self.size + 1, dtype=np.float64)
        slowest = law.base + law.slope * self.size
        self.top_rate = self.size / slowest
        sums = np.cumsum(np.log(states / self.size * (slowest / (law.base + law.slope * states))))
        self.drops = np.concatenate(([0.0], sums[:-1]))
        self.last_drop = float(sums[-1])
        self.states = np.arange(self.size, dtype=np.float64)
        self.low = math.log(EPSILON * slowest / ((law.base + law.slope) * self.size))

    def latencies(self, x: float) -> tuple[float, float, float]:
        """Return time to first token, inter-token latency and throughput at a logarithmic load of at most 0."""
        logs = x * self.states - self.drops
        tail_log = self.size * x - self.last_drop
        peak = max(float(logs.max()), tail_log)
        weights = np.exp(logs - peak)
        head, weighted = float(weights.sum()), float(weights @ self.states)
        tail_weight = math.exp(tail_log - peak)
        tail = tail_weight * _power_sum(-x, self.room + 1)
        open_tail = tail_weight * _power_sum(-x, self.room)
        total, accepted = head + tail, head + open_tail
        throughput = math.exp(x) * self.top_rate * accepted / total
        wait = tail * _mean_index(-x, self.room + 1) / total / throughput
        batch = (weighted + head + self.size * open_tail) / accepted
        law = self.law
        prefill = law.prefill.constant + law.prefill.batch * batch
        return wait + prefill, law.decode.constant + law.decode.batch * batch, throughput * 1000


def size_one(queue: BoundedQueue, target: OriginalTarget) -> float | None:
    """Return the rate of one replica within its targets, or None if no rate meets them."""
    chain = Single(queue)
    low, high = chain.low, math.log1p(-EPSILON)
    at_low, at_high = chain.latencies(low), chain.latencies(high)
    best = high
    for which, wanted in enumerate((target.ttft, target.itl)):
        if wanted <= 0 or at_high[which] <= wanted:
            continue
        if at_low[which] > wanted:
            return None
        goal = math.log(wanted)
        values = math.log(at_low[which]) - goal, math.log(at_high[which]) - goal
        best = min(best, _root(_excess(chain, which, goal), low, high, values))
    return chain.latencies(best)[2]


def _excess(chain: Single, which: int, goal: float) -> Callable[[float], float]:
    return lambda x: math.log(chain.latencies(x)[which]) - goal


def _root(function: Callable[[float], float], low: float, high: float, values: tuple[float, float]) -> float:
    """Return the root by Chandrupatla's method, to 1e-12."""
    b, a, c = low, high, low
    fb, fa, fc = values[0], values[1], values[0]
    share = min(max((high - math.log(0.75)) / (high - low), 0.01), 0.5)
    while True:
        best = a if abs(fa) < abs(fb) else b
        tolerance = max(1e-12, 8.9e-16 * abs(best))
        width = abs(b - a)
        if width <= tolerance or fa == 0 or fb == 0:
            return best
        point = a + share * (b - a)
        value = function(point)
        if (value > 0) == (fa > 0):
            c, fc = a, fa
        else:
            c, b, fc, fb = b, a, fb, fa
        a, fa = point, value
        share = _share((a, b, c), (fa, fb, fc))
        least = 0.5 * tolerance / max(abs(b - a), tolerance)
        share = min(max(share, least), 1 - least)


def _share(points: tuple[float, float, float], values: tuple[float, float, float]) -> float:
    (a, b, c), (fa, fb, fc) = points, values
    if c == b or fc == fb:
        return 0.5
    xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
    if not (phi * phi < xi and (1 - phi) * (1 - phi) < 1 - xi):
        return 0.5
    return fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)


def _power_sum(y: float, terms: int) -> float:
    return math.expm1(-terms * y) / math.expm1(-y) if y else float(terms)


def _mean_index(y: float, terms: int) -> float:
    if terms * y > 700:
        return 1 / math.expm1(y)
    if terms * y > 0.5:
        return 1 / math.expm1(y) - terms / math.expm1(terms * y)
    return (terms - 1) / 2 - terms * _odd(terms * y) + _odd(y)


def _odd(t: float) -> float:
    total = 0.0
    for coefficient in reversed(_SERIES):
        total = total * t * t + coefficient
    return total * t
