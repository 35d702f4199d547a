"""Turns series into samples with a state, and into counters; a value that cannot be believed never becomes a number.

A signal is classified in this order:

1. Without a series it is missing.
2. With two series for one pod in an answer, no finite number, a number out of range, or a time in the future, it is
   invalid.
3. A value without a time is missing, since nothing says that the pod still reports.
4. Otherwise the age decides between fresh, stale and missing. The limit of fresh is higher for a pod whose scrapes
   are far apart (``Freshness``).

The engines of a pod report more than the two signals. The series of ``engine_signals`` come from the same page as the
KV usage, so the time of the last KV usage is the time of all of them. The series of ``engine_counters`` have the time
of their scrape. WVA needs all counters of a pod to compute arrivals, so a pod has all or none.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import Struct

from wva.collect.queries import SERIES_OF, CounterSignal, EngineSignal, PrefillSignal
from wva.model.metrics import MISSING, EngineCounters, EngineSignals, Freshness, Sample, SampleState
from wva.model.records import replace
from wva.numbers import FINITE, Real, Whole, shown
from wva.prometheus.answers import InstantSeries

FUTURE_TOLERANCE_SECONDS: Final = 30.0
"""Clocks of a scraped pod, Prometheus and the controller differ; beyond this a time is not believed."""
_LONGEST_SHOWN_SECONDS: Final = 1e9

Texts: TypeAlias = tuple[str | None, ...]
"""The values in one answer for one replica: none, one, or several that contradict each other; None is a histogram."""
PodSeries: TypeAlias = Mapping[str, list[InstantSeries]]
"""The series of one pod in the answer to one query, by signal."""


def texts_of(series: Iterable[InstantSeries]) -> Texts:
    """Return the values of the series that were found for one replica."""
    return tuple([None if element.value is None else element.value[1] for element in series])


@dataclass(frozen=True, slots=True)
class SignalRange:
    """The range of the values of a signal; ``whole``: a value is truncated toward zero."""

    range: Real
    whole: bool = False


SHARE: Final = SignalRange(Real(0, 1))
AMOUNT: Final = SignalRange(Real(0, 1e9))
"""The range of requests, tokens per request and seconds: no engine has more. A larger number is broken, or an attempt
to break a sum over replicas."""
COUNTED: Final = SignalRange(Real(0, 1e15))
"""The range of a count since an engine started, or of a model: a million tokens per second for thirty years."""
REQUESTS: Final = SignalRange(AMOUNT.range, whole=True)


class ScrapeTime(Struct, frozen=True, gc=False):
    """The state that all values of a scrape have because of its time; ``detail`` says why this state is not fresh.

    ``age_seconds`` is None when the age is not known, or below zero.
    """

    state: SampleState
    timestamp: float | None
    detail: str
    age_seconds: float | None = None

    def sample(self, kind: SignalRange, value: Texts) -> Sample:
        """Classify one value of the scrape."""
        if not value:
            if self.age_seconds is None:
                return MISSING
            # The last minute has no value, but there is an older one, whose age tells people what happened.
            detail = f"last one is {_seconds(self.age_seconds)} old"
            return Sample(SampleState.MISSING, timestamp=self.timestamp, detail=detail)
        if len(value) > 1:
            return Sample(SampleState.INVALID, detail=f"{len(value)} series for one pod")
        number = kind.range.find(value[0])
        if number is None:
            problem = "out of range" if FINITE.find(value[0]) is not None else "not a number"
            return Sample(SampleState.INVALID, detail=f"{_shown(value[0])} is {problem}")
        if self.state is not SampleState.FRESH and self.state is not SampleState.STALE:
            return Sample(self.state, timestamp=self.timestamp, detail=self.detail)
        return Sample(self.state, float(math.trunc(number)) if kind.whole else number, self.timestamp, self.detail)


@dataclass(frozen=True, slots=True)
class Classifier:
    """Judges samples at the time ``now`` (seconds since the epoch)."""

    now: float
    freshness: Freshness

    def time(self, time: Texts) -> float | None:
        """Return the time of a scrape in seconds since the epoch; None without one that can be true."""
        timestamp = FINITE.find(time[0]) if len(time) == 1 else None
        return timestamp if timestamp is not None and timestamp <= self.now + FUTURE_TOLERANCE_SECONDS else None

    def scrape(self, time: Texts, scrape_seconds: float | None = None) -> ScrapeTime:
        """Judge the time of a scrape, which all of its values share.

        ``scrape_seconds`` is the time between two scrapes of the pod, None if it is not known.
        """
        if not time:
            return ScrapeTime(SampleState.MISSING, None, "no time for the value: the pod no longer reports")
        if len(time) > 1:
            return ScrapeTime(SampleState.INVALID, None, f"{len(time)} times for one pod")
        timestamp = FINITE.find(time[0])
        if timestamp is None:
            return ScrapeTime(SampleState.INVALID, None, f"the time {_shown(time[0])} is not a number")
        age = self.now - timestamp
        if age < -FUTURE_TOLERANCE_SECONDS:
            return ScrapeTime(SampleState.INVALID, timestamp, f"{_seconds(-age)} in the future")
        state = self.freshness.classify(max(0.0, age), scrape_seconds)
        detail = "" if state is SampleState.FRESH else f"{_seconds(age)} old"
        return ScrapeTime(state, timestamp, detail, age if age >= 0 else None)


GAUGES: Final = {"kv_usage": SHARE, "waiting": AMOUNT, "running": AMOUNT}
"""The signals that both queries about engines have."""
_SIGNALS: Final = {
    signal.value: SHARE if signal in {EngineSignal.KV_USAGE, EngineSignal.PREFIX_HIT_RATE} else AMOUNT
    for signal in EngineSignal
    if signal is not EngineSignal.CACHE_CONFIG
}
_COUNTERS: Final = tuple(
    signal for signal in CounterSignal if signal not in {CounterSignal.TIME, CounterSignal.CACHE_CONFIG, *GAUGES}
)
_NEVER_COUNTED: Final = frozenset({CounterSignal.ABORTED, CounterSignal.CACHED_TOKENS, CounterSignal.REFUSED})
"""Counters that an engine may lack, and that are 0 then: the counter of a finished reason that never occurred, that of
the prefix cache, and that of refused requests, which only a vLLM that can refuse requests has."""
_COUNT: Final = Whole(1, 999_999_999)
"""The number of blocks, and of tokens in a block."""
_TOKENS: Final = Whole(1, 999_999_999_999)
"""The tokens in a KV cache."""
_MAX_ENGINES: Final = 1_000
"""No pod has more engines."""


def engine_signals(
    series: PodSeries, scrape: ScrapeTime, *, failure: str = "", signals: Mapping[str, SignalRange] = _SIGNALS
) -> EngineSignals:
    """Classify the signals of a pod's engines; ``failure`` says why the query has no answer, empty if it has one."""
    missing = Sample(SampleState.MISSING, detail=failure)
    samples = {
        name: missing if (elements := series.get(name)) is None else scrape.sample(kind, texts_of(elements))
        for name, kind in signals.items()
    }
    sizes = series.get(EngineSignal.CACHE_CONFIG)
    return EngineSignals(kv_capacity_tokens=missing if sizes is None else _cache_tokens(sizes, scrape), **samples)


def engine_counters(series: PodSeries, scrape: ScrapeTime, gauges: EngineSignals) -> tuple[EngineCounters | None, str]:
    """Return the counters of a pod's engines, or None and the reason.

    WVA believes the counters only if it believes the time of their scrape. ``gauges`` are of the same scrape.
    """
    at = gauges.running.timestamp
    if gauges.running.value is None or at is None:
        return None, gauges.running.detail or _missing({CounterSignal.RUNNING, *_COUNTERS} - series.keys())
    values: dict[str, float] = {}
    for signal in _COUNTERS:
        elements = series.get(signal)
        if elements is None:
            if signal not in _NEVER_COUNTED:
                return None, _missing(set(_COUNTERS) - series.keys())
            values[signal] = 0.0
            continue
        value = elements[0].value if len(elements) == 1 else None
        number = COUNTED.range.find(value[1]) if value is not None else None
        if number is None:
            return None, f"{signal}: {scrape.sample(COUNTED, texts_of(elements)).detail}"
        values[signal] = number
    values[CounterSignal.PROMPT_TOKENS] -= values.pop(CounterSignal.CACHED_TOKENS)
    return EngineCounters(at=at, **values), ""


def with_prefills(counters: EngineCounters, series: PodSeries) -> EngineCounters:
    """Return the counters with the times of prompts and of first tokens, as far as they are known."""
    times = {}
    for signal, name in ((PrefillSignal.SECONDS, "prefill_seconds"), (PrefillSignal.FIRST, "first_seconds")):
        texts = texts_of(series.get(signal, ()))
        seconds = COUNTED.range.find(texts[0]) if len(texts) == 1 else None
        if seconds is not None:
            times[name] = seconds
    return replace(counters, **times) if times else counters


def _missing(signals: Collection[str]) -> str:
    """Return in words which series a page lacks; a histogram that the engine or a scrape drops has no series."""
    names = [name for signal, name in SERIES_OF.items() if signal in signals]
    return f"no series {', '.join(names)}"


def _cache_tokens(sizes: list[InstantSeries], scrape: ScrapeTime) -> Sample:
    """Return the KV cache of all engines in tokens; each must have one size, made of whole blocks."""
    if len(sizes) > _MAX_ENGINES:
        return Sample(SampleState.INVALID, detail=f"more than {_MAX_ENGINES} sizes of the KV cache")
    engines: dict[str, int] = {}
    for element in sizes:
        # vLLM 0.32 reports the size in tokens. It comes first, since the blocks of a hybrid model differ in size.
        size = element.metric.kv_cache_size_tokens or ""
        blocks, block = element.metric.num_gpu_blocks or "", element.metric.block_size or ""
        tokens = _TOKENS.find(size) or _tokens(blocks, block)
        if tokens is None:
            words = f"num_gpu_blocks {shown(blocks)} and block_size {shown(block)} are not counts"
            return Sample(SampleState.INVALID, detail=words)
        engine = element.metric.engine or ""
        if engine in engines:
            return Sample(SampleState.INVALID, detail=f"several sizes of the KV cache of engine {shown(engine)}")
        engines[engine] = tokens
    return scrape.sample(COUNTED, (str(sum(engines.values())),))


@lru_cache(maxsize=256)
def _tokens(blocks: str, block: str) -> int | None:
    """Return the tokens in ``blocks`` blocks of ``block`` tokens each. Cached, since a fleet has few sizes."""
    count, size = _COUNT.find(blocks), _COUNT.find(block)
    return None if count is None or size is None else count * size


def _seconds(seconds: float) -> str:
    """Return seconds for people; a time far from any real one does not fill a line with digits."""
    return f"{seconds:.0f} s" if seconds < _LONGEST_SHOWN_SECONDS else "ages"


def _shown(text: str | None) -> str:
    return "a histogram" if text is None else shown(text)
