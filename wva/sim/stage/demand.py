"""What traffic demands of a fleet over time, and the cheapest fleet for it at each instant.

The demand of a moment is the highest mean over ten seconds that begins in it. It is in requests per second of the mean
size of their time: a request of more tokens counts as more than one, in proportion to what it costs the replica. The
``Capacity`` of a replica is the rate of requests of that size that it carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.sim.fleet.capacity import Sizes
from wva.sim.stage.capacity import Capacity, saturation, within
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.solver import ReplicaKind, cheapest
from wva.sim.traffic.requests import Traffic

STEP_SECONDS: Final = 10.0
"""Length of a moment, and of the mean."""
_SECONDS_OF_SIZE: Final = 300.0
"""Over so long a time, sizes of requests count as one mix."""
_FEWEST: Final = 30
"""With fewer requests in that time, the mix before them counts, at first that of all requests."""
_SAMPLE: Final = 128
"""So many requests stand for the sizes of all: a hundredth of them is one."""
_SLOPE: Final = 0.05
"""The step, as a share of the mean size, by which the cost of a token is found."""
_HOUR: Final = 3600.0

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DemandOverTime:
    """Demand over moments of ``STEP_SECONDS``, from time 0.

    Attributes:
        rate: requests per second, one per moment.
        capacity: requests per second that one replica carries: a row per moment, a column per variant.

    """

    rate: Floats
    capacity: Floats


def demand(
    scenario: Scenario, traffic: Traffic, capacity: Capacity | None = None, throughput: Capacity = saturation
) -> DemandOverTime:
    """Return the demand of some traffic on the variants of a scenario.

    ``capacity`` is what a replica carries, by default within the scenario's objectives. ``throughput`` is what it could
    carry at most; what a request costs is the share of this that it takes. ``prefix_tokens``, the leading tokens of a
    prompt that a cache may hold, are taken as held.
    """
    moments = max(1, ceil(traffic.duration_seconds / STEP_SECONDS))
    per_block = round(_SECONDS_OF_SIZE / STEP_SECONDS)
    prompts = np.maximum(1.0, traffic.prompt_tokens - traffic.prefix_tokens)
    answers = traffic.output_tokens.astype(np.float64)
    capacity = within(scenario.objectives, _sample(prompts, answers)) if capacity is None else capacity
    second = np.minimum(traffic.arrival_seconds.astype(np.int64), moments * round(STEP_SECONDS) - 1)
    block = second // (per_block * round(STEP_SECONDS))
    weights = np.ones(traffic.count)
    rows = np.zeros((moments, len(scenario.variants)))
    size = (float(prompts.mean()), float(answers.mean())) if traffic.count else (1.0, 1.0)
    for number in range(ceil(moments / per_block)):
        inside = np.flatnonzero(block == number)
        if len(inside) >= _FEWEST:
            size = (float(prompts[inside].mean()), float(answers[inside].mean()))
            weights[inside] = _weights(scenario.variants, throughput, size, prompts[inside], answers[inside])
        rows[number * per_block : (number + 1) * per_block] = [
            capacity(setup.parameters, *size) for setup in scenario.variants
        ]
    window = round(STEP_SECONDS)
    total = np.concatenate(([0.0], np.cumsum(np.bincount(second, weights, minlength=moments * window))))
    total = np.concatenate((total, np.full(window, total[-1])))
    means = (total[window:-1] - total[: -window - 1]) / STEP_SECONDS
    return DemandOverTime(means.reshape(moments, window).max(axis=1), rows)


def _sample(prompts: Floats, answers: Floats) -> Sizes:
    """Return the sizes of some requests, from the shortest prompt to the longest at equal distances."""
    order = np.argsort(prompts, kind="stable")
    chosen = order[np.linspace(0, len(order) - 1, min(len(order), _SAMPLE)).astype(np.int64)]
    return tuple(zip(prompts[chosen].astype(int).tolist(), answers[chosen].astype(int).tolist(), strict=True))


def _weights(
    variants: tuple[VariantSetup, ...],
    throughput: Capacity,
    size: tuple[float, float],
    prompts: Floats,
    answers: Floats,
) -> Floats:
    """Return what each request costs, as a multiple of one of mean size, to first order in the size; the mean is 1."""
    prompt, answer = size
    by_prompt = by_answer = 0.0
    for setup in variants:
        mean = 1.0 / throughput(setup.parameters, prompt, answer)
        longer_prompt = 1.0 / throughput(setup.parameters, prompt * (1 + _SLOPE), answer)
        longer_answer = 1.0 / throughput(setup.parameters, prompt, answer * (1 + _SLOPE))
        by_prompt += (longer_prompt / mean - 1.0) / _SLOPE / len(variants)
        by_answer += (longer_answer / mean - 1.0) / _SLOPE / len(variants)
    weights = 1.0 + by_prompt * (prompts / prompt - 1.0) + by_answer * (answers / answer - 1.0)
    costs: Floats = np.maximum(weights, 0.0)
    costs /= costs.mean()
    return costs


def together(scenario: Scenario, needed: Sequence[DemandOverTime]) -> Ints:
    """Return the cheapest sufficient fleets of all models at each moment, within the GPUs of the cluster.

    The columns are those of one model after the other. ``needed`` has one entry per role of each model. Where the GPUs
    are too few for all models, they do not limit the fleets.
    """
    fleets: dict[bytes, tuple[int, ...]] = {}
    rows = []
    for moment in range(len(needed[0].rate)):
        at_moment = [
            DemandOverTime(role_demand.rate[moment : moment + 1], role_demand.capacity[moment : moment + 1])
            for role_demand in needed
        ]
        key = b"".join(
            column.tobytes() for role_demand in at_moment for column in (role_demand.rate, role_demand.capacity)
        )
        if key not in fleets:
            fleets[key] = static_fleet(scenario, *at_moment)
        rows.append(fleets[key])
    return np.array(rows)


def by_model(scenario: Scenario, counts: Ints) -> list[Ints]:
    """Return the columns of each model; ``counts`` has the columns of one model after the other."""
    ends = np.cumsum([len(model.variants) for model in scenario.models])[:-1]
    return np.split(counts, ends, 1)


def cheapest_counts(scenario: Scenario, needed: DemandOverTime) -> Ints:
    """Return the cheapest sufficient fleet of a model at each moment, within its bounds: a column per variant.

    Where even all variants at their maximum are too few, the fleet is all of them.
    """
    counts = np.zeros(needed.capacity.shape, np.int64)
    rows, group = np.unique(needed.capacity, axis=0, return_inverse=True)
    for number, row in enumerate(rows):
        moments = np.flatnonzero(group.ravel() == number)
        fleet, carried = np.array([setup.minimum for setup in scenario.variants]), -1.0
        # In rising order of the demand, a fleet stays the cheapest until the demand is above what it carries.
        for moment in moments[np.argsort(needed.rate[moments], kind="stable")]:
            if needed.rate[moment] > carried:
                fleet = np.array(_fleet(scenario, row, needed.rate[moment]))
                carried = float(fleet @ row)
            counts[moment] = fleet
    return counts


def _fleet(scenario: Scenario, capacity: Floats, rate: float) -> tuple[int, ...]:
    return static_fleet(scenario, DemandOverTime(np.array([rate]), capacity.reshape(1, -1)))


def static_fleet(scenario: Scenario, *needed: DemandOverTime) -> tuple[int, ...]:
    """Return the cheapest fleet that carries every moment, within the variants' bounds and the GPUs of the cluster.

    ``needed`` has one entry per role of each model. Where the GPUs are too few, they do not limit the fleet. Where no
    fleet carries every moment, all variants are at their maximum.
    """
    peaks: dict[str, float] = {}
    kinds: list[ReplicaKind] = []
    parts = [part for model in scenario.models for part in model.by_role]
    for number, (part, role_demand) in enumerate(zip(parts, needed, strict=True)):
        capacity, group = np.unique(role_demand.capacity, axis=0, return_inverse=True)
        names = {f"{number}/{row}": row for row in range(len(capacity))}
        peaks |= {name: float(role_demand.rate[group.ravel() == row].max()) for name, row in names.items()}
        kinds += [
            ReplicaKind(
                setup.price,
                {name: float(capacity[row, column]) for name, row in names.items()},
                setup.minimum,
                setup.maximum,
                {setup.accelerator: setup.gpus},
            )
            for column, setup in enumerate(part.variants)
        ]
    fleet = cheapest(kinds, peaks, scenario.gpus) or cheapest(kinds, peaks)
    return tuple(kind.maximum for kind in kinds) if fleet is None else fleet


def cost(scenario: Scenario, counts: Ints, *, until_seconds: float) -> float:
    """Return the cost, in the measured time, of a fleet that changes from moment to moment.

    For the cheapest sufficient fleet of each moment, which changes at once, it is the ideal cost.
    """
    begin = np.arange(len(counts)) * STEP_SECONDS
    end = np.minimum(begin + STEP_SECONDS, until_seconds)
    hours = np.maximum(0.0, end - np.maximum(begin, scenario.measured_from_seconds)) / _HOUR
    prices = np.array([setup.price for setup in scenario.variants])
    return float(hours @ (counts @ prices))
