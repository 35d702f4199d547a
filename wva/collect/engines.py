"""What the engines of a pod report beside the two signals: the series of ``engine_signals``, as samples with a state.

These series come from the same page as the KV usage, so the time of the last KV usage is the time of all of them. No
sample is fresh here unless the KV usage of the pod is fresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from wva.collect.answers import InstantVector, Series
from wva.collect.queries import EngineSignal
from wva.collect.samples import AMOUNT, SHARE, Classifier, Reading, Signal
from wva.collect.variants import AcceptedVariant
from wva.model.metrics import EngineSignals, Sample, SampleState
from wva.model.variant import ModelKey
from wva.numbers import Real, Whole, shown

_COUNT: Final = Whole(1, 999_999_999)
"""Of blocks, and of tokens in a block."""
_CACHE: Final = Signal(Real(0, 1e15))
_MAX_ENGINES: Final = 1_000
"""No pod has more engines."""


class EngineJoin:
    """Gathers the answers of one cycle about the engines of some models; make one per cycle."""

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
        for series in vector.series:
            labels = series.metric
            pod = labels.get("namespace", ""), labels.get("pod") or labels.get("pod_name", "")
            model_id = self._models.get(pod)
            # The size of the cache comes without a model: it belongs to the engine, with all the names that it serves.
            if model_id is not None and labels.get("model_name", model_id) == model_id:
                self._series.setdefault(pod, {}).setdefault(labels.get("signal", ""), []).append(series)

    def fail(self, namespaces: Iterable[str], message: str) -> None:
        """Note why the engines in some namespaces could not be asked about."""
        self._failures.update(dict.fromkeys(namespaces, message))

    def signals(self, pod: tuple[str, str], *, time: Reading, classifier: Classifier) -> EngineSignals | None:
        """Return the samples of one pod (namespace, name), None when they are not asked for.

        ``time`` is that of its last scrape.
        """
        if pod not in self._models:
            return None
        return _Pod(self._series.get(pod, {}), time, classifier, self._failures.get(pod[0], "")).signals()


@dataclass(frozen=True, slots=True)
class _Pod:
    """The series of one pod by signal; ``failure`` says why there are none, empty when there could be."""

    series: Mapping[str, list[Series]]
    time: Reading
    classifier: Classifier
    failure: str

    def signals(self) -> EngineSignals:
        """Classify all of them."""
        sizes = self.series.get(EngineSignal.CACHE_CONFIG)
        return EngineSignals(
            kv_capacity_tokens=self._sample(EngineSignal.CACHE_CONFIG) if sizes is None else self._size(sizes),
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

    def _sample(self, signal: EngineSignal, kind: Signal = AMOUNT) -> Sample:
        found = self.series.get(signal)
        if found is None:
            return Sample(SampleState.MISSING, detail=self.failure)
        return self.classifier.sample(kind, value=Reading.of(found), time=self.time)

    def _size(self, sizes: Sequence[Series]) -> Sample:
        """Return the KV cache of all engines in tokens; each must have one size, made of whole blocks."""
        if len(sizes) > _MAX_ENGINES:
            return Sample(SampleState.INVALID, detail=f"more than {_MAX_ENGINES} sizes of the KV cache")
        engines: dict[str, int] = {}
        for found in sizes:
            labels = found.metric
            written = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
            blocks, block = map(_COUNT.find, written)
            if blocks is None or block is None:
                words = "num_gpu_blocks {} and block_size {} are not counts".format(*map(shown, written))
                return Sample(SampleState.INVALID, detail=words)
            engine = labels.get("engine", "")
            if engine in engines:
                return Sample(SampleState.INVALID, detail=f"several sizes of the KV cache of engine {shown(engine)}")
            engines[engine] = blocks * block
        return self.classifier.sample(_CACHE, value=Reading((str(sum(engines.values())),)), time=self.time)
