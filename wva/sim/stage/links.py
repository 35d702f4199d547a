"""From demand to capacity: what a run needed at each time, and what each link of the chain had done for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wva.model.records import replace
from wva.sim.stage.causal import causal_bound
from wva.sim.stage.demand import (
    STEP_SECONDS,
    DemandOverTime,
    by_model,
    cheapest_counts,
    cost,
    demand,
    static_fleet,
    together,
)
from wva.sim.stage.late import Chain, Looks, StepFunction
from wva.sim.stage.roles import demands
from wva.sim.stage.scenario import Scenario
from wva.sim.stage.world import ScaleRequest, StageWorld
from wva.sim.traffic.requests import Traffic

_CACHE_ROUNDS: Final = 2
"""The second fleet is near enough to the one that is needed."""

Event = tuple[float, int, float]
"""A change of a number of replicas: when, of which variant (its column), and by how many."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the traffic of a run demands, and the cheapest sufficient fleet of each moment, a column per variant.

    ``demands`` has one entry per role, in the order of the variants; one entry where there are no roles.
    """

    demands: tuple[DemandOverTime, ...]
    counts: NDArray[np.int64]
    bound: float | None = None
    """The share in time that no policy exceeds without seeing the future or keeping spare replicas."""

    @classmethod
    def of(cls, scenario: Scenario, traffic: Traffic) -> Reference:
        """Return the reference of some traffic.

        What prefix caches hold depends on the fleet and on the routing, so it is measured: first with the fixed fleet
        that would be enough if the caches held all that they may, then with the fleet that is needed after that.
        """
        if scenario.gateway.transfer is not None:
            role_demands = demands(scenario, traffic)
            counts = [
                cheapest_counts(part, role_demand)
                for part, role_demand in zip(scenario.by_role, role_demands, strict=True)
            ]
            return cls(role_demands, np.concatenate(counts, axis=1))
        needed = demand(scenario, traffic)
        if traffic.prefix_tokens.any():
            for _ in range(_CACHE_ROUNDS):
                cached_tokens = _cached_tokens(scenario, traffic, static_fleet(scenario, needed))
                needed = demand(scenario, replace(traffic, prefix_tokens=cached_tokens))
        return cls((needed,), cheapest_counts(scenario, needed), causal_bound(scenario, traffic, needed))

    @classmethod
    def of_models(cls, scenario: Scenario, traffic: Sequence[Traffic]) -> tuple[Reference, ...]:
        """Return a reference of the traffic of each model; the fleets of all are within the GPUs of the cluster."""
        references = [
            cls.of(model, model_traffic) for model, model_traffic in zip(scenario.models, traffic, strict=True)
        ]
        if len(references) == 1:
            return tuple(references)
        counts = by_model(
            scenario, together(scenario, [role_demand for reference in references for role_demand in reference.demands])
        )
        return tuple(
            replace(reference, counts=model_counts) for reference, model_counts in zip(references, counts, strict=True)
        )

    def cost(self, scenario: Scenario, *, until_seconds: float) -> float:
        """Return the cost of the fleet of each moment, over the measured time."""
        return cost(scenario, self.counts, until_seconds=until_seconds)

    def prices(self, scenario: Scenario) -> NDArray[np.float64]:
        """Return the price per hour of the fleet of each moment, in the measured time."""
        measured = _moments(self.counts) + STEP_SECONDS > scenario.measured_from_seconds
        prices: NDArray[np.float64] = self.counts[measured] @ [setup.price for setup in scenario.variants]
        return prices

    def replicas_at(self, times: NDArray[np.float64]) -> tuple[float, ...]:
        """Return how many replicas the fleet of the moment has, at some times."""
        return tuple(float(total) for total in self.counts[self._moments(times)].sum(axis=1))

    def carried(self, times: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what some replicas carry at some times, in requests per second.

        With roles, it is the lowest share of its need that a role carries. ``counts`` has a row per time, a column per
        variant.
        """
        moments, shares, column = self._moments(times), [], 0
        for part in self.demands:
            columns = slice(column, column := column + part.capacity.shape[1])
            level = (counts[:, columns] * part.capacity[moments]).sum(axis=1)
            if len(self.demands) == 1:
                return np.asarray(level)
            with np.errstate(divide="ignore", invalid="ignore"):
                shares.append(np.where(part.rate[moments] > 0.0, level / part.rate[moments], np.inf))
        return np.asarray(np.min(shares, axis=0))

    def needed(self) -> StepFunction:
        """Return the demand in the unit of ``carried``."""
        rate = self.demands[0].rate if len(self.demands) == 1 else np.ones(len(self.counts))
        return StepFunction(_moments(rate), rate)

    def _moments(self, times: NDArray[np.float64]) -> NDArray[Any]:
        return np.clip((times // STEP_SECONDS).astype(np.int64), 0, len(self.counts) - 1)


def _cached_tokens(scenario: Scenario, traffic: Traffic, fleet: Sequence[int]) -> NDArray[np.int64]:
    """Return how many tokens of each prompt a fixed fleet finds in its prefix caches when nothing goes wrong."""
    variants = tuple(replace(setup, replicas=count) for setup, count in zip(scenario.variants, fleet, strict=True))
    world = StageWorld(replace(scenario, variants=variants, faults=()), seed=0, traffic=traffic)
    world.run([])
    return np.array(world.service.columns.found[: traffic.count], dtype=np.int64)


def chain(world: StageWorld, reference: Reference) -> Chain:
    """Return what each link had done at each time."""
    specified = _level(world, reference, _changes(world, world.asked))
    return Chain(
        needed=reference.needed(),
        looks=Looks(
            np.array([at for at, _ in world.looks]), np.maximum.accumulate(np.array([data for _, data in world.looks]))
        ),
        asked=_level(world, reference, _changes(world, world.wanted)) if world.wanted else specified,
        specified=specified,
        placed=_level(world, reference, _lives(world, ready=False), initial=False),
        ready=_level(world, reference, _lives(world, ready=True), initial=False),
        serving=_level(world, reference, _lives(world, ready=True, as_fast_as_it_is=True), initial=False),
    )


def pod_speeds(world: StageWorld, rows: NDArray[np.int64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the speed, relative to its type, of the pod that had each row of the service at the row's time.

    It is 1 where no pod had the row.
    """
    speeds = np.ones(len(rows))
    if all(replica.speed == 1.0 for replica in world.replicas):
        return speeds
    for row in np.unique(rows):
        owners = [replica for replica in world.replicas if replica.row == row]
        chosen = rows == row
        latest = np.searchsorted([owner.created_seconds for owner in owners], seconds[chosen], side="right") - 1
        if owners:
            speeds[chosen] = np.array([owner.speed for owner in owners])[latest]
    return speeds


def asked_together(world: StageWorld) -> list[ScaleRequest]:
    """Return the changes of spec.replicas of all models, in order of time."""
    return sorted((change for model in world.models for change in model.asked), key=attrgetter("at_seconds"))


def most_needed(world: StageWorld, references: Sequence[Reference]) -> float:
    """Return the highest price per hour of the cheapest sufficient fleet of all models, in the measured time."""
    prices = [reference.prices(model.scenario) for model, reference in zip(world.models, references, strict=True)]
    return float(np.sum(prices, axis=0).max(initial=0.0))


def most_asked(world: StageWorld) -> float:
    """Return the highest price per hour of what spec.replicas asked for at once, in the measured time.

    Changes at the same time count together: of a move from one variant to another only the result counts.
    """
    setups = world.scenario.all_variants
    prices = {setup.name: setup.price for setup in setups}
    price = sum(setup.price * setup.replicas for setup in setups)
    asked = {0.0: price}
    for change in asked_together(world):
        price += prices[change.variant] * (change.after - change.before)
        asked[change.at_seconds] = price
    begin = max(at for at in asked if at <= world.scenario.measured_from_seconds)
    return max(highest for at, highest in asked.items() if at >= begin)


def shortages(world: StageWorld, reference: Reference) -> tuple[float, ...]:
    """Return for each time that the demand outgrew the Ready replicas how long it took until they carried it again.

    Shortages that began before the measured time do not count.
    """
    ready = _level(world, reference, _lives(world, ready=True), initial=False)
    short = ready.values < reference.needed().at(ready.times)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], short.astype(np.int8), [0]))))
    times = np.append(ready.times, world.traffic.duration_seconds)
    return tuple(
        float(times[end] - times[begin])
        for begin, end in edges.reshape(-1, 2)
        if times[begin] >= world.scenario.measured_from_seconds
    )


def _changes(world: StageWorld, asked: Iterable[ScaleRequest]) -> list[Event]:
    columns = {setup.name: column for column, setup in enumerate(world.scenario.variants)}
    return [(change.at_seconds, columns[change.variant], change.after - change.before) for change in asked]


def _lives(world: StageWorld, *, ready: bool, as_fast_as_it_is: bool = False) -> list[Event]:
    """Return when replicas got a node, or became Ready, and were terminated; a slow one may count as less than 1."""
    columns = {setup.name: column for column, setup in enumerate(world.scenario.variants)}
    events: list[Event] = []
    for replica in world.replicas:
        begin = replica.ready_seconds if ready else max(0.0, replica.placed_seconds)
        end = replica.terminated_seconds
        count = replica.speed if as_fast_as_it_is else 1.0
        if end is None or begin < end:
            events.append((begin, columns[replica.variant], count))
            events += [] if end is None else [(end, columns[replica.variant], -count)]
    return events


def _level(world: StageWorld, reference: Reference, events: list[Event], *, initial: bool = True) -> StepFunction:
    """Return the capacity over time of replicas that come and go; ``initial``: the scenario's are there at first."""
    setups = world.scenario.variants
    times = np.union1d(_moments(reference.counts), np.array([at for at, _, _ in events]))
    steps = np.zeros((len(times), len(setups)))
    for at, column, step in events:
        steps[np.searchsorted(times, at), column] += step
    if initial:
        steps[0] += [setup.replicas for setup in setups]
    return StepFunction(times, reference.carried(times, steps.cumsum(axis=0)))


def _moments(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return when the moment of each row begins."""
    return np.arange(len(rows), dtype=np.float64) * STEP_SECONDS
