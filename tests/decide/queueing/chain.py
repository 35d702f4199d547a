"""The steady state of a replica where requests wait for a place, summed over all of its states.

With n requests inside, at most ``size`` of which are computed, a birth-death chain finishes n at once in the time that
one takes among them. Formulas: docs/design/queueing-formulas.md#steady-state.
"""

from __future__ import annotations

import math

from msgspec import Struct


class SteadyState(Struct, frozen=True):
    """Requests per second that are not lost, the mean wait and time in service in ms, and the mean number served."""

    throughput: float
    wait: float
    service: float
    serving: float


def steady(base: float, slope: float, size: int, room: int, rate: float) -> SteadyState:
    """Return the steady state at ``rate`` requests per second.

    A request among n takes ``base + slope * n`` ms. ``room`` may wait; one that finds it full is lost.
    """
    logs = [0.0]
    for state in range(1, size + room + 1):
        served = min(state, size)
        logs.append(logs[-1] + math.log(rate / 1000 * (base + slope * served) / served))
    peak = max(logs)
    weights = [math.exp(each - peak) for each in logs]
    total = math.fsum(weights)
    waiting = math.fsum(weight * max(0, state - size) for state, weight in enumerate(weights)) / total
    serving = math.fsum(weight * min(state, size) for state, weight in enumerate(weights)) / total
    throughput = rate * math.fsum(weights[:-1]) / total
    return SteadyState(throughput, waiting / throughput * 1000, serving / throughput * 1000, serving)
