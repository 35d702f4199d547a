"""What the users of each model got: the share of requests that the engines served within the objectives.

Once a minute, beside the cycles, WVA sends one query for every hundred namespaces. The query is about the last two
minutes, the last five minutes and the last hour. From two histograms it takes the bounds at which the objectives are
judged, and the count of all requests. A histogram counts the requests up to each of its bounds, so an objective between
two bounds is judged at the lower one. Below the lowest bound nothing can be judged.

Decisions use the last two minutes (``decide.served``). A namespace without an answer has no shares until the next one.

If an endpoint picker has such histograms, they count instead of those of the engines, because they contain the time in
its queue. Only llm-d-router has them. For a request whose answer is not streamed, it reports the whole time as the time
to the first token, so only streamed requests count. Where they are less than half of the requests, they say little of
the others, and the engines count. A request that the picker has turned away is late, unless the request itself was
wrong.

An engine counts refused requests in a separate counter. An aborted request is in ``request_success_total``, if the
engine counts it at all, and in the first histogram if its first token had come. So the requests that ended without a
first token are all that ended minus those in the first histogram. If a user goes away while a request waits, nothing
counts that request.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple, NoReturn

from wva import log
from wva.clock import Clock
from wva.collect.queries import Query, chunks, joined, model_of, namespace_matcher, per_model, quote, regex_literal
from wva.collect.samples import COUNTED
from wva.collect.shared_queries import Round, Settled, SharedQueries
from wva.model.decision import Decision
from wva.model.in_time import LATELY, NOT_MEASURED, WINDOWS, InTime, ServedLately, ServedShare
from wva.model.objectives import Objectives
from wva.model.trouble import Trouble, cause_of
from wva.model.variant import ModelKey, VariantKey
from wva.numbers import Real
from wva.prometheus.answers import InstantSeries, InstantVector, Querier

IN_TIME: Final = "in_time"
TTFT_BOUNDS: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL_BOUNDS: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
"""The bounds of vLLM's histograms, in seconds."""
PICKER_TTFT_BOUNDS: Final = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0),
    *(3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0),
)
PICKER_ITL_BOUNDS: Final = (
    *(0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2),
    *(0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0),
)
"""Those of llm-d-router."""

_FIRST_SERIES: Final = "vllm:time_to_first_token_seconds_bucket"
_BETWEEN_SERIES: Final = "vllm:request_time_per_output_token_seconds_bucket"
_PICKER_FIRST_SERIES: Final = "llm_d_epp_request_ttft_seconds_bucket"
_PICKER_BETWEEN_SERIES: Final = "llm_d_epp_request_streaming_tpot_seconds_bucket"
_PICKER_SERIES: Final = "namespace, pod, fairness_id, priority, model_name, target_model_name"
_BY_NAMES: Final = "namespace, model_name, target_model_name"
_ALL: Final = "+Inf"
_ASKED: Final = (LATELY, *WINDOWS)
_BOUND: Final = Real(0.0, 1e9)
_PAUSE_SECONDS: Final = 60.0
_PICKED: Final = 0.5
"""A picker must have measured this share of the requests to speak for all of them."""
"""A window of an hour costs Prometheus 240 samples of each series, and changes slowly."""
_QUERY_SECONDS: Final = 20.0

_log = log.get("collect")


class ServedSignal(StrEnum):
    """The signals of a model in ``in_time``, before the window: the values of the label ``signal``."""

    FIRST = "first"
    BETWEEN = "between"
    REFUSED = "refused"
    ENDED = "ended"
    ABORTED = "aborted"
    PICKER_FIRST = "picker_first"
    PICKER_BETWEEN = "picker_between"
    TURNED_AWAY = "turned_away"


_INSTEAD: Final = {
    ServedSignal.PICKER_FIRST: ServedSignal.FIRST,
    ServedSignal.PICKER_BETWEEN: ServedSignal.BETWEEN,
}
"""The histograms of pickers, each with the histogram of engines that it replaces."""


def judged_at(seconds: float, bounds: Sequence[float]) -> float | None:
    """Return the bound of a histogram that an objective is judged at, None below the lowest one."""
    position = bisect_right(bounds, seconds)
    return bounds[position - 1] if position else None


def in_time_query(namespaces: Sequence[str], objectives: Collection[Objectives]) -> Query:
    """Return the query about some namespaces, for all the objectives that are in force in them.

    A bound has different spellings: 1.0 on the pages of Python, 1 on those of Go.
    """
    matchers = namespace_matcher(namespaces)

    def bounds(wanted: Iterable[float], known: Sequence[float]) -> str:
        judging = sorted({bound for seconds in wanted if (bound := judged_at(seconds, known)) is not None})
        texts = [f"{bound:g}" for bound in judging]
        texts += [f"{text}.0" for text in texts if "." not in text]
        return f"le=~{quote('|'.join(map(regex_literal, [*texts, _ALL])))}"

    ttft, itl = ([getattr(objective, f"{name}_seconds") for objective in objectives] for name in ("ttft", "itl"))
    first, between = bounds(ttft, TTFT_BOUNDS), bounds(itl, ITL_BOUNDS)
    streamed = f'streaming="true",{bounds(ttft, PICKER_TTFT_BOUNDS)}'
    picker_between = bounds(itl, PICKER_ITL_BOUNDS)
    success = f"vllm:request_success_total{matchers}"
    aborted = f'{success[:-1]},finished_reason="abort"}}'

    def histogram(name: str, extra: str, window: str) -> str:
        engines = "max by (namespace, model_name, pod, engine, le)"
        return f"sum by (namespace, model_name, le) ({engines} (increase({name}{matchers[:-1]},{extra}}}[{window}])))"

    def counter(series: str, label: str, window: str) -> str:
        return per_model(f"increase({series}[{window}])", label)

    def picked(name: str, extra: str, label: str, more: str, window: str) -> str:
        rows = f"max by ({_PICKER_SERIES}, {label}) (increase({name}{matchers[:-1]},{extra}}}[{window}]))"
        return f"sum by ({_BY_NAMES}{more}) ({rows})"

    expressions: dict[str, str] = {}
    for window in _ASKED:
        expressions |= {
            _name(ServedSignal.FIRST, window): histogram(_FIRST_SERIES, first, window),
            _name(ServedSignal.BETWEEN, window): histogram(_BETWEEN_SERIES, between, window),
            _name(ServedSignal.REFUSED, window): counter(
                f"vllm:admission_rejections_total{matchers}", "reason", window
            ),
            _name(ServedSignal.ENDED, window): counter(success, "finished_reason", window),
            _name(ServedSignal.ABORTED, window): counter(aborted, "finished_reason", window),
            _name(ServedSignal.PICKER_FIRST, window): picked(_PICKER_FIRST_SERIES, streamed, "le", ", le", window),
            _name(ServedSignal.PICKER_BETWEEN, window): picked(
                _PICKER_BETWEEN_SERIES, picker_between, "le", ", le", window
            ),
            _name(ServedSignal.TURNED_AWAY, window): picked(
                "llm_d_epp_request_error_total", 'error_code!="BadRequest"', "error_code", "", window
            ),
        }
    return Query(IN_TIME, joined(expressions), essential=False)


def _name(signal: ServedSignal, window: str) -> str:
    return f"{signal}_{window}"


class ServedWindow(NamedTuple):
    """The requests of a model in a window, and the shares that were in time: by first token, and between tokens."""

    requests: float
    first: float
    between: float

    @property
    def share(self) -> float:
        """The share that counts: the two are counted apart, so it is the smaller one."""
        return min(self.first, self.between)


def served(series: Iterable[InstantSeries], objectives: Objectives) -> dict[str, ServedWindow]:
    """Return what the series of one model show, by window; a window in which nothing can be judged has no entry."""
    buckets_by_name: dict[str, dict[float, float]] = {}
    for element in series:
        value = None if element.value is None else COUNTED.range.find(element.value[1])
        bound = math.inf if element.metric.le in (None, _ALL) else _BOUND.find(element.metric.le)
        if value is not None and bound is not None:
            buckets = buckets_by_name.setdefault(element.metric.signal or "", {})
            buckets[bound] = buckets.get(bound, 0.0) + value  # two spellings of a bound, before and after an upgrade
    shares = {}
    for window in _ASKED:
        by_signal = {signal: buckets_by_name.get(_name(signal, window), {}) for signal in ServedSignal}
        ended_first = by_signal[ServedSignal.FIRST].get(math.inf, 0.0)
        for of_picker, of_engines in _INSTEAD.items():
            by_picker = by_signal[of_picker].get(math.inf, 0.0)
            if by_picker > 0.0 and by_picker >= _PICKED * by_signal[of_engines].get(math.inf, 0.0):
                by_signal[of_engines] = by_signal[of_picker]
        first, refused, ended, aborted = (
            by_signal[signal].get(math.inf, 0.0)
            for signal in (ServedSignal.FIRST, ServedSignal.REFUSED, ServedSignal.ENDED, ServedSignal.ABORTED)
        )
        lost = refused + min(aborted, max(0.0, ended - ended_first))
        # The picker may have counted the same requests, too.
        lost = max(lost, by_signal[ServedSignal.TURNED_AWAY].get(math.inf, 0.0))
        parts = [
            _part(by_signal[ServedSignal.FIRST], objectives.ttft_seconds, lost),
            _part(by_signal[ServedSignal.BETWEEN], objectives.itl_seconds, lost),
        ]
        known = [part for part in parts if part is not None]
        if first + lost > 0.0 and len(known) == len(parts):
            shares[window] = ServedWindow(first + lost, *known)
    return shares


def _part(buckets: Mapping[float, float], objective: float, lost: float) -> float | None:
    """Return the share of requests within an objective, 1 if there are none; None without the series to judge it by."""
    lower = [bound for bound in buckets if bound <= objective]
    if math.inf not in buckets or not lower:
        return None
    whole = buckets[math.inf] + lost
    return min(1.0, buckets[max(lower)] / whole) if whole > 0.0 else 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class ServedUsers:
    """Asks once a minute what the users of each model got, and remembers the last answer.

    ``decisions`` returns the last decisions, which have the objectives that WVA plans for. ``note`` takes the result of
    the query (``QueryFailures.note``), ``tell`` the variants of the models for which something has changed, and
    ``revisit`` a variant whose condition has changed.
    """

    prometheus: Querier
    decisions: Callable[[], Iterable[Decision]]
    clock: Clock
    note: Callable[[str, Iterable[str], Mapping[str, str]], None] = lambda *_: None
    tell: Callable[[Collection[VariantKey]], None] = lambda _: None
    revisit: Callable[[VariantKey], None] = lambda _: None
    busy: bool = field(default=False, init=False)
    """Whether it is asking now."""
    _by_model: dict[ModelKey, InTime] = field(default_factory=dict, init=False)
    _lately: tuple[ServedLately, ...] = field(default=(), init=False)
    _looked: bool = field(default=False, init=False)
    _shared: SharedQueries = field(init=False)

    def __post_init__(self) -> None:
        """Suspect no namespace yet."""
        self._shared = SharedQueries(self.prometheus)

    def of(self, model: ModelKey) -> InTime | None:
        """Return what the users of a model got, None if it has no objectives or was not asked about yet."""
        return self._by_model.get(model)

    def trouble(self, model: ModelKey) -> Trouble | None:
        """Return for a condition whether the users of a model are served in time; None before the first look."""
        in_time = self._by_model.get(model)
        return in_time.trouble if in_time is not None else NOT_MEASURED if self._looked else None

    def lately(self) -> tuple[ServedLately, ...]:
        """Return what users got as of the last look, sorted by model, without models about which nothing is known."""
        return self._lately

    async def run(self) -> NoReturn:
        """Ask until cancelled."""
        while True:
            await self.clock.sleep(_PAUSE_SECONDS)
            self.busy = True
            try:
                await self.look()
            finally:
                self.busy = False

    async def look(self) -> None:
        """Ask once about all models that have objectives."""
        variants, objectives = self._planned()
        round_ = Round(self.clock.now(), _QUERY_SECONDS)
        round_.others_begin.set()  # there is no essential query to wait for
        groups = chunks(model.namespace for model in objectives)
        settled = await asyncio.gather(*[self._ask(namespaces, objectives, round_) for namespaces in groups])
        series_by_model: dict[ModelKey, list[InstantSeries]] = {model: [] for model in objectives}
        for namespaces, answer in zip(groups, settled, strict=True):
            self.note(IN_TIME, namespaces, {namespace: failure.message for namespace, failure in answer.failed.items()})
            for series in answer.answers.get(IN_TIME, InstantVector()).series:
                model = model_of(series.metric)
                if model in series_by_model:
                    series_by_model[model].append(series)
        before, self._looked = self._by_model, True
        windows = {model: self._windows(model, series, objectives[model]) for model, series in series_by_model.items()}
        self._by_model = {
            model: InTime(
                objectives[model],
                variants[model][0],
                *[
                    ServedShare(in_window.requests, in_window.share) if (in_window := by_window.get(window)) else None
                    for window in WINDOWS
                ],
            )
            for model, by_window in windows.items()
        }
        self._lately = tuple(
            [
                ServedLately(model, round_.now, *windows[model][LATELY])
                for model in sorted(windows)
                if LATELY in windows[model]
            ]
        )
        changed: set[VariantKey] = set()
        for model in before.keys() | self._by_model.keys():
            old, new, keys = before.get(model), self._by_model.get(model), variants.get(model, ())
            if old != new:
                changed.update(keys)
            if (old and old.trouble.reason) != (new and new.trouble.reason):
                for key in keys:
                    self.revisit(key)
        self.tell(changed)

    async def _ask(
        self, namespaces: Sequence[str], objectives: Mapping[ModelKey, Objectives], round_: Round
    ) -> Settled:
        wanted = {model_objectives for model, model_objectives in objectives.items() if model.namespace in namespaces}
        make = partial(in_time_query, objectives=wanted)
        return await self._shared.settle(IN_TIME, {IN_TIME: make}, namespaces, round_)

    def _windows(
        self, model: ModelKey, series: Iterable[InstantSeries], objectives: Objectives
    ) -> dict[str, ServedWindow]:
        try:
            return served(series, objectives)
        except Exception as error:  # noqa: BLE001 - the other models are still judged
            _log.error("in_time_failed", model=str(model), cause=cause_of(error))
            return {}

    def _planned(self) -> tuple[dict[ModelKey, list[VariantKey]], dict[ModelKey, Objectives]]:
        """Return the variants of each model, sorted, and its objectives.

        The variants of a model may be able to reach different objectives; the loosest of each value counts. A model
        whose number is held keeps the objectives that it had.
        """
        variants: dict[ModelKey, list[VariantKey]] = {}
        objectives: dict[ModelKey, Objectives] = {}
        for decision in self.decisions():
            model, known = decision.model, self._by_model.get(decision.model)
            variants.setdefault(model, []).append(decision.key)
            candidates = [objectives[model]] if model in objectives else []
            if decision.aim is not None:
                candidates.append(decision.aim.objectives)
            elif decision.held and known is not None:
                candidates.append(known.objectives)
            if candidates:
                objectives[model] = Objectives(
                    max(candidate.ttft_seconds for candidate in candidates),
                    max(candidate.itl_seconds for candidate in candidates),
                    min(candidate.in_time for candidate in candidates),
                )
        return variants, objectives
