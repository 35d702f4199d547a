"""The demand of each model on earlier days, from the counters of its engines (``model.usual`` compares the days).

Every five minutes, beside the cycles, WVA asks Prometheus how many requests have come to each model. It keeps the
answers of a week, 2,016 numbers for each model. After a start it reads the week from Prometheus, in blocks of at most
five hours with a pause between two, the newest first. Where Prometheus keeps less than a week, WVA knows fewer days,
and more of them as it runs.

A request counts when it comes, not when it is done: the requests that have ended or were refused count, and so does the
growth of those in progress and of those that pickers hold back. Otherwise a peak that found too few replicas would seem
to come when the new ones served.

A model at zero has no engine, so its demand is not known, and the day does not count until half an hour later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from random import Random
from typing import Final, NoReturn

import msgspec

from wva.clock import Clock
from wva.collect.queries import (
    QUEUE_LABELS,
    QUEUE_SERIES,
    Query,
    chunks,
    in_progress,
    joined,
    namespace_matcher,
    picker_gauge,
)
from wva.collect.samples import AMOUNT
from wva.collect.shared_queries import Round, SharedQueries
from wva.kube.backoff import Backoff
from wva.model.usual import KEPT, PART_SECONDS, DemandDays, UsualDemand
from wva.model.variant import ModelKey
from wva.prometheus.answers import InstantSeries, InstantVector, Labels, RangeQuerier, RangeSeries
from wva.slices import beside

EARLIER_DAYS: Final = "earlier_days"
SETTLED_SECONDS: Final = 20.0
"""So long after the end of a part all its samples are there."""
_PAUSE_SECONDS: Final = 10.0
_LONGEST_PAUSE_SECONDS: Final = 300.0
_BLOCK: Final = 60
_SMALLEST_BLOCK: Final = 6
_QUERY_SECONDS: Final = 20.0


class DaySignal(StrEnum):
    """The signals of a model in ``earlier_days``: the values of the label ``signal``."""

    FINISHED = "finished"
    REFUSED = "refused"
    IN_PROGRESS = "in_progress"
    IN_PROGRESS_BEFORE = "in_progress_before"
    HELD_BACK = "held_back"
    HELD_BACK_BEFORE = "held_back_before"


def earlier_days(namespaces: Sequence[str]) -> Query:
    """Return the query for the requests that came to each model in five minutes."""
    return Query(EARLIER_DAYS, joined(expressions(namespaces)), essential=False)


def expressions(namespaces: Sequence[str]) -> dict[str, str]:
    """Return the expressions of this query by signal."""
    matchers, window = namespace_matcher(namespaces), f"{PART_SECONDS / 60.0:.0f}m"

    def counted(series: str, label: str) -> str:
        engines = f"max by (namespace, model_name, pod, engine, {label})"
        return f"sum by (namespace, model_name) ({engines} (rate({series}{matchers}[{window}])))"

    def held_back(shape: str) -> str:
        return f"sum {QUEUE_LABELS} (max {QUEUE_SERIES} ({picker_gauge('flow_control_queue_size', matchers, shape)}))"

    return {
        DaySignal.FINISHED: counted("vllm:request_success_total", "finished_reason"),
        DaySignal.REFUSED: counted("vllm:admission_rejections_total", "reason"),
        DaySignal.IN_PROGRESS: in_progress(namespaces).text,
        DaySignal.IN_PROGRESS_BEFORE: in_progress(namespaces, offset=f" offset {window}").text,
        DaySignal.HELD_BACK: held_back("{}"),
        DaySignal.HELD_BACK_BEFORE: held_back(f"{{}} offset {window}"),
    }


def demand_of(series: Iterable[InstantSeries]) -> dict[tuple[ModelKey, float], float]:
    """Return by model and time the requests that came per second in the part that ended then.

    Where nothing was counted, there is no entry.
    """
    by_part: dict[tuple[ModelKey, float], dict[str, float]] = {}
    for element in series:
        value = None if element.value is None else AMOUNT.range.find(element.value[1])
        if element.value is not None and value is not None:
            labels = element.metric
            model = ModelKey(labels.namespace or "", labels.target_model_name or labels.model_name or "")
            signals = by_part.setdefault((model, element.value[0]), {})
            signals[labels.signal or ""] = signals.get(labels.signal or "", 0.0) + value
    return {part: came(signals) for part, signals in by_part.items() if DaySignal.FINISHED in signals}


def came(signals: Mapping[str, float]) -> float:
    """Return the requests that came per second; a growth of which one end is not known counts as none."""
    grown = 0.0
    for now, before in (
        (DaySignal.IN_PROGRESS, DaySignal.IN_PROGRESS_BEFORE),
        (DaySignal.HELD_BACK, DaySignal.HELD_BACK_BEFORE),
    ):
        if now in signals and before in signals:
            grown += signals[now] - signals[before]
    ended = signals[DaySignal.FINISHED] + signals.get(DaySignal.REFUSED, 0.0)
    return max(0.0, ended + grown / PART_SECONDS)


class _Parts:
    """Answers a query with all points since ``start``, one part apart. Times are in seconds since the epoch."""

    def __init__(self, prometheus: RangeQuerier, start: float) -> None:
        """Ask nothing yet."""
        self._prometheus = prometheus
        self._start = start

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:
        """Answer a query about the time until ``at``. Raises PrometheusError."""
        matrix = await self._prometheus.query_range(
            promql,
            name=name,
            start=self._start,
            end=at,
            step_seconds=PART_SECONDS,
            timeout_seconds=_QUERY_SECONDS,
        )
        return await beside(len(matrix), lambda: _points(matrix))


def _points(matrix: Iterable[RangeSeries]) -> InstantVector:
    points = []
    for series in matrix:
        labels = msgspec.convert(series.metric, Labels)
        points += [InstantSeries(labels, point) for point in series.values]
    return InstantVector(tuple(points))


@dataclass(slots=True)
class _Known:
    """What is known of a model: its days, all of them that Prometheus has from ``since`` on."""

    since: float
    days: DemandDays = field(default_factory=DemandDays)


@dataclass(slots=True, kw_only=True, eq=False)
class EarlierDays:
    """Asks for the demand of models, and remembers a week of it.

    ``models`` returns the models whose demand is foreseen. ``random`` spreads retries. ``note`` takes the result of the
    query (``QueryFailures.note``).
    """

    prometheus: RangeQuerier
    models: Callable[[], Collection[ModelKey]]
    clock: Clock
    random: Random = field(default_factory=Random)
    note: Callable[[str, Iterable[str], Mapping[str, str]], None] = lambda *_: None
    busy: bool = field(default=False, init=False)
    """Whether it is asking now."""
    _known: dict[ModelKey, _Known] = field(default_factory=dict, init=False)
    _until: float = field(default=0.0, init=False)
    """The end of the newest part that was asked for."""
    _usual: tuple[UsualDemand, ...] = field(default=(), init=False)
    _block: int = field(default=_BLOCK, init=False)
    _backoff: Backoff = field(init=False)
    _more: bool = field(default=True, init=False)
    """Whether some of the week is not read yet."""

    def __post_init__(self) -> None:
        """Know nothing yet."""
        self._backoff = Backoff(base_seconds=_PAUSE_SECONDS, cap_seconds=_LONGEST_PAUSE_SECONDS, random=self.random)

    def usual(self) -> tuple[UsualDemand, ...]:
        """Return what usually comes from now on, sorted by model, without models of which this is not known."""
        return self._usual

    async def run(self) -> NoReturn:
        """Ask until cancelled."""
        pause = _PAUSE_SECONDS
        while True:
            await self.clock.sleep(pause)
            self.busy = True
            try:
                answered = await self.look()
            finally:
                self.busy = False
            due = PART_SECONDS - (self.clock.now() - SETTLED_SECONDS) % PART_SECONDS
            if not answered:
                pause = self._backoff.next(self.clock.monotonic())
            else:
                pause = min(due, _PAUSE_SECONDS) if self._more else due

    async def look(self) -> bool:
        """Ask for what has come since the last look, and for one block of the past; return whether there were answers.

        A model is asked about only from the first look at it on, and backwards from then.
        """
        models = frozenset(self.models())
        end = (self.clock.now() - SETTLED_SECONDS) // PART_SECONDS * PART_SECONDS
        self._known = {model: known for model, known in self._known.items() if model in models and known.since <= end}
        missed = round((end - self._until) / PART_SECONDS) if self._known else 0
        if missed > self._block:  # another process has led, or there was no answer for hours: the week is read again
            for known in self._known.values():
                known.since = end
        elif missed > 0 and not await self._read(list(self._known), end, missed):
            return False
        self._until = end
        for model in models - self._known.keys():
            self._known[model] = _Known(end)
        answered = await self._read_back(end - KEPT * PART_SECONDS)
        found = [self._known[model].days.usual(model, end) for model in sorted(self._known)]
        self._usual = tuple([entry for entry in found if entry is not None])
        return answered

    async def _read_back(self, oldest: float) -> bool:
        """Read one block of the past of the models of which the least is known."""
        left = {model: known.since for model, known in self._known.items() if known.since > oldest}
        self._more = bool(left)
        if not left:
            return True
        newest = max(left.values())
        models = [model for model, since in left.items() if since == newest]
        parts = min(self._block, round((newest - oldest) / PART_SECONDS))
        if not await self._read(models, newest, parts):
            self._block = max(_SMALLEST_BLOCK, self._block // 2)
            return False
        for model in models:
            self._known[model].since = newest - parts * PART_SECONDS
        return True

    async def _read(self, models: Sequence[ModelKey], end: float, parts: int) -> bool:
        """Read some parts, the last of which ends at ``end``; return whether there was an answer."""
        shared = SharedQueries(_Parts(self.prometheus, end - PART_SECONDS * (parts - 1)))
        round_ = Round(end, _QUERY_SECONDS)
        round_.others_begin.set()  # there is no essential query to wait for
        groups = chunks(model.namespace for model in models)
        asked, failed = {model.namespace for model in models}, dict[str, str]()
        for namespaces in groups:
            round_.begin()
            settled = await shared.settle(EARLIER_DAYS, {EARLIER_DAYS: earlier_days}, namespaces, round_)
            failed |= {namespace: failure.message for namespace, failure in settled.failed.items()}
            series = settled.answers.get(EARLIER_DAYS, InstantVector()).series
            for (model, at), rate in (await beside(len(series) // parts, partial(demand_of, series))).items():
                if model in self._known:
                    self._known[model].days.put(at, rate)
        self.note(EARLIER_DAYS, asked, failed)
        return len(failed) < len(asked)
