"""What the engines of a pod tell beside the two signals: samples with a state, and what the engines have counted.

The series of ``engine_signals`` come from the same page as the KV usage, so the time of the last KV usage is the time
of all of them. No sample is fresh here unless the KV usage of the pod is fresh. Those of ``engine_counters`` bring the
time of their scrape along. Only together do they say what arrived, so a pod has all of them or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from wva.collect.answers import InstantVector, Series
from wva.collect.queries import CounterSignal, EngineSignal
from wva.collect.samples import AMOUNT, COUNTED, SHARE, Classifier, Moment, Reading, Signal
from wva.collect.variants import AcceptedVariant
from wva.model.metrics import EngineCounters, EngineSignals, Sample, SampleState
from wva.model.variant import ModelKey
from wva.numbers import Real, Whole, shown

_COUNT: Final = Whole(1, 999_999_999)
"""Of blocks, and of tokens in a block."""
_CACHE: Final = Signal(Real(0, 1e15))
_NUMBER: Final = COUNTED.range
_MAX_ENGINES: Final = 1_000
"""No pod has more engines."""
_COUNTERS: Final = (
    CounterSignal.FINISHED,
    CounterSignal.ABORTED,
    CounterSignal.PROMPT_TOKENS,
    CounterSignal.CACHED_TOKENS,
    CounterSignal.PROMPTS,
    CounterSignal.ANSWER_TOKENS,
    CounterSignal.ANSWERS,
    CounterSignal.GAP_SECONDS,
    CounterSignal.GAPS,
)
_NEVER_COUNTED: Final = frozenset({CounterSignal.ABORTED, CounterSignal.CACHED_TOKENS})
"""What an engine need not have: a finished reason that never occurred, and a prefix cache. Without the series nothing
was counted."""


class _PodSeries:
    """Gathers the answers of one cycle to a query about the engines of some models; make one per cycle."""

    def __init__(self, variants: Iterable[AcceptedVariant], *, asked: Callable[[ModelKey], bool]) -> None:
        """Note the pods of the variants of the models that are ``asked`` about."""
        self._models: dict[tuple[str, str], str] = {}
        for accepted in variants:
            model = accepted.variant.model
            if asked(model):
                for pod in accepted.pods:
                    self._models[pod.metadata.namespace, pod.metadata.name] = model.model_id
        self._series: dict[tuple[str, str], dict[str, list[Series]]] = {}
        self._failures: dict[str, str] = {}

    def add(self, vector: InstantVector) -> None:
        """Take over the series of an answer; those of other pods and models are forgotten."""
        models, rows = self._models, self._series
        for series in vector.series:
            labels = series.metric
            pod = labels.namespace or "", labels.pod or labels.pod_name or ""
            model_id = models.get(pod)
            # The size of the cache comes without a model: it belongs to the engine, with all the names that it serves.
            if model_id is not None and (labels.model_name is None or labels.model_name == model_id):
                row, signal = rows.get(pod), labels.signal or ""
                if row is None:
                    row = rows[pod] = {}
                found = row.get(signal)
                if found is None:
                    row[signal] = [series]
                else:
                    found.append(series)

    def fail(self, namespaces: Iterable[str], message: str) -> None:
        """Note why the engines in some namespaces could not be asked about."""
        self._failures.update(dict.fromkeys(namespaces, message))

    def _pod(self, pod: tuple[str, str], time: Reading | None, classifier: Classifier) -> _Pod | None:
        """Return what one pod tells, None when it is not asked about; ``time`` None is what it tells itself."""
        if pod not in self._models:
            return None
        series = self._series.get(pod, {})
        if time is None:
            time = Reading.of(series.get(CounterSignal.TIME, []))
        return _Pod(series, classifier.moment(time), self._failures.get(pod[0], ""))


class EngineJoin(_PodSeries):
    """Gathers the answers of one cycle to ``engine_signals``."""

    def signals(self, pod: tuple[str, str], *, time: Reading, classifier: Classifier) -> EngineSignals | None:
        """Return the samples of one pod (namespace, name), None when they are not asked for.

        ``time`` is that of its last scrape.
        """
        found = self._pod(pod, time, classifier)
        return None if found is None else found.signals()


class CounterJoin(_PodSeries):
    """Gathers the answers of one cycle to ``engine_counters``."""

    def counted(self, pod: tuple[str, str], *, classifier: Classifier) -> Counted | None:
        """Return what one pod (namespace, name) tells, None when it is not asked for."""
        found = self._pod(pod, None, classifier)
        return None if found is None else found.counted()


@dataclass(frozen=True, slots=True)
class Counted:
    """What a pod has counted, None with the reason in ``detail``, and the ``gauges`` of the same scrape."""

    counters: EngineCounters | None
    detail: str
    gauges: EngineSignals


@dataclass(frozen=True, slots=True)
class _Pod:
    """The series of one pod by signal; ``failure`` says why there are none, empty when there could be."""

    series: Mapping[str, list[Series]]
    moment: Moment
    failure: str

    def signals(self) -> EngineSignals:
        """Classify all samples of ``engine_signals``."""
        return EngineSignals(
            kv_capacity_tokens=self._size(),
            kv_usage=self._sample(EngineSignal.KV_USAGE, SHARE),
            input_tokens=self._sample(EngineSignal.INPUT_TOKENS),
            output_tokens=self._sample(EngineSignal.OUTPUT_TOKENS),
            prefix_hit_rate=self._sample(EngineSignal.PREFIX_HIT_RATE, SHARE),
            waiting=self._sample(EngineSignal.WAITING),
            running=self._sample(EngineSignal.RUNNING),
            success_rate=self._sample(EngineSignal.SUCCESS_RATE),
            time_to_first_token=self._sample(EngineSignal.TIME_TO_FIRST_TOKEN),
            inter_token_latency=self._sample(EngineSignal.INTER_TOKEN_LATENCY),
        )

    def counted(self) -> Counted:
        """Classify all of ``engine_counters``. The counters are believed as far as the time of their scrape is."""
        gauges = EngineSignals(
            kv_capacity_tokens=self._size(),
            kv_usage=self._sample(CounterSignal.KV_USAGE, SHARE),
            waiting=self._sample(CounterSignal.WAITING),
            running=self._sample(CounterSignal.RUNNING),
        )
        at = gauges.running.timestamp
        if gauges.running.value is None or at is None:
            return Counted(None, gauges.running.detail or "no counters", gauges)
        values: dict[str, float] = {}
        for signal in _COUNTERS:
            found = self.series.get(signal)
            value = found[0].value if found is not None and len(found) == 1 else None
            number = _NUMBER.find(value[1]) if value is not None else None
            if found is None and signal in _NEVER_COUNTED:
                number = 0.0
            if number is None:
                return Counted(None, self._doubt(signal, found), gauges)
            values[signal] = number
        values[CounterSignal.PROMPT_TOKENS] -= values.pop(CounterSignal.CACHED_TOKENS)
        return Counted(EngineCounters(at=at, **values), "", gauges)

    def _doubt(self, signal: CounterSignal, found: list[Series] | None) -> str:
        """Return why a counter has no value; the time is good, so that it is the value itself."""
        if found is None:
            return f"no counter {signal}"
        return f"{signal}: {self.moment.sample(COUNTED, Reading.of(found)).detail}"

    def _sample(self, signal: EngineSignal | CounterSignal, kind: Signal = AMOUNT) -> Sample:
        found = self.series.get(signal)
        if found is None:
            return Sample(SampleState.MISSING, detail=self.failure)
        return self.moment.sample(kind, Reading.of(found))

    def _size(self) -> Sample:
        """Return the KV cache of all engines in tokens; each must have one size, made of whole blocks."""
        sizes = self.series.get(EngineSignal.CACHE_CONFIG)
        if sizes is None:
            return Sample(SampleState.MISSING, detail=self.failure)
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
        return self.moment.sample(_CACHE, Reading((str(sum(engines.values())),)))


@lru_cache(maxsize=256)
def _tokens(blocks: str, block: str) -> int | None:
    """Return the tokens that so many blocks of a size hold. A fleet has few sizes, and tells each in every cycle."""
    count, size = _COUNT.find(blocks), _COUNT.find(block)
    return None if count is None or size is None else count * size
