"""One run of one policy in one scenario, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wva.sim.fleet.columns import BROKEN, REFUSED, SERVED, TIMED_OUT
from wva.sim.stage.late import LateRequests, causes
from wva.sim.stage.links import Reference, asked_together, chain, most_asked, most_needed, pod_speeds, shortages
from wva.sim.stage.result import Figures, RunResult, StageTimeline, TimelineOfVariant
from wva.sim.stage.scenario import Scenario
from wva.sim.stage.view import StageController
from wva.sim.stage.world import TIMELINE_SECONDS, StageWorld
from wva.sim.traffic.requests import Traffic

_HOUR = 3600.0


Policy = Callable[[Scenario, int], list[StageController]]
"""Makes the controllers of a run from its scenario and seed.

A policy whose attribute ``joint`` is true makes those of all models of the scenario; any other is called per model.
"""


def play(scenario: Scenario, name: str, seed: int, policy: Policy) -> RunResult:
    """Run a policy; ``name`` is its name in the result."""
    world = StageWorld(scenario, seed=seed)
    references = references_of(scenario, [model.traffic for model in world.models])
    joint = getattr(policy, "joint", False)
    world.run(*(policy(model, seed) for model in ((scenario,) if joint else scenario.models)))
    return RunResult(scenario.name, name, seed, figures(world, *references), timeline(world, *references))


_RECENT: Final[list[tuple[list[Traffic], object, tuple[Reference, ...]]]] = []
"""The last traffic, the GPUs, variants and objectives for it, and its references, the same for all policies."""


def references_of(scenario: Scenario, traffic: Sequence[Traffic]) -> tuple[Reference, ...]:
    """Return a reference of the traffic of each model; runs that follow each other with the same traffic share it."""
    setting = scenario.gpus, [(model.variants, model.objectives) for model in scenario.models]
    for known_traffic, known_setting, references in _RECENT:
        if known_setting == setting and all(known is now for known, now in zip(known_traffic, traffic, strict=True)):
            return references
    references = Reference.of_models(scenario, traffic)
    _RECENT[:] = [(list(traffic), setting, references)]
    return references


def figures(world: StageWorld, *references: Reference) -> Figures:
    """Return the figures of a world that has ended: of all its models together. ``references`` has one per model."""
    references = references or Reference.of_models(world.scenario, [model.traffic for model in world.models])
    models = list(zip(world.models, references, strict=True))
    users = _Users(world.models)
    moments = zip(*(model.moments for model in world.models), strict=True)
    total = np.array(
        [
            sum(sum(instant.existing) for instant in instants)
            for instants in moments
            if instants[0].at_seconds >= users.since
        ]
    )
    variants = world.scenario.all_variants
    hours = {name: value for model in world.models for name, value in _replica_hours(model, users.since).items()}
    asked = [change for change in asked_together(world) if change.at_seconds >= users.since]
    users_by_model = [users] if len(models) == 1 else [_Users([model]) for model in world.models]
    late = [
        causes(model_users.late(model), chain(model, reference))
        for model_users, (model, reference) in zip(users_by_model, models, strict=True)
    ]
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
        gpu_hours=sum(variant.gpus * hours[variant.name] for variant in variants),
        cost=sum(variant.price * hours[variant.name] for variant in variants),
        ideal_cost=sum(
            reference.cost(model.scenario, until_seconds=scenario_end(world)) for model, reference in models
        ),
        most_asked=most_asked(world),
        most_needed=most_needed(world, references),
        causal_bound=references[0].bound if len(references) == 1 else None,
        mean_replicas=float(total.mean()) if len(total) else 0.0,
        peak_replicas=int(total.max(initial=0)),
        reversals=_reversals(world, users.since),
        scale_ups=sum(change.after > change.before for change in asked),
        scale_downs=sum(change.after < change.before for change in asked),
        late_by_cause=_added([counts.first_token for counts in late]),
        late_tokens_by_cause=_added([counts.tokens for counts in late]),
        seconds_to_capacity=tuple(seconds for model, reference in models for seconds in shortages(model, reference)),
    )


def _added(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {cause: sum(count[cause] for count in counts) for cause in counts[0]}


def scenario_end(world: StageWorld) -> float:
    """Return when the traffic ends, in virtual seconds."""
    return world.traffic.duration_seconds


def timeline(world: StageWorld, *references: Reference) -> StageTimeline:
    """Return what a plot shows of a world that has ended. ``references`` has one per model."""
    references = references or Reference.of_models(world.scenario, [model.traffic for model in world.models])
    users = _Users(world.models, everybody=True)
    edges = np.array([moment.at_seconds for moment in world.moments])
    moments = zip(*(model.moments for model in world.models), strict=True)
    index = np.clip(np.searchsorted(edges, users.arrival, side="left"), 0, len(edges) - 1)
    arrived = np.bincount(index, minlength=len(edges))
    late = np.bincount(index, weights=~users.in_time, minlength=len(edges))
    return StageTimeline(
        step_seconds=TIMELINE_SECONDS,
        offered_per_second=tuple(float(value) / TIMELINE_SECONDS for value in arrived),
        late_share=tuple(
            float(late_count) / float(arrived_count) if arrived_count else None
            for late_count, arrived_count in zip(late, arrived, strict=True)
        ),
        waiting=tuple(sum(instant.waiting for instant in instants) for instants in moments),
        ideal_replicas=tuple(map(sum, zip(*(reference.replicas_at(edges) for reference in references), strict=True))),
        variants=tuple(
            TimelineOfVariant(
                variant.name,
                variant.price,
                asked=tuple(moment.asked[column] for moment in model.moments),
                existing=tuple(moment.existing[column] for moment in model.moments),
                ready=tuple(moment.ready[column] for moment in model.moments),
            )
            for model in world.models
            for column, variant in enumerate(model.scenario.variants)
        ),
    )


class _Users:
    """What the users of the measured time got, a value per request; times in seconds, infinite where it failed."""

    def __init__(self, models: Sequence[StageWorld], *, everybody: bool = False) -> None:
        objectives = models[0].scenario.objectives

        def column(name: str) -> NDArray[np.float64]:
            # Where there are roles, the rows after those of the requests are for their prompts.
            by_model = [getattr(model.service.columns, name)[: model.traffic.count] for model in models]
            return np.concatenate([np.asarray(values, dtype=np.float64) for values in by_model])

        arrival = column("arrival")
        self.since = 0.0 if everybody else models[0].scenario.measured_from_seconds
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
        """Return the requests that were late or failed."""
        chosen = ~(self.in_time & self.fluent)
        tokens = self.in_time[chosen]
        first, queued = self._first[chosen], self._queued[chosen]
        speed = pod_speeds(world, self._row[chosen], queued)
        with np.errstate(invalid="ignore"):
            # A pod of normal speed would shorten the time in the pod by this factor, but not the time before.
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
    """Return by variant how long its replicas had their GPUs."""
    hours = {variant.name: 0.0 for variant in world.scenario.variants}
    for replica in world.replicas:
        end = scenario_end(world) if replica.ended_seconds is None else replica.ended_seconds
        hours[replica.variant] += max(0.0, end - max(since, replica.placed_seconds)) / _HOUR
    return hours


def _reversals(world: StageWorld, since: float) -> int:
    """Count how often the total of replicas asked for turned from growing to shrinking or back."""
    last_direction, turns = 0, 0
    by_time: dict[float, int] = {}
    for change in asked_together(world):
        by_time[change.at_seconds] = by_time.get(change.at_seconds, 0) + change.after - change.before
    for at, step in by_time.items():
        direction = (step > 0) - (step < 0)
        if direction and last_direction and direction != last_direction and at >= since:
            turns += 1
        last_direction = direction or last_direction
    return turns
