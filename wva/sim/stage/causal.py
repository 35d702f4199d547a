"""What is possible without seeing the future: a bound for the share of requests in time.

The bound is that of a policy that knows everything about the load except when it changes suddenly. The policy knows the
load of each moment, without noise and delay, and its whole course up to the next surprise: a jump, the beginning of a
rise out of a level, or requests that become larger at once. A jump that repeats at equal intervals is a surprise only
twice. The policy orders at once whatever is needed, and keeps no replica that is not needed. Requests are late that are
beyond the throughput of the Ready replicas, or that would be late even on an idle replica. A policy can do better only
with replicas beyond the need.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from itertools import pairwise
from math import erf, log, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.sim.fleet.calibration import alone_seconds
from wva.sim.stage.capacity import saturation
from wva.sim.stage.demand import STEP_SECONDS, DemandOverTime, cheapest_counts, demand
from wva.sim.stage.scenario import Scenario, StartUp
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.requests import Traffic

_LEAST: Final = 0.25
"""Requests whose size lets a replica carry less by such a share come as a surprise; smaller changes are noise."""
_PARTS: Final = 10
"""The rate of a moment is taken at so many points."""
_SAME_SECONDS: Final = 1.0
"""Distances that differ by less are equal."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def causal_bound(scenario: Scenario, traffic: Traffic, needed: DemandOverTime, *, learns: bool = True) -> float | None:
    """Return the highest share of requests in time without spare replicas, of the measured time.

    None where the rate of the traffic is unknown. ``needed`` is the demand of the traffic: what a replica carries at
    each moment within the objectives. ``learns``: a jump that repeats at equal intervals is a surprise only twice.
    """
    if traffic.rate is None:
        return None
    profile = RateProfile(traffic.rate)
    moments = len(needed.rate)
    times = (np.arange(moments * _PARTS) + 0.5) * STEP_SECONDS / _PARTS
    rates = np.array([profile.rate(float(at)) for at in times]).reshape(moments, _PARTS)
    counts = cheapest_counts(scenario, DemandOverTime(rates.max(axis=1), needed.capacity))
    asked = _asked_replicas(scenario, counts, surprises(profile, needed.capacity, learns=learns))
    throughput = demand(scenario, traffic, saturation).capacity
    served = (_ready(scenario, asked) * np.maximum(throughput, needed.capacity)).sum(axis=1)
    offered = rates.mean(axis=1)
    measured = np.arange(moments) * STEP_SECONDS >= scenario.measured_from_seconds
    total = float(offered[measured].sum())
    missing = float(np.maximum(0.0, offered - served)[measured].sum())
    return (1.0 - missing / total) * _possible(scenario, traffic) if total else 1.0


def _possible(scenario: Scenario, traffic: Traffic) -> float:
    """Return the share of requests that are in time on a replica of their own, of the fastest variant."""
    prompts = traffic.prompt_tokens - traffic.prefix_tokens
    tokens = range(int(prompts.max(initial=0)) + 1)
    longest = max(
        bisect_right(tokens, scenario.objectives.ttft_seconds, key=partial(alone_seconds, setup.parameters))
        for setup in scenario.variants
    )
    return float((prompts < longest).mean())


def surprises(rate: RateProfile, capacity: Floats, *, learns: bool = True) -> tuple[float, ...]:
    """Return when the load changes suddenly, in rising order of seconds; ``capacity`` has a row per moment."""
    jumps = {at for at in _jumps(rate.points) if at > 0.0}
    repeated = {
        at
        for at in jumps
        if learns
        and any(_near(at - distance, jumps) and _near(at - 2 * distance, jumps) for distance in _distances(at, jumps))
    }
    lower = (capacity[1:] < (1.0 - _LEAST) * capacity[:-1]).any(axis=1)
    return tuple(sorted((jumps - repeated) | {float(at) for at in (np.flatnonzero(lower) + 1) * STEP_SECONDS}))


def _jumps(points: tuple[tuple[float, float], ...]) -> list[float]:
    """Return when the rate jumps up, or begins to rise out of a level."""
    jumps, level = [], True
    for (start, low), (end, high) in pairwise(points):
        if high > low and (start == end or level):
            jumps.append(start)
        if start != end:
            level = low == high
    return jumps


def _distances(at: float, times: set[float]) -> list[float]:
    return [at - earlier for earlier in times if earlier < at]


def _near(at: float, times: set[float]) -> bool:
    return any(abs(at - time) < _SAME_SECONDS for time in times)


def _asked_replicas(scenario: Scenario, counts: Ints, known_from: tuple[float, ...]) -> Ints:
    """Return the replicas asked for at each moment: the most needed until pods ordered now are Ready.

    A policy does not know the need after the next surprise.
    """
    next_surprise = np.searchsorted(np.array(known_from) // STEP_SECONDS, np.arange(len(counts)), side="right")
    ends = np.append(np.array(known_from) // STEP_SECONDS, len(counts)).astype(np.int64)
    asked = counts.copy()
    for column, setup in enumerate(scenario.variants):
        lead = int(_almost_always(setup.start_up) // STEP_SECONDS) + 2
        for moment in range(len(counts)):
            asked[moment, column] = counts[moment : min(moment + lead, int(ends[next_surprise[moment]])), column].max()
    return asked


def _ready(scenario: Scenario, asked: Ints) -> Floats:
    """Return how many replicas of each variant serve at the end of each moment on average."""
    index = np.arange(len(asked))
    ready = np.zeros(asked.shape)
    for column, setup in enumerate(scenario.variants):
        for level in range(1, int(asked[:, column].max(initial=0)) + 1):
            exists = asked[:, column] >= level
            before = np.concatenate(([level <= setup.replicas], exists[:-1]))
            ordered = np.maximum.accumulate(np.where(exists & ~before, index, -1))
            # A request that waits as long as its users accept is in time, too.
            age = (index - ordered + 1) * STEP_SECONDS + scenario.objectives.ttft_seconds
            share = np.array([_started(setup.start_up, float(seconds)) for seconds in age])
            ready[:, column] += np.where(exists, np.where(ordered < 0, 1.0, share), 0.0)
    return ready


def _almost_always(start_up: StartUp) -> float:
    """Return the time within which all but one of thousands of pods are Ready."""
    pull = start_up.pull_seconds if start_up.pull_probability else 0.0
    return start_up.median_seconds * float(np.exp(3.5 * start_up.sigma)) + pull


def _started(start_up: StartUp, seconds: float) -> float:
    """Return the probability that a pod is Ready so many seconds after its creation."""

    def within(limit: float) -> float:
        if limit <= 0.0:
            return 0.0
        if not start_up.sigma:
            return float(limit >= start_up.median_seconds)
        return (1.0 + erf(log(limit / start_up.median_seconds) / start_up.sigma / sqrt(2.0))) / 2.0

    pulls = start_up.pull_probability
    return (1.0 - pulls) * within(seconds) + pulls * within(seconds - start_up.pull_seconds)
