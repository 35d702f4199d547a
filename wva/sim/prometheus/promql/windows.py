"""Functions of a range vector: each turns a window of samples into a number, or None if the window has too few."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from wva.sim.prometheus.promql.values import RangeElement, kahan_sum, largest, mean, smallest

_TWO = 2
_NEAR = 1.1


def _sum(window: RangeElement) -> float:
    total, compensation = kahan_sum(window.values)
    return total if math.isinf(total) else total + compensation


def _increase_with_resets(values: list[float]) -> float:
    """Return the last value minus the first, plus the values of a counter before its restarts."""
    return values[-1] - values[0] + sum(before for before, after in pairwise(values) if after < before)


def _extrapolated(window: RangeElement, *, counter: bool, unit_seconds: float = 1.0) -> float | None:
    """Return the change over the whole window per ``unit_seconds``, estimated from the samples in it.

    The slope between the first and the last sample is continued to the edges of the window. If an edge is more than
    110 % of the mean sample distance away, the series is taken to start (or end) half such a distance beyond its
    sample. A counter is never continued below zero.
    """
    if len(window.times) < _TWO:
        return None
    first_ms, last_ms = window.times[0], window.times[-1]
    change = _increase_with_resets(window.values) if counter else window.values[-1] - window.values[0]
    covered = (last_ms - first_ms) / 1000
    distance = covered / (len(window.times) - 1)
    gap_before = (first_ms - window.start_ms) / 1000
    gap_after = (window.end_ms - last_ms) / 1000
    if gap_before >= distance * _NEAR:
        gap_before = distance / 2
    if counter and change > 0 and window.values[0] >= 0:
        gap_before = min(gap_before, covered * (window.values[0] / change))
    if gap_after >= distance * _NEAR:
        gap_after = distance / 2
    return change * ((covered + gap_before + gap_after) / covered / unit_seconds)


def _increase(window: RangeElement) -> float | None:
    return _extrapolated(window, counter=True)


def _rate(window: RangeElement) -> float | None:
    return _extrapolated(window, counter=True, unit_seconds=(window.end_ms - window.start_ms) / 1000)


def _delta(window: RangeElement) -> float | None:
    return _extrapolated(window, counter=False)


def _irate(window: RangeElement) -> float | None:
    if len(window.times) < _TWO:
        return None
    previous, last = window.values[-2:]
    change = last if last < previous else last - previous
    return change / ((window.times[-1] - window.times[-2]) / 1000)


WINDOW_FUNCTIONS: dict[str, Callable[[RangeElement], float | None]] = {
    "avg_over_time": lambda window: mean(window.values),
    "count_over_time": lambda window: float(len(window.values)),
    "delta": _delta,
    "increase": _increase,
    "irate": _irate,
    "last_over_time": lambda window: window.values[-1],
    "max_over_time": lambda window: largest(window.values),
    "min_over_time": lambda window: smallest(window.values),
    "rate": _rate,
    "sum_over_time": _sum,
}
