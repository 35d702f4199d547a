"""Policies that know the traffic: what could be reached at best, and the fixed fleet for the peak.

The clairvoyant has enough capacity Ready at every moment (``demand``), with the fleets that are cheapest over the whole
time: a replica costs from its creation, so a start costs what the pod costs until it is Ready. It knows how long each
pod will take, and orders it no earlier than needed. It tries its plans beforehand, and adds as much to the demand as is
needed to serve users well. It is a reference, not a bound: a policy that lets requests wait a little may be cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp
from operator import attrgetter
from typing import ClassVar, Final

import numpy as np

from wva.model.records import replace
from wva.sim.rivals.registry import register
from wva.sim.stage.demand import STEP_SECONDS, DemandOverTime, Ints, by_model, static_fleet
from wva.sim.stage.run import figures, references_of
from wva.sim.stage.scenario import Scenario, StartUp, VariantSetup, start_up_random
from wva.sim.stage.view import StageController, StageView, stage_of
from wva.sim.stage.world import StageWorld
from wva.sim.traffic.requests import Traffic

MARGINS: Final = (0.0, 0.1, 0.25, 0.5, 1.0)
"""Shares of the demand that are added to it, until users are served well."""
GOAL: Final = 0.99
"""That is: this share of requests within both objectives."""
_ALIKE: Final = 0.005
"""Where nothing reaches the goal, the cheapest counts that comes so near to the best."""
_PERIOD_SECONDS: Final = 1.0
_ENOUGH: Final = 1.0 - 1e-9
"""Rounding errors do not add a replica."""

StartUps = Callable[[StartUp], float]
"""How long the next pod takes to start, in order of creation."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """Ask for so many replicas of a variant at a time."""

    at_seconds: float
    variant: str
    replicas: int


class Planned:
    """Does what was planned for all models. Changes of one time are made in their order."""

    joint = True
    period_seconds = _PERIOD_SECONDS

    def __init__(self, changes: Sequence[PlannedChange]) -> None:
        """Take the changes, in order of time."""
        self._changes = changes
        self._next = 0

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Make the changes that are due."""
        while self._next < len(self._changes) and self._changes[self._next].at_seconds <= now_seconds:
            change = self._changes[self._next]
            stage_of(stage, change.variant).scale(change.variant, change.replicas)
            self._next += 1


@dataclass(frozen=True, slots=True)
class KnowingPolicy:
    """Returns the policy that tries plans with what it knows of the traffic, for all models of a scenario.

    ``fixed``: the only plan is the cheapest fixed fleet that carries the peak, asked for at once.
    """

    joint: ClassVar[bool] = True

    fixed: bool

    def __call__(self, scenario: Scenario, seed: int) -> list[StageController]:
        """Return its controller.

        It tries plans with all variants, plans with each accelerator alone, and a fixed fleet. One accelerator alone
        may be better, because a gateway may send long prompts to the slow pods of a mix.
        """
        if self.fixed:
            return [Planned(_tried(scenario, seed, [[_fixed]]))]
        kinds = list(dict.fromkeys(_kind(scenario, setup) for setup in scenario.all_variants))
        alone = len(kinds) > 1 and not any(setup.role for setup in scenario.all_variants)  # a role alone serves nothing
        mixes = [kinds, *([kind] for kind in kinds)] if alone else [kinds]
        return [Planned(_tried(scenario, seed, [[partial(_planned, seed, mix) for mix in mixes], [_fixed]]))]


def _kind(scenario: Scenario, setup: VariantSetup) -> str:
    """Return the key by which a mix takes or leaves variants: the accelerator if models share GPUs, else the name."""
    return setup.accelerator if scenario.others else setup.name


def _planned(
    seed: int, mix: Sequence[str], scenario: Scenario, needed: Sequence[DemandOverTime]
) -> list[PlannedChange]:
    """Plan with the variants of a mix; the others stay at their minimum.

    A replica stays one moment longer than it is needed, for the answers that it has begun.
    """
    longer = [
        replace(demand, rate=np.maximum(demand.rate, np.concatenate((demand.rate[:1], demand.rate[:-1]))))
        for demand in needed
    ]

    def bounded(model: Scenario) -> Scenario:
        setups = [
            setup if _kind(scenario, setup) in mix else replace(setup, maximum=setup.minimum)
            for setup in model.variants
        ]
        return replace(model, variants=tuple(setups))

    counts = cheapest_over_time(scenario.changed(bounded), *longer)
    changes = [
        change
        for model, model_counts in zip(scenario.models, by_model(scenario, counts), strict=True)
        for change in plan(model, model_counts, lambda: start_ups(seed))
    ]
    return sorted(changes, key=attrgetter("at_seconds"))


def _fixed(scenario: Scenario, needed: Sequence[DemandOverTime]) -> list[PlannedChange]:
    fleet = static_fleet(scenario, *needed)
    return [PlannedChange(0.0, setup.name, count) for setup, count in zip(scenario.all_variants, fleet, strict=True)]


_Plan = Callable[[Scenario, Sequence[DemandOverTime]], list[PlannedChange]]


def _tried(scenario: Scenario, seed: int, plans: Sequence[Sequence[_Plan]]) -> list[PlannedChange]:
    """Return the changes of the cheapest plan that serves users well; each row of plans gets the margin that it needs.

    What a replica carries is known for requests of one size. Where sizes differ, long prompts meet or the gateway
    routes badly, more is needed. Where no plan serves users well, the result is the cheapest of the plans that come
    near to the best.
    """
    known = scenario.changed(lambda model: replace(model, traffic=partial(_known, model.traffic(seed))))
    references = references_of(scenario, [model.traffic(seed) for model in known.models])

    def run(changes: list[PlannedChange]) -> _Trial:
        world = StageWorld(known, seed=seed)
        world.run([Planned(changes)])
        result = figures(world, *references)
        return _Trial(result.attainment, result.cost, changes)

    needed = [demand for reference in references for demand in reference.demands]

    def trial(make: _Plan, margins: Sequence[float]) -> _Trial:
        return run(make(scenario, _enlarged(needed, margins)))

    trials: list[_Trial] = []
    good: list[_Trial] = []
    for row in plans:
        for margin in MARGINS:
            margins = [margin] * len(needed)
            row_trials = [trial(make, margins) for make in row]
            trials += row_trials
            if served_well := [candidate for candidate in row_trials if candidate.attainment >= GOAL]:
                good += served_well
                if len(needed) > len(references):
                    good += _trimmed(partial(trial, row[0]), margins)
                break
    enough = max(candidate.attainment for candidate in trials) - _ALIKE
    return min(
        good or [candidate for candidate in trials if candidate.attainment >= enough], key=attrgetter("cost")
    ).changes


def _enlarged(needed: Sequence[DemandOverTime], margins: Sequence[float]) -> list[DemandOverTime]:
    return [replace(demand, rate=demand.rate * (1.0 + margin)) for demand, margin in zip(needed, margins, strict=True)]


def _trimmed(run: Callable[[Sequence[float]], _Trial], margins: Sequence[float]) -> list[_Trial]:
    """Return the trials in which one role after the other gets the least margin with which users are served well."""
    trials: list[_Trial] = []
    trimmed = list(margins)
    for index, most in enumerate(margins):
        for margin in MARGINS[: MARGINS.index(most)]:
            trial = run([*trimmed[:index], margin, *trimmed[index + 1 :]])
            if trial.attainment >= GOAL:
                trials.append(trial)
                trimmed[index] = margin
                break
    return trials


def _known(traffic: Traffic, seed: int) -> Traffic:
    del seed
    return traffic


@dataclass(frozen=True, slots=True)
class _Trial:
    attainment: float
    cost: float
    changes: list[PlannedChange]


def cheapest_over_time(scenario: Scenario, *needed: DemandOverTime) -> Ints:
    """Return the fleets that carry each moment and cost least together, starts included: a column per variant.

    ``needed`` has a demand for each role of each model; their columns follow each other. The result is exact, by
    dynamic programming over all fleets that could be of use and that the cluster has GPUs for. Where even the largest
    fleets are too small, the result has one that carries the largest share of what each model needs.
    """
    setups = scenario.all_variants
    axes = range(len(setups))
    most = [int(alone) for demand in needed for alone in np.ceil((demand.rate[:, None] / demand.capacity).max(axis=0))]
    lows = [setup.minimum for setup in setups]
    highs = [max(setup.minimum, min(setup.maximum, alone)) for setup, alone in zip(setups, most, strict=True)]
    counts = np.stack(np.meshgrid(*(np.arange(lows[v], highs[v] + 1) for v in axes), indexing="ij"))
    prices = np.array([setup.price for setup in setups])
    standing = np.tensordot(prices, counts, 1) * STEP_SECONDS
    for accelerator, gpus in scenario.gpus.items():
        taken = np.tensordot([setup.gpus * (setup.accelerator == accelerator) for setup in setups], counts, 1)
        standing[taken > gpus] = np.inf
    starting = prices * [_mean_seconds(setup.start_up) for setup in setups]

    cost = np.full(standing.shape, np.inf)
    cost[tuple(min(highs[v], max(lows[v], setups[v].replicas)) - lows[v] for v in axes)] = 0.0
    costs = [cost]
    for moment in range(len(needed[0].rate)):
        for axis in axes:
            # To end replicas is free; each replica that is added costs its start. So both are running minima.
            rising = starting[axis] * counts[axis]
            fewer = np.flip(np.minimum.accumulate(np.flip(cost, axis), axis), axis)
            cost = np.minimum(fewer, np.minimum.accumulate(cost - rising, axis) + rising)
        share, column = np.where(np.isinf(standing), 0.0, 1.0), 0
        for demand in needed:
            columns = slice(column, column := column + demand.capacity.shape[1])
            if demand.rate[moment] > 0:
                carried = np.tensordot(demand.capacity[moment], counts[columns], 1)
                share = np.minimum(share, carried / demand.rate[moment])
        cost = np.where(share >= min(1.0, share.max()) * _ENOUGH, cost + standing, np.inf)
        costs.append(cost)

    fleets = counts.reshape(len(axes), -1)
    chosen = [fleets[:, int(np.argmin(cost))]]
    for previous in reversed(costs[1:-1]):
        added = np.maximum(0, chosen[-1][:, None] - fleets)
        chosen.append(fleets[:, int(np.argmin(previous.ravel() + starting @ added))])
    return np.array(chosen[::-1])


def _mean_seconds(start_up: StartUp) -> float:
    mean = start_up.median_seconds * exp(start_up.sigma**2 / 2)
    return mean + start_up.pull_probability * start_up.pull_seconds


def start_ups(seed: int) -> StartUps:
    """Return the start-up times that the stage will draw with this seed."""
    random = start_up_random(seed)
    return lambda start_up: start_up.draw(random)


def plan(scenario: Scenario, counts: Ints, new_start_ups: Callable[[], StartUps]) -> list[PlannedChange]:
    """Return the changes that make these counts Ready at each moment, except at the first ones, while pods start.

    ``counts`` has a row per moment, a column per variant. ``new_start_ups`` begins the series of start-up times anew.
    """
    columns = list(np.array(counts).T)
    while True:
        changes, amended = _changes(scenario, columns, new_start_ups())
        if amended is None:
            return changes
        index, begin, end, level = amended
        span = columns[index][begin:end]
        columns[index][begin:end] = np.maximum(span, level) if span.min() < level else np.minimum(span, level - 1)


_Span = tuple[int, int, int, int]
"""Variant, first moment and end of a span of time, and a level of the count."""


def _changes(scenario: Scenario, counts: Sequence[Ints], draw: StartUps) -> tuple[list[PlannedChange], _Span | None]:
    """Return the changes, or a span in which the counts have to change.

    Scaling down ends pods that are starting before it ends pods that are Ready. So a level is kept through a gap in
    which its next pod already starts. A level is given up where its pod would be Ready only after the level ends.
    """
    orders = sorted(_orders(scenario, counts), key=lambda order: order[:2])
    seconds = [draw(scenario.variants[index].start_up) for _, index, _ in orders]
    # Pods draw their start-up times in order of creation, so a pod is not created after the one that is needed next.
    created, latest = [0.0] * len(orders), float("inf")
    for number in range(len(orders) - 1, -1, -1):
        latest = min(latest, orders[number][0] * STEP_SECONDS - seconds[number] - _PERIOD_SECONDS)
        created[number] = max(0.0, latest)
    steps: list[tuple[float, int, int]] = []
    for (moment, index, level), at_seconds, duration in zip(orders, created, seconds, strict=True):
        needed = np.flatnonzero(counts[index][:moment] >= level)
        gap = int(needed[-1]) + 1 if len(needed) else 0
        if gap and at_seconds < gap * STEP_SECONDS:
            return [], (index, gap, moment, level)
        released = np.flatnonzero(counts[index][moment:] < level)
        end = moment + int(released[0]) if len(released) else len(counts[index])
        if at_seconds + duration >= end * STEP_SECONDS and end < len(counts[index]):
            return [], (index, moment, end, level)
        steps.append((at_seconds, index, 1))
    steps += _releases(scenario, counts)
    asked = [setup.replicas for setup in scenario.variants]
    changes = []
    for at_seconds, index, step in sorted(steps, key=lambda step: (step[0], step[2] > 0)):
        asked[index] += step
        changes.append(PlannedChange(at_seconds, scenario.variants[index].name, asked[index]))
    return changes, None


def _orders(scenario: Scenario, counts: Sequence[Ints]) -> Iterator[tuple[int, int, int]]:
    """Yield for each new replica the moment at which it is needed, the index of its variant, and the count with it."""
    for index, setup in enumerate(scenario.variants):
        before = setup.replicas
        for moment, count in enumerate(counts[index].tolist()):
            for level in range(before + 1, count + 1):
                yield moment, index, level
            before = count


def _releases(scenario: Scenario, counts: Sequence[Ints]) -> Iterator[tuple[float, int, int]]:
    for index, setup in enumerate(scenario.variants):
        before = setup.replicas
        for moment, count in enumerate(counts[index].tolist()):
            for _ in range(before - count):
                yield moment * STEP_SECONDS, index, -1
            before = count


static_peak: Final = KnowingPolicy(fixed=True)
clairvoyant: Final = KnowingPolicy(fixed=False)
register("static-peak", static_peak)
register("clairvoyant", clairvoyant)
