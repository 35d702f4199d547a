"""One run of one policy in one scenario, and what it came to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wva.model.objectives import Objectives
from wva.sim.fleet.columns import BROKEN, REFUSED, SERVED, TIMED_OUT
from wva.sim.stage.late import LateRequests, causes
from wva.sim.stage.links import Reference, chain, most_asked, pod_speeds, shortages
from wva.sim.stage.result import Figures, RunResult, StageTimeline, TimelineOfVariant
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.view import StageController
from wva.sim.stage.world import TIMELINE_SECONDS, StageWorld
from wva.sim.traffic.requests import Traffic

_HOUR = 3600.0


Policy = Callable[[Scenario, int], list[StageController]]
"""Makes the controllers of a run from its scenario and seed."""


def play(scenario: Scenario, name: str, seed: int, policy: Policy) -> RunResult:
    """Run a policy; the result has it under this name."""
    traffic = scenario.traffic(seed)
    reference = reference_of(scenario, traffic)
    world = StageWorld(scenario, seed=seed, traffic=traffic)
    world.run(policy(scenario, seed))
    return RunResult(scenario.name, name, seed, figures(world, reference), timeline(world, reference))


_RECENT: Final[list[tuple[Traffic, tuple[VariantSetup, ...], Objectives, Reference]]] = []
"""The last traffic, the variants and objectives for it, and its reference: that is the same for all policies."""


def reference_of(scenario: Scenario, traffic: Traffic) -> Reference:
    """Return the reference of some traffic, made once for runs that follow each other with the same traffic."""
    for known, variants, objectives, reference in _RECENT:
        if known is traffic and (variants, objectives) == (scenario.variants, scenario.objectives):
            return reference
    reference = Reference.of(scenario, traffic)
    _RECENT[:] = [(traffic, scenario.variants, scenario.objectives, reference)]
    return reference


def figures(world: StageWorld, reference: Reference | None = None) -> Figures:
    """Return the figures of a world that has ended."""
    reference = reference or Reference.of(world.scenario, world.traffic)
    scenario, users = world.scenario, _Users(world)
    total = np.array([sum(moment.existing) for moment in world.moments if moment.at_seconds >= users.since])
    prices = {variant.name: variant.price for variant in scenario.variants}
    hours = _replica_hours(world, users.since)
    up = sum(change.after > change.before for change in world.asked if change.at_seconds >= users.since)
    down = sum(change.after < change.before for change in world.asked if change.at_seconds >= users.since)
    late = causes(users.late(world), chain(world, reference))
    return Figures(
        requests=users.count,
        served=users.of(SERVED),
        timed_out=users.of(TIMED_OUT),
        refused=users.of(REFUSED),
        broken=users.of(BROKEN),
        retried=users.retried,
        ttft_attainment=users.share(users.in_time),
        itl_attainment=users.share(users.fluent),
        attainment=users.share(users.in_time & users.fluent),
        ttft_p50_seconds=users.quantile(users.ttft, 0.5),
        ttft_p99_seconds=users.quantile(users.ttft, 0.99),
        itl_p50_seconds=users.quantile(users.itl, 0.5),
        goodput_per_second=float(np.sum(users.in_time & users.fluent)) / (scenario_end(world) - users.since),
        replica_hours=hours,
        gpu_hours=sum(variant.gpus * hours[variant.name] for variant in scenario.variants),
        cost=sum(prices[name] * value for name, value in hours.items()),
        ideal_cost=reference.cost(scenario, until_seconds=scenario_end(world)),
        most_asked=most_asked(world),
        most_needed=reference.most_needed(scenario),
        causal_bound=reference.bound,
        mean_replicas=float(total.mean()) if len(total) else 0.0,
        peak_replicas=int(total.max(initial=0)),
        reversals=_reversals(world, users.since),
        scale_ups=up,
        scale_downs=down,
        late_by_cause=late.first_token,
        late_tokens_by_cause=late.tokens,
        seconds_to_capacity=shortages(world, reference),
    )


def scenario_end(world: StageWorld) -> float:
    """Return when the traffic ends, in virtual seconds."""
    return world.traffic.duration_seconds


def timeline(world: StageWorld, reference: Reference | None = None) -> StageTimeline:
    """Return what a plot shows of a world that has ended."""
    reference = reference or Reference.of(world.scenario, world.traffic)
    users = _Users(world, everybody=True)
    edges = np.array([moment.at_seconds for moment in world.moments])
    place = np.clip(np.searchsorted(edges, users.arrival, side="left"), 0, len(edges) - 1)
    arrived = np.bincount(place, minlength=len(edges))
    late = np.bincount(place, weights=~users.in_time, minlength=len(edges))
    return StageTimeline(
        step_seconds=TIMELINE_SECONDS,
        offered_per_second=tuple(float(value) / TIMELINE_SECONDS for value in arrived),
        late_share=tuple(float(bad) / float(all_) if all_ else None for bad, all_ in zip(late, arrived, strict=True)),
        waiting=tuple(moment.waiting for moment in world.moments),
        ideal_replicas=reference.replicas_at(edges),
        variants=tuple(
            TimelineOfVariant(
                variant.name,
                variant.price,
                asked=tuple(moment.asked[place] for moment in world.moments),
                existing=tuple(moment.existing[place] for moment in world.moments),
                ready=tuple(moment.ready[place] for moment in world.moments),
            )
            for place, variant in enumerate(world.scenario.variants)
        ),
    )


class _Users:
    """What the users of the measured time got, a value for each of them; times in seconds, infinite for what failed."""

    def __init__(self, world: StageWorld, *, everybody: bool = False) -> None:
        service, objectives = world.service, world.scenario.objectives

        def column(name: str) -> NDArray[np.float64]:
            return np.asarray(getattr(service.columns, name), dtype=np.float64)

        arrival = column("arrival")
        self.since = 0.0 if everybody else world.scenario.measured_from_seconds
        chosen = arrival >= self.since
        self.arrival = arrival[chosen]
        self.state = column("state")[chosen]
        served = self.state == SERVED
        first, finish = column("first")[chosen], column("finish")[chosen]
        gaps = np.maximum(column("length")[chosen] - 1, 1)
        self.ttft: NDArray[Any] = np.where(served, first - self.arrival, np.inf)
        with np.errstate(invalid="ignore"):
            self.itl: NDArray[Any] = np.where(served, (finish - first) / gaps, np.inf)
        self.in_time: NDArray[Any] = self.ttft <= objectives.ttft_seconds
        self.fluent: NDArray[Any] = self.itl <= objectives.itl_seconds
        self.retried = int(np.maximum(column("attempts")[chosen] - 1, 0).sum())
        self._objectives = objectives
        self._queued, self._first, self._finish = column("queued")[chosen], first, finish
        self._row = column("engine")[chosen].astype(np.int64)

    def late(self, world: StageWorld) -> LateRequests:
        """Return those that were late or failed."""
        chosen = ~(self.in_time & self.fluent)
        tokens = self.in_time[chosen]
        first, queued = self._first[chosen], self._queued[chosen]
        speed = pod_speeds(world, self._row[chosen], queued)
        with np.errstate(invalid="ignore"):
            # What a pod does takes as much longer as it is slower; what was before it got the request does not.
            ttft = queued - self.arrival[chosen] + (first - queued) * speed
            in_time = (ttft <= self._objectives.ttft_seconds) & (
                self.itl[chosen] * speed <= self._objectives.itl_seconds
            )
            middle = (first + self._finish[chosen]) / 2
        seconds = np.where(tokens, middle, self.arrival[chosen])
        return LateRequests(seconds, tokens, (speed < 1.0) & in_time)

    @property
    def count(self) -> int:
        return len(self.arrival)

    def of(self, state: int) -> int:
        return int((self.state == state).sum())

    def share(self, good: NDArray[Any]) -> float:
        return float(good.mean()) if len(good) else 1.0

    def quantile(self, values: NDArray[Any], share: float) -> float | None:
        answered = values[np.isfinite(values)]
        return float(np.quantile(answered, share, method="inverted_cdf")) if len(answered) else None


def _replica_hours(world: StageWorld, since: float) -> dict[str, float]:
    """Return by variant how long its replicas existed, from creation to end."""
    hours = {variant.name: 0.0 for variant in world.scenario.variants}
    for replica in world.replicas:
        end = scenario_end(world) if replica.ended_seconds is None else replica.ended_seconds
        hours[replica.variant] += max(0.0, end - max(since, replica.created_seconds)) / _HOUR
    return hours


def _reversals(world: StageWorld, since: float) -> int:
    """Count how often what is asked for in total turned from growing to shrinking or back."""
    before, turns = 0, 0
    by_time: dict[float, int] = {}
    for change in world.asked:
        by_time[change.at_seconds] = by_time.get(change.at_seconds, 0) + change.after - change.before
    for at, step in by_time.items():
        direction = (step > 0) - (step < 0)
        if direction and before and direction != before and at >= since:
            turns += 1
        before = direction or before
    return turns
