"""What the engines of a pod report beside the two signals: samples with a state, and counters.

The series of ``engine_signals`` come from the same page as the KV usage, so the time of the last KV usage is the time
of all of them. No sample is fresh here unless the KV usage of the pod is fresh. The series of ``engine_counters`` have
the time of their scrape. WVA needs all counters of a pod to compute arrivals, so a pod has all or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from wva.collect.queries import CounterSignal, EngineSignal
from wva.collect.samples import AMOUNT, COUNTED, SHARE, ScrapeTime, SignalRange, texts_of
from wva.model.metrics import EngineCounters, EngineSignals, Sample, SampleState
from wva.numbers import Whole, shown
from wva.prometheus.answers import InstantSeries

PodSeries: TypeAlias = Mapping[str, list[InstantSeries]]
"""The series of one pod in the answer to one query, by signal."""

GAUGES: Final = {"kv_usage": SHARE, "waiting": AMOUNT, "running": AMOUNT}
"""The signals that both queries have."""
_SIGNALS: Final = {
    signal.value: SHARE if signal in {EngineSignal.KV_USAGE, EngineSignal.PREFIX_HIT_RATE} else AMOUNT
    for signal in EngineSignal
    if signal is not EngineSignal.CACHE_CONFIG
}
_COUNTERS: Final = tuple(
    signal for signal in CounterSignal if signal not in {CounterSignal.TIME, CounterSignal.CACHE_CONFIG, *GAUGES}
)
_NEVER_COUNTED: Final = frozenset({CounterSignal.ABORTED, CounterSignal.CACHED_TOKENS})
"""Counters that an engine may lack: one of a finished reason that never occurred, and one of the prefix cache. Without
the series the count is 0."""
_COUNT: Final = Whole(1, 999_999_999)
"""Of blocks, and of tokens in a block."""
_MAX_ENGINES: Final = 1_000
"""No pod has more engines."""


def engine_signals(
    series: PodSeries, scrape: ScrapeTime, *, failure: str = "", signals: Mapping[str, SignalRange] = _SIGNALS
) -> EngineSignals:
    """Classify the signals of a pod's engines; ``failure`` says why the query has no answer, empty if it has one."""
    missing = Sample(SampleState.MISSING, detail=failure)
    samples = {
        name: missing if (found := series.get(name)) is None else scrape.sample(kind, texts_of(found))
        for name, kind in signals.items()
    }
    return EngineSignals(kv_capacity_tokens=_cache_tokens(series, scrape) or missing, **samples)


def engine_counters(series: PodSeries, scrape: ScrapeTime, gauges: EngineSignals) -> tuple[EngineCounters | None, str]:
    """Return the counters of a pod's engines, or None and the reason.

    The counters are believed as far as the time of their scrape is; ``gauges`` are of the same scrape.
    """
    at = gauges.running.timestamp
    if gauges.running.value is None or at is None:
        return None, gauges.running.detail or "no counters"
    values: dict[str, float] = {}
    for signal in _COUNTERS:
        found = series.get(signal)
        if found is None:
            if signal not in _NEVER_COUNTED:
                return None, f"no counter {signal}"
            values[signal] = 0.0
            continue
        value = found[0].value if len(found) == 1 else None
        number = COUNTED.range.find(value[1]) if value is not None else None
        if number is None:
            return None, f"{signal}: {scrape.sample(COUNTED, texts_of(found)).detail}"
        values[signal] = number
    values[CounterSignal.PROMPT_TOKENS] -= values.pop(CounterSignal.CACHED_TOKENS)
    return EngineCounters(at=at, **values), ""


def _cache_tokens(series: PodSeries, scrape: ScrapeTime) -> Sample | None:
    """Return the KV cache of all engines in tokens; each must have one size, made of whole blocks."""
    sizes = series.get(EngineSignal.CACHE_CONFIG)
    if sizes is None:
        return None
    if len(sizes) > _MAX_ENGINES:
        return Sample(SampleState.INVALID, detail=f"more than {_MAX_ENGINES} sizes of the KV cache")
    engines: dict[str, int] = {}
    for found in sizes:
        labels = found.metric
        blocks, block = labels.num_gpu_blocks or "", labels.block_size or ""
        tokens = _tokens(blocks, block)
        if tokens is None:
            words = f"num_gpu_blocks {shown(blocks)} and block_size {shown(block)} are not counts"
            return Sample(SampleState.INVALID, detail=words)
        engine = labels.engine or ""
        if engine in engines:
            return Sample(SampleState.INVALID, detail=f"several sizes of the KV cache of engine {shown(engine)}")
        engines[engine] = tokens
    return scrape.sample(COUNTED, (str(sum(engines.values())),))


@lru_cache(maxsize=256)
def _tokens(blocks: str, block: str) -> int | None:
    """Return the tokens in so many blocks of a size. Cached, since a fleet has few sizes."""
    count, size = _COUNT.find(blocks), _COUNT.find(block)
    return None if count is None or size is None else count * size
