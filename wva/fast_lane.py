"""The fast lane: between two cycles, a look every few seconds at the requests in progress of each model.

A cycle asks Prometheus for all that a decision needs. The fast lane sends one query (one for every hundred namespaces)
for two gauges. It compares the sum of each model with what its replicas carry, as the last cycle has computed it. When
a model has more, or soon will at the pace of its rise, the next cycle begins at once, and gets the names of these
models. A rise counts if it is more than chance. So growth does not wait for the end of the interval, and the steady
cost is that one query. If one namespace spoils the answer, the fast lane asks about it alone, as a cycle does. A query
that fails wakes nothing, and is noted for a condition.

``Urgency`` decides when to look, and which models need a cycle; it has no clock and no connection. ``FastLane`` looks.

There is no look while a cycle runs, or in the second before one, because the cycle reads the same gauges. The looks
are spread evenly between two cycles, so no time without one is longer than ``seconds()``. When the fast lane has woken
a cycle, or a cycle has ordered replicas, they come four times as often for a while, because the rise probably goes on
and the cycle may have seen only its beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, inf, isfinite, sqrt
from typing import Final, NoReturn, Protocol

from wva import log
from wva.clock import Clock
from wva.collect import queries
from wva.collect.shared_queries import Round, SharedQueries
from wva.model.variant import ModelKey
from wva.numbers import Real
from wva.prometheus.answers import InstantVector, Querier

MORE: Final = 1.1
"""A model above its ceiling wakes a cycle again only with so many times the requests that woke the last one."""
_SOON_FULL_SECONDS: Final = 15.0
"""How far ahead a rise is followed: no replica that is ordered now serves sooner."""
_CERTAIN: Final = 4.0
"""A rise is more than chance if it is so many times its standard deviation. A fleet has hundreds of models."""
_OFTEN_SECONDS: Final = 60.0
OFTEN: Final = 8
"""So many cycles may the models of a namespace begin within a minute: a load that swings cannot keep everybody busy."""
_QUERY_SECONDS: Final = 3.0
_REQUESTS: Final = Real(0.0, 1e9)
_SWITCHED_OFF_SECONDS: Final = 60.0
_SOON_SECONDS: Final = 1.0
"""A cycle that begins so soon takes the place of a look."""
_INSTANT_SECONDS: Final = 0.001
"""A wait that is shorter than this is over."""

_log = log.get("fast_lane")


class CycleTimes(Protocol):
    """The last cycle and the next one, in monotonic seconds; what the last one found and did."""

    began: float
    due: float
    grew: bool
    ceilings: Mapping[ModelKey, float]


class Wakes(CycleTimes, Protocol):
    """What the fast lane wakes: the optimizer loop."""

    busy: bool

    def wake(self, models: Collection[ModelKey]) -> None:
        """Begin the next cycle now, for these models."""


@dataclass(slots=True, eq=False)
class Urgency:
    """Decides when to look, and which models need a cycle now. Pure: all times are arguments, in monotonic seconds.

    ``seconds`` is the longest time without a look, above 0.
    """

    _due: float = field(default=-inf, init=False)
    """Before this time there is no look."""
    _calm: dict[ModelKey, tuple[float, float]] = field(default_factory=dict, init=False)
    """The time of a recent look at which a model needed no cycle, and its requests then."""
    _woken: dict[str, list[float]] = field(default_factory=dict, init=False)
    """When models of each namespace began a cycle within the last minute."""
    _follow_until: float = field(default=-inf, init=False)
    """Until when looks come more often, because a cycle has been woken."""
    _waking_requests: dict[ModelKey, float] = field(default_factory=dict, init=False)
    """The requests in progress with which each model has woken a cycle, until it is below its ceiling again."""

    def next_look(self, cycles: CycleTimes, *, seconds: float, now: float) -> float:
        """Return when the next look is due."""
        return max(self._due, cycles.began + self._pause(cycles, seconds, now))

    def wants(self, cycles: CycleTimes, *, seconds: float, now: float) -> bool:
        """Tell whether a look that is due is of use. If not, it is tried again soon."""
        self._due = now + seconds / 4
        return cycles.due - now > _SOON_SECONDS and bool(cycles.ceilings)

    def looked(self, cycles: CycleTimes, *, seconds: float, now: float, woken: bool) -> None:
        """Take note of a look that began at ``now``, and of whether it has woken a cycle."""
        if woken:
            self._follow_until = now + seconds
        self._due = now + self._pause(cycles, seconds, now)

    def _pause(self, cycles: CycleTimes, seconds: float, now: float) -> float:
        """Return the seconds between two looks, and between the begin of a cycle and a look."""
        if now < self._follow_until or (cycles.grew and now < cycles.began + seconds):
            return seconds / 4
        between = cycles.due - cycles.began
        return between / ceil(between / seconds) if isfinite(between) and between > 0 else seconds

    def urgent(
        self,
        ceilings: Mapping[ModelKey, float],
        requests_by_model: Mapping[ModelKey, float],
        *,
        seconds: float,
        now: float,
        unknown: Collection[str] = (),
    ) -> list[ModelKey]:
        """Return the models that need a cycle now.

        ``ceilings`` are the requests in progress that the replicas of each model carry, ``requests_by_model``
        the requests that a look has found. A model without an entry has none, unless its namespace is ``unknown``.
        """
        urgent_models: list[ModelKey] = []
        for model, ceiling in ceilings.items():
            if model.namespace in unknown:
                continue
            requests = requests_by_model.get(model, 0.0)
            calm = self._calm.get(model)
            # By how many requests per second the model has risen since it was calm; 0 if that may be chance.
            rise = 0.0
            if calm is not None and now > calm[0]:
                risen = requests - calm[1]
                if risen > _CERTAIN * sqrt(requests + calm[1]):
                    rise = risen / (now - calm[0])
            if requests + rise * _SOON_FULL_SECONDS <= ceiling:
                # Between looks that follow each other closely even a steep rise may be chance.
                if calm is None or now - calm[0] >= seconds / 2 or requests < calm[1]:
                    self._calm[model] = now, requests
                self._waking_requests.pop(model, None)
                continue
            waking_requests = self._waking_requests.get(model, 0.0)
            # A model that has woken a cycle by its rise wakes another one when it is above its ceiling.
            if requests > MORE * waking_requests or waking_requests <= ceiling < requests:
                # But not if models of the namespace have begun many cycles lately. Models of one look begin one cycle.
                times = [at for at in self._woken.get(model.namespace, ()) if at > now - _OFTEN_SECONDS]
                self._woken[model.namespace] = times
                if now not in times and len(times) < OFTEN:
                    times.append(now)
                if now in times:
                    self._waking_requests[model] = requests
                    urgent_models.append(model)
        for remembered in (self._waking_requests, self._calm):
            for model in remembered.keys() - ceilings.keys():
                del remembered[model]
        for namespace in self._woken.keys() - {model.namespace for model in ceilings}:
            del self._woken[namespace]
        return urgent_models


@dataclass(slots=True, kw_only=True, eq=False)
class FastLane:
    """Looks every ``seconds()`` between cycles; 0 switches it off."""

    prometheus: Querier
    optimizer: Wakes
    seconds: Callable[[], float]
    clock: Clock
    note: Callable[[str, Iterable[str], Mapping[str, str]], None] = lambda *_: None
    """Notes the outcome of a query (``QueryFailures.note``)."""
    busy: bool = field(default=False, init=False)
    """Whether a look is under way."""
    _urgency: Urgency = field(default_factory=Urgency, init=False)
    _shared: SharedQueries = field(init=False)

    def __post_init__(self) -> None:
        """Suspect no namespace yet."""
        self._shared = SharedQueries(self.prometheus)

    async def run(self) -> NoReturn:
        """Look until cancelled."""
        while True:
            seconds = self.seconds()
            now = self.clock.monotonic()
            cycles = self.optimizer
            due = self._urgency.next_look(cycles, seconds=seconds, now=now) if seconds else now + _SWITCHED_OFF_SECONDS
            if due - now > _INSTANT_SECONDS:
                await self.clock.sleep(due - now)
                continue
            if self._urgency.wants(cycles, seconds=seconds, now=now) and not cycles.busy:
                self.busy = True
                try:
                    woken = bool(await self.look())
                finally:
                    self.busy = False
                self._urgency.looked(cycles, seconds=seconds, now=now, woken=woken)

    async def look(self) -> list[ModelKey]:
        """Ask once, wake a cycle if it is needed, and return the models that need it."""
        ceilings = self.optimizer.ceilings
        round_ = Round(self.clock.now(), _QUERY_SECONDS)
        round_.others_begin.set()  # there is no essential query to wait for
        makes = {queries.IN_PROGRESS: queries.in_progress}
        chunks = queries.chunks(model.namespace for model in ceilings)
        lookups = [self._shared.settle(queries.IN_PROGRESS, makes, chunk, round_) for chunk in chunks]
        requests: dict[ModelKey, float] = {}
        unknown: set[str] = set()
        for chunk, settled in zip(chunks, await asyncio.gather(*lookups), strict=True):
            unknown.update(settled.failed)
            self.note(
                queries.IN_PROGRESS,
                chunk,
                {namespace: failure.message for namespace, failure in settled.failed.items()},
            )
            for series in settled.answers.get(queries.IN_PROGRESS, InstantVector()).series:
                value = None if series.value is None else _REQUESTS.find(series.value[1])
                namespace, name = series.metric.namespace, series.metric.model_name
                if value is not None and namespace and name:
                    requests[ModelKey(namespace, name)] = value
        urgent_models = self._urgency.urgent(
            ceilings, requests, unknown=unknown, seconds=self.seconds(), now=self.clock.monotonic()
        )
        if urgent_models:
            _log.info("cycle_woken", models=[str(model) for model in urgent_models[:5]], count=len(urgent_models))
            self.optimizer.wake(urgent_models)
        return urgent_models
