"""Policies that know the traffic: what could be reached at best, and the fixed fleet for the peak.

The clairvoyant has enough capacity Ready at every moment (``demand``), with the fleets that are cheapest over the whole
time: a replica costs from its creation, so a start costs what the pod costs until it is Ready. It knows how long each
pod will take, and orders it no earlier than needed. It tries its plan before: it adds as much to the demand as it takes
to serve users well. It is a reference, not a bound: a policy that lets requests wait a little may be cheaper.
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
        """Plan these, in order of time."""
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

        It tries plans with all variants, with each accelerator alone, as a gateway may send long prompts to the slow
        ones of a mix, and a fixed fleet.
        """
        if self.fixed:
            return [Planned(_tried(scenario, seed, [[_fixed]]))]
        kinds = list(dict.fromkeys(_kind(scenario, setup) for setup in scenario.all_variants))
        alone = len(kinds) > 1 and not any(setup.role for setup in scenario.all_variants)  # a role alone serves nothing
        mixes = [kinds, *([kind] for kind in kinds)] if alone else [kinds]
        return [Planned(_tried(scenario, seed, [[partial(_planned, seed, mix) for mix in mixes], [_fixed]]))]


def _kind(scenario: Scenario, setup: VariantSetup) -> str:
    """Return what variants have in common that a mix takes or leaves: where models share GPUs, their accelerator."""
    return setup.accelerator if scenario.others else setup.name


def _planned(
    seed: int, mix: Sequence[str], scenario: Scenario, needed: Sequence[DemandOverTime]
) -> list[PlannedChange]:
    """Plan with the variants of a mix; the others stay at their minimum.

    A replica stays for a moment more than it is needed, for the answers that it has begun.
    """
    longer = [replace(one, rate=np.maximum(one.rate, np.concatenate((one.rate[:1], one.rate[:-1])))) for one in needed]

    def bounded(model: Scenario) -> Scenario:
        kept = [
            setup if _kind(scenario, setup) in mix else replace(setup, maximum=setup.minimum)
            for setup in model.variants
        ]
        return replace(model, variants=tuple(kept))

    counts = cheapest_over_time(scenario.changed(bounded), *longer)
    changes = [
        change
        for model, its_own in zip(scenario.models, by_model(scenario, counts), strict=True)
        for change in plan(model, its_own, lambda: start_ups(seed))
    ]
    return sorted(changes, key=attrgetter("at_seconds"))


def _fixed(scenario: Scenario, needed: Sequence[DemandOverTime]) -> list[PlannedChange]:
    fleet = static_fleet(scenario, *needed)
    return [PlannedChange(0.0, setup.name, count) for setup, count in zip(scenario.all_variants, fleet, strict=True)]


_Plan = Callable[[Scenario, Sequence[DemandOverTime]], list[PlannedChange]]


def _tried(scenario: Scenario, seed: int, plans: Sequence[Sequence[_Plan]]) -> list[PlannedChange]:
    """Return the changes of the cheapest plan that serves users well; each row of plans gets the margin that it needs.

    What a replica carries is known for requests of one size. Where sizes differ, long prompts meet or the gateway
    routes badly, more is needed. Where nothing serves users well, it is the cheapest of what comes near to the best.
    """
    known = scenario.changed(lambda model: replace(model, traffic=partial(_known, model.traffic(seed))))
    references = references_of(scenario, [model.traffic(seed) for model in known.models])

    def run(changes: list[PlannedChange]) -> _Trial:
        world = StageWorld(known, seed=seed)
        world.run([Planned(changes)])
        found = figures(world, *references)
        return _Trial(found.attainment, found.cost, changes)

    needed = [part for one in references for part in one.demands]

    def trial(make: _Plan, margins: Sequence[float]) -> _Trial:
        return run(make(scenario, _enlarged(needed, margins)))

    tried: list[_Trial] = []
    good: list[_Trial] = []
    for row in plans:
        for margin in MARGINS:
            margins = [margin] * len(needed)
            found = [trial(make, margins) for make in row]
            tried += found
            if served_well := [one for one in found if one.attainment >= GOAL]:
                good += served_well
                if len(needed) > len(references):
                    good += _trimmed(partial(trial, row[0]), margins)
                break
    enough = max(one.attainment for one in tried) - _ALIKE
    return min(good or [one for one in tried if one.attainment >= enough], key=attrgetter("cost")).changes


def _enlarged(needed: Sequence[DemandOverTime], margins: Sequence[float]) -> list[DemandOverTime]:
    return [replace(one, rate=one.rate * (1.0 + margin)) for one, margin in zip(needed, margins, strict=True)]


def _trimmed(run: Callable[[Sequence[float]], _Trial], margins: Sequence[float]) -> list[_Trial]:
    """Return the trials in which one role after the other gets the least margin with which users are served well."""
    found: list[_Trial] = []
    kept = list(margins)
    for place, most in enumerate(margins):
        for margin in MARGINS[: MARGINS.index(most)]:
            trial = run([*kept[:place], margin, *kept[place + 1 :]])
            if trial.attainment >= GOAL:
                found.append(trial)
                kept[place] = margin
                break
    return found


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

    ``needed`` has one of each role of each model, whose columns stand one after the other. Exact, by dynamic
    programming over all fleets that could be of use and that the cluster has GPUs for. Where even the largest are too
    few, it is one that carries the largest share of what each model needs.
    """
    setups = scenario.all_variants
    axes = range(len(setups))
    most = [int(alone) for one in needed for alone in np.ceil((one.rate[:, None] / one.capacity).max(axis=0))]
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
    for place in range(len(needed[0].rate)):
        for axis in axes:
            # To end replicas is free; each that is added costs its start. So both are running minima.
            rising = starting[axis] * counts[axis]
            fewer = np.flip(np.minimum.accumulate(np.flip(cost, axis), axis), axis)
            cost = np.minimum(fewer, np.minimum.accumulate(cost - rising, axis) + rising)
        share, column = np.where(np.isinf(standing), 0.0, 1.0), 0
        for one in needed:
            columns = slice(column, column := column + one.capacity.shape[1])
            if one.rate[place] > 0:
                carried = np.tensordot(one.capacity[place], counts[columns], 1)
                share = np.minimum(share, carried / one.rate[place])
        cost = np.where(share >= min(1.0, share.max()) * _ENOUGH, cost + standing, np.inf)
        costs.append(cost)

    fleets = counts.reshape(len(axes), -1)
    found = [fleets[:, int(np.argmin(cost))]]
    for before in reversed(costs[1:-1]):
        added = np.maximum(0, found[-1][:, None] - fleets)
        found.append(fleets[:, int(np.argmin(before.ravel() + starting @ added))])
    return np.array(found[::-1])


def _mean_seconds(start_up: StartUp) -> float:
    mean = start_up.median_seconds * exp(start_up.sigma**2 / 2)
    return mean + start_up.pull_probability * start_up.pull_seconds


def start_ups(seed: int) -> StartUps:
    """Return the start-up times that the stage will draw with this seed."""
    random = start_up_random(seed)
    return lambda start_up: start_up.draw(random)


def plan(scenario: Scenario, counts: Ints, new_start_ups: Callable[[], StartUps]) -> list[PlannedChange]:
    """Return the changes by which these counts are Ready at each moment, but the first ones while pods start.

    ``counts`` has a row per moment, a column per variant. ``new_start_ups`` begins the series of start-up times anew.
    """
    kept = list(np.array(counts).T)
    while True:
        changes, amended = _changes(scenario, kept, new_start_ups())
        if amended is None:
            return changes
        place, begin, end, level = amended
        span = kept[place][begin:end]
        kept[place][begin:end] = np.maximum(span, level) if span.min() < level else np.minimum(span, level - 1)


_Span = tuple[int, int, int, int]
"""Variant, first moment and end of a span of time, and a level of the count."""


def _changes(scenario: Scenario, counts: Sequence[Ints], draw: StartUps) -> tuple[list[PlannedChange], _Span | None]:
    """Return the changes, or a span in which the counts have to be others.

    Letting go ends pods that start before those that are Ready. So a level is kept in a gap in which its next pod
    starts already, and given up where a pod would be Ready only after its end.
    """
    orders = sorted(_orders(scenario, counts), key=lambda order: order[:2])
    seconds = [draw(scenario.variants[place].start_up) for _, place, _ in orders]
    # Pods draw their start-up times in order of creation, so a pod is not created after the one that is needed next.
    created, latest = [0.0] * len(orders), float("inf")
    for number in range(len(orders) - 1, -1, -1):
        latest = min(latest, orders[number][0] * STEP_SECONDS - seconds[number] - _PERIOD_SECONDS)
        created[number] = max(0.0, latest)
    steps: list[tuple[float, int, int]] = []
    for (moment, place, level), at_seconds, duration in zip(orders, created, seconds, strict=True):
        needed = np.flatnonzero(counts[place][:moment] >= level)
        gap = int(needed[-1]) + 1 if len(needed) else 0
        if gap and at_seconds < gap * STEP_SECONDS:
            return [], (place, gap, moment, level)
        released = np.flatnonzero(counts[place][moment:] < level)
        end = moment + int(released[0]) if len(released) else len(counts[place])
        if at_seconds + duration >= end * STEP_SECONDS and end < len(counts[place]):
            return [], (place, moment, end, level)
        steps.append((at_seconds, place, 1))
    steps += _releases(scenario, counts)
    asked = [setup.replicas for setup in scenario.variants]
    changes = []
    for at_seconds, place, step in sorted(steps, key=lambda step: (step[0], step[2] > 0)):
        asked[place] += step
        changes.append(PlannedChange(at_seconds, scenario.variants[place].name, asked[place]))
    return changes, None


def _orders(scenario: Scenario, counts: Sequence[Ints]) -> Iterator[tuple[int, int, int]]:
    """Yield for each new replica the moment at which it is needed, its variant, and the count that it makes up."""
    for place, setup in enumerate(scenario.variants):
        before = setup.replicas
        for moment, count in enumerate(counts[place].tolist()):
            for level in range(before + 1, count + 1):
                yield moment, place, level
            before = count


def _releases(scenario: Scenario, counts: Sequence[Ints]) -> Iterator[tuple[float, int, int]]:
    for place, setup in enumerate(scenario.variants):
        before = setup.replicas
        for moment, count in enumerate(counts[place].tolist()):
            for _ in range(before - count):
                yield moment * STEP_SECONDS, place, -1
            before = count


static_peak: Final = KnowingPolicy(fixed=True)
clairvoyant: Final = KnowingPolicy(fixed=False)
register("static-peak", static_peak)
register("clairvoyant", clairvoyant)
