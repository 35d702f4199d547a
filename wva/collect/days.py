"""The demand of each model on earlier days, from the counters of its engines (``model.usual`` compares the days).

Every five minutes, beside the cycles, WVA asks Prometheus how many requests have come to each model. It keeps the
answers of a week, 2,020 numbers for each model. After a start it reads the week from Prometheus, a day each minute, the
newest first. Where Prometheus keeps less than a week, WVA knows fewer days, and more of them as it runs.

A request counts when it comes, not when it is done: the requests that have ended or were refused count, and so does the
growth of those in progress and of those that pickers hold back. Otherwise a peak that found too few replicas would seem
to come when the new ones served. The pods of all who serve the model count, so only in proportion to today it is known
what comes to the variants of WVA (``decide.foresee``).

A namespace without an answer is asked about again after a pause of its own. When a part is missing, its week is read
again.

A model at zero has no engine, so its demand is not known, and the day does not count until some minutes later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from random import Random
from typing import Final, NoReturn

import msgspec

from wva.clock import Clock
from wva.collect.past import QUERY_SECONDS
from wva.collect.queries import Query, chunks, held_back, joined, model_of, namespace_matcher, per_model
from wva.collect.samples import AMOUNT
from wva.collect.shared_queries import Round, SharedQueries
from wva.kube.backoff import Backoff
from wva.model.usual import KEPT, PART_SECONDS, PARTS_OF_A_DAY, DemandDays, UsualDemand
from wva.model.variant import ModelKey
from wva.prometheus.answers import InstantSeries, InstantVector, Labels, RangeQuerier, RangeSeries
from wva.slices import Slices, beside

EARLIER_DAYS: Final = "earlier_days"
SETTLED_SECONDS: Final = 20.0
"""So long after the end of a part all its samples are there."""
_PAUSE_SECONDS: Final = 60.0
_LONGEST_PAUSE_SECONDS: Final = 300.0
_BLOCK: Final = PARTS_OF_A_DAY
_SMALLEST_BLOCK: Final = 6
_ROUND_SECONDS: Final = 20.0  # several queries, if one namespace spoils the answer about all
_MOST_POINTS: Final = 50_000


class DaySignal(StrEnum):
    """The signals of a model in ``earlier_days``: the values of the label ``signal``."""

    FINISHED = "finished"
    REFUSED = "refused"
    RUNNING = "running"
    RUNNING_BEFORE = "running_before"
    WAITING = "waiting"
    WAITING_BEFORE = "waiting_before"
    HELD_BACK = "held_back"
    HELD_BACK_BEFORE = "held_back_before"


_GROWN: Final = (
    (DaySignal.RUNNING, DaySignal.RUNNING_BEFORE),
    (DaySignal.WAITING, DaySignal.WAITING_BEFORE),
    (DaySignal.HELD_BACK, DaySignal.HELD_BACK_BEFORE),
)


def earlier_days(namespaces: Sequence[str]) -> Query:
    """Return the query for the requests that came to each model in five minutes."""
    return Query(EARLIER_DAYS, joined(expressions(namespaces)), essential=False)


def expressions(namespaces: Sequence[str]) -> dict[str, str]:
    """Return the expressions of this query by signal."""
    matchers, window = namespace_matcher(namespaces), f"{PART_SECONDS / 60.0:.0f}m"
    before = f" offset {window}"

    success, refused = f"vllm:request_success_total{matchers}", f"vllm:admission_rejections_total{matchers}"
    running, waiting = f"vllm:num_requests_running{matchers}", f"vllm:num_requests_waiting{matchers}"
    return {
        DaySignal.FINISHED: per_model(f"rate({success}[{window}])", "finished_reason"),
        DaySignal.REFUSED: per_model(f"rate({refused}[{window}])", "reason"),
        DaySignal.RUNNING: per_model(running),
        DaySignal.RUNNING_BEFORE: per_model(f"{running}{before}"),
        DaySignal.WAITING: per_model(waiting),
        DaySignal.WAITING_BEFORE: per_model(f"{waiting}{before}"),
        DaySignal.HELD_BACK: held_back("size", matchers),
        DaySignal.HELD_BACK_BEFORE: held_back("size", matchers, f"{{}}{before}"),
    }


def demand_of(series: Iterable[InstantSeries]) -> dict[tuple[ModelKey, float], float]:
    """Return by model and time the requests that came per second in the part that ended then.

    Where nothing was counted, there is no entry.
    """
    by_part: dict[tuple[ModelKey, float], dict[str, float]] = {}
    for element in series:
        value = None if element.value is None else AMOUNT.range.find(element.value[1])
        if element.value is not None and value is not None:
            signals = by_part.setdefault((model_of(element.metric), element.value[0]), {})
            signal = element.metric.signal or ""
            signals[signal] = signals.get(signal, 0.0) + value
    return {part: came(signals) for part, signals in by_part.items() if DaySignal.FINISHED in signals}


def came(signals: Mapping[str, float]) -> float:
    """Return the requests that came per second.

    A growth of which one end is not known counts as none. Refused requests come again and are refused again, and
    nothing tells how often. So no more of them count than of those that were let in.
    """
    grown = sum([signals[now] - signals[before] for now, before in _GROWN if now in signals and before in signals])
    finished = signals[DaySignal.FINISHED]
    return max(0.0, finished + min(finished, signals.get(DaySignal.REFUSED, 0.0)) + grown / PART_SECONDS)


@dataclass(slots=True)
class _Parts:
    """Answers a query with its points from ``start`` to ``end``, in seconds since the epoch, one part apart."""

    prometheus: RangeQuerier
    start: float = 0.0
    end: float = 0.0

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:  # noqa: ARG002 - the protocol
        """Answer a query. Raises PrometheusError."""
        matrix = await self.prometheus.query_range(
            promql,
            name=name,
            start=self.start,
            end=self.end,
            step_seconds=PART_SECONDS,
            timeout_seconds=QUERY_SECONDS,
        )
        return await beside(sum([len(series.values) for series in matrix]), lambda: _points(matrix))


def _points(matrix: Iterable[RangeSeries]) -> InstantVector:
    points = []
    for series in matrix:
        labels = msgspec.convert(series.metric, Labels)
        points += [InstantSeries(labels, point) for point in series.values]
    return InstantVector(tuple(points))


@dataclass(slots=True)
class _Known:
    """What is known of a model: all that Prometheus has of its days from ``since`` on."""

    since: float
    days: DemandDays = field(default_factory=DemandDays)


@dataclass(slots=True)
class _Pause:
    """A namespace without an answer, and until when (monotonic seconds) its past is not asked for."""

    backoff: Backoff
    until: float = 0.0


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
    _parts: _Parts = field(init=False)
    _shared: SharedQueries = field(init=False)
    _pauses: dict[str, _Pause] = field(default_factory=dict, init=False)
    _more: bool = field(default=True, init=False)
    """Whether some of the week is not read yet."""

    def __post_init__(self) -> None:
        """Know nothing yet."""
        self._parts = _Parts(self.prometheus)
        self._shared = SharedQueries(self._parts)

    def usual(self) -> tuple[UsualDemand, ...]:
        """Return what usually comes from now on, sorted by model, without models of which this is not known.

        While the week of a model is being read, it is not known: days of last week may say the opposite.
        """
        return self._usual

    async def run(self) -> NoReturn:
        """Ask until cancelled."""
        pause, backoff = _PAUSE_SECONDS, self._new_backoff()
        while True:
            await self.clock.sleep(pause)
            self.busy = True
            try:
                answered = await self.look()
            finally:
                self.busy = False
            due = PART_SECONDS - (self.clock.now() - SETTLED_SECONDS) % PART_SECONDS
            usually = _PAUSE_SECONDS if self._more else due
            pause = usually if answered else backoff.next(self.clock.monotonic())

    async def look(self) -> bool:
        """Ask for what has come since the last look, else for one block of the past; return whether any answer came.

        A model is asked about only from the first look at it on, and backwards from then.
        """
        models = frozenset(self.models())
        end = (self.clock.now() - SETTLED_SECONDS) // PART_SECONDS * PART_SECONDS
        self._known = {model: known for model, known in self._known.items() if model in models and known.since <= end}
        missed = round((end - self._until) / PART_SECONDS) if self._known else 0
        behind = 0 < missed <= _BLOCK
        answered = behind and await self._catch_up(end, missed)
        if missed > _BLOCK:  # another process has led, or there was no answer for a day
            self._read_again(self._known, end)
        if answered or not behind:
            self._until = end
        for model in models - self._known.keys():
            self._known[model] = _Known(self._until)
        oldest = end - KEPT * PART_SECONDS
        if not answered:
            answered = await self._read_back(oldest)
        self._more = any(known.since > oldest for known in self._known.values())
        await self._compare(self._until, oldest)
        return answered

    async def _catch_up(self, end: float, parts: int) -> bool:
        """Read what has come since the last look; return whether any answer came."""
        failed = await self._read(list(self._known), end, parts)
        if failed.issuperset(model.namespace for model in self._known):
            return False
        self._read_again([model for model in self._known if model.namespace in failed], end)
        return True

    def _read_again(self, models: Iterable[ModelKey], end: float) -> None:
        """Have the week of these models read once more: a part of it is missing."""
        for model in models:
            self._known[model].since = end

    async def _read_back(self, oldest: float) -> bool:
        """Read one block of the past of the models of which the least is known; return False if no answer came."""
        now = self.clock.monotonic()
        ready = {
            model: known.since
            for model, known in self._known.items()
            if known.since > oldest and ((pause := self._pauses.get(model.namespace)) is None or pause.until <= now)
        }
        if not ready:
            return True
        newest = max(ready.values())
        models = [model for model, since in ready.items() if since == newest]
        parts = min(self._block, round((newest - oldest) / PART_SECONDS))
        failed = await self._read(models, newest, parts)
        for model in models:
            if model.namespace not in failed:
                self._known[model].since = newest - parts * PART_SECONDS
        if failed:
            self._block = max(_SMALLEST_BLOCK, self._block // 2)
            return not failed.issuperset(model.namespace for model in self._known)
        self._block = min(_BLOCK, 2 * self._block)
        return True

    async def _compare(self, end: float, oldest: float) -> None:
        """Find out what usually comes after ``end`` to the models whose week has been read."""
        slices, found = Slices(), []
        for model in sorted(model for model, known in self._known.items() if known.since <= oldest):
            await slices.rest()
            usual = self._known[model].days.usual(model, end)
            found += [] if usual is None else [usual]
        self._usual = tuple(found)

    async def _read(self, models: Sequence[ModelKey], end: float, parts: int) -> frozenset[str]:
        """Read some parts, the last of which ends at ``end``; return the namespaces without an answer."""
        groups, failed = chunks(model.namespace for model in models), dict[str, str]()
        asked, slices = {model.namespace for model in models}, Slices()
        by_namespace = Counter(model.namespace for model in models)
        for namespaces in groups:
            # An answer of bounded size: a namespace with many models is read in several steps.
            points = len(DaySignal) * sum([by_namespace[namespace] for namespace in namespaces])
            step = max(1, min(parts, _MOST_POINTS // points))
            for first in range(0, parts, step):
                last = min(parts, first + step) - 1
                self._parts.start, self._parts.end = (end - PART_SECONDS * (parts - 1 - part) for part in (first, last))
                series, without_answer = await self._ask(namespaces)
                failed |= without_answer
                for (model, at), rate in (await beside(len(series), partial(demand_of, series))).items():
                    await slices.rest()
                    if model in self._known and self._parts.start - 1.0 < at < self._parts.end + 1.0:
                        self._known[model].days.put(at, rate)
        self.note(EARLIER_DAYS, asked, failed)
        self._pause(asked, failed)
        return frozenset(failed)

    async def _ask(self, namespaces: Sequence[str]) -> tuple[tuple[InstantSeries, ...], dict[str, str]]:
        round_ = Round(self.clock.now(), _ROUND_SECONDS)
        round_.others_begin.set()  # there is no essential query to wait for
        settled = await self._shared.settle(EARLIER_DAYS, {EARLIER_DAYS: earlier_days}, namespaces, round_)
        series = settled.answers.get(EARLIER_DAYS, InstantVector()).series
        return series, {namespace: failure.message for namespace, failure in settled.failed.items()}

    def _pause(self, asked: Iterable[str], failed: Collection[str]) -> None:
        """Wait longer and longer before the past of namespaces without an answer is asked for again."""
        now = self.clock.monotonic()
        for namespace in asked:
            if namespace in failed:
                pause = self._pauses.setdefault(namespace, _Pause(self._new_backoff()))
                pause.until = now + pause.backoff.next(now)
            else:
                self._pauses.pop(namespace, None)

    def _new_backoff(self) -> Backoff:
        return Backoff(
            base_seconds=_PAUSE_SECONDS,
            cap_seconds=_LONGEST_PAUSE_SECONDS,
            reset_after_seconds=2.0 * _LONGEST_PAUSE_SECONDS,
            random=self.random,
        )
