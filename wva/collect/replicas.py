"""Joins samples with replicas: every Ready pod of a known variant, and what it and its engines report.

The pods come from the caches, by way of their owners; Prometheus only says what they report. So a series without a pod
of ours is counted and dropped, and a pod without a series is still a replica (one that does not report). WVA finds the
pod of a sample in the caches, and never builds its identity from label values. Label values may be large or odd; WVA
keeps only a shortened model name, for a hint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from wva.api.meta import parse_time
from wva.collect import queries
from wva.collect.engines import GAUGES, engine_counters, engine_signals
from wva.collect.faults import Faults
from wva.collect.samples import REQUESTS, SHARE, Classifier, ScrapeTime, SignalRange, texts_of
from wva.collect.variants import AcceptedVariant
from wva.instruments import Instruments
from wva.model.metrics import Freshness, ReplicaMetrics, Sample, SampleState
from wva.model.variant import ModelKey, VariantKey
from wva.prometheus.answers import InstantSeries, InstantVector

_SHOWN_MODEL_CHARACTERS: Final = 80
_COUNTED_QUERIES: Final = frozenset({queries.KV_CACHE_USAGE, queries.QUEUE_LENGTH})
"""WVA counts ignored series in the answers with values, and not again in the answers with times."""
_NO_QUERIES: Final[frozenset[str]] = frozenset()


class IgnoredCause(StrEnum):
    """Why a series belongs to no replica of ours."""

    FOREIGN_POD = "foreign_pod"
    NOT_READY = "not_ready"
    OTHER_MODEL = "other_model"
    MALFORMED = "malformed"


@dataclass(slots=True)
class _GatheredPod:
    """A pod of a known variant, with its series so far: by query, and those of its engines by signal."""

    variant: VariantKey
    model: ModelKey
    model_id: str
    ready: bool
    ready_since: float | None
    creation_timestamp: str | None
    engines: dict[str, dict[str, list[InstantSeries]]]
    series: dict[str, list[InstantSeries]] = field(default_factory=dict)
    other_model: str | None = None


class ReplicaJoin:
    """Gathers the answers of one cycle; make one per cycle."""

    def __init__(
        self,
        variants: Iterable[AcceptedVariant],
        *,
        instruments: Instruments,
        wanted: Mapping[ModelKey, frozenset[str]] = {},
        faults: Faults | None = None,
    ) -> None:
        """Note the pods of the variants; ``wanted`` has the names of the queries about engines that each model needs.

        ``faults`` takes the models whose pods or samples cannot be read.
        """
        self._faults = Faults() if faults is None else faults
        self._instruments = instruments
        self._failures: dict[tuple[str, str], str] = {}
        self._pods: dict[tuple[str, str], _GatheredPod] = {}
        for accepted in variants:
            key, model = accepted.variant.key, accepted.variant.model
            wants = wanted.get(model, _NO_QUERIES) & queries.BY_PODS
            for pod in accepted.pods:
                meta = pod.metadata
                try:
                    engines: dict[str, dict[str, list[InstantSeries]]] = {query: {} for query in wants}
                    noted = _GatheredPod(
                        key, model, model.model_id, pod.ready, pod.ready_since, meta.creation_timestamp, engines
                    )
                except Exception as error:  # noqa: BLE001 - the pods of other models are still read
                    self._faults.note(model, f"reading pod {meta.name}", error)
                else:
                    self._pods[meta.namespace, meta.name] = noted

    def fail(self, query: str, namespaces: Iterable[str], message: str) -> None:
        """Note why a query about the engines of some namespaces has no answer."""
        self._failures.update({(query, namespace): message for namespace in namespaces})

    def add(self, query: str, vector: InstantVector) -> None:
        """Take over the series of the answer to a query, named as in ``queries``."""
        if query in queries.BY_PODS:
            self._add_engines(query, vector)
            return
        ignored: Counter[IgnoredCause | None] = Counter()
        for series in vector.series:
            try:
                ignored[self._place(query, series)] += 1
            except Exception as error:  # noqa: BLE001 - the other series are still read
                ignored[IgnoredCause.MALFORMED] += 1
                labels = series.metric
                name = labels.pod or labels.pod_name or ""
                pod = self._pods.get((labels.namespace or "", name))
                if pod is not None:
                    self._faults.note(pod.model, f"reading the samples of pod {name}", error)
        if query in _COUNTED_QUERIES:
            for cause in IgnoredCause:
                self._instruments.samples_ignored.labels(cause).inc(ignored[cause])

    def _add_engines(self, query: str, vector: InstantVector) -> None:
        """Take over series of engines; drop those of other pods and models."""
        pods = self._pods
        for series in vector.series:
            labels = series.metric
            pod = pods.get((labels.namespace or "", labels.pod or labels.pod_name or ""))
            # The size of the cache comes without a model: it belongs to the engine, with all the names that it serves.
            if pod is not None and (labels.model_name is None or labels.model_name == pod.model_id):
                row, signal = pod.engines.get(query), labels.signal or ""
                if row is not None:
                    found = row.get(signal)
                    if found is None:
                        row[signal] = [series]
                    else:
                        found.append(series)

    def _place(self, query: str, series: InstantSeries) -> IgnoredCause | None:
        """Hand the series to its pod, or say why not."""
        labels = series.metric
        namespace, pod_name, model_name = labels.namespace, labels.pod or labels.pod_name, labels.model_name
        if not namespace or not pod_name or model_name is None:
            return IgnoredCause.MALFORMED
        pod = self._pods.get((namespace, pod_name))
        if pod is None:
            return IgnoredCause.FOREIGN_POD
        if not pod.ready:
            return IgnoredCause.NOT_READY
        if model_name != pod.model_id:
            cut = model_name[:_SHOWN_MODEL_CHARACTERS]
            shown = "".join(character if character.isprintable() else "?" for character in cut)
            shown += "..." if len(model_name) > _SHOWN_MODEL_CHARACTERS else ""
            # The smallest of several: the hint must not depend on the order of an answer.
            pod.other_model = shown if pod.other_model is None else min(pod.other_model, shown)
            return IgnoredCause.OTHER_MODEL
        pod.series.setdefault(query, []).append(series)
        return None

    def replicas(self, *, now: float, freshness: Freshness) -> list[ReplicaMetrics]:
        """Return an entry for every Ready pod, classified at ``now`` (seconds since the epoch); forget the pods."""
        classifier = Classifier(now, freshness)
        found = []
        for namespace, name in list(self._pods):
            pod = self._pods.pop((namespace, name))  # freed one by one: all at once would take too long
            if not pod.ready:
                continue
            try:
                found.append(self._replica(namespace, name, pod, classifier))
            except Exception as error:  # noqa: BLE001 - the replicas of other models are still judged
                self._faults.note(pod.model, f"reading the samples of pod {name}", error)
        samples = {
            queries.KV_CACHE_USAGE: Counter(replica.kv_usage.state for replica in found),
            queries.QUEUE_LENGTH: Counter(replica.queue_length.state for replica in found),
        }
        for signal, states in samples.items():
            for state, count in states.items():
                self._instruments.samples.labels(signal, state).inc(count)
        return found

    def _replica(self, namespace: str, name: str, pod: _GatheredPod, classifier: Classifier) -> ReplicaMetrics:
        scrape = classifier.scrape(texts_of(pod.series.get(queries.KV_CACHE_USAGE_TIMESTAMP, ())))
        queue_scrape = classifier.scrape(texts_of(pod.series.get(queries.QUEUE_LENGTH_TIMESTAMP, ())))
        engine, counters, detail, created = None, None, "", None
        counted = pod.engines.get(queries.ENGINE_COUNTERS)
        if counted is not None:
            counter_scrape = classifier.scrape(texts_of(counted.get(queries.CounterSignal.TIME, ())))
            failure = self._failures.get((queries.ENGINE_COUNTERS, namespace), "")
            engine = engine_signals(counted, counter_scrape, failure=failure, signals=GAUGES)
            counters, detail = engine_counters(counted, counter_scrape, engine)
            created = parse_time(pod.creation_timestamp)
        told = pod.engines.get(queries.ENGINE_SIGNALS)
        if told is not None:
            engine = engine_signals(told, scrape, failure=self._failures.get((queries.ENGINE_SIGNALS, namespace), ""))
        return ReplicaMetrics(
            name,
            pod.variant,
            _sample(SHARE, queries.KV_CACHE_USAGE, pod, scrape),
            _sample(REQUESTS, queries.QUEUE_LENGTH, pod, queue_scrape),
            engine,
            ready_since=pod.ready_since,
            counters=counters,
            counters_detail=detail,
            created=created,
        )


def _sample(kind: SignalRange, query: str, pod: _GatheredPod, scrape: ScrapeTime) -> Sample:
    texts = texts_of(pod.series.get(query, ()))
    sample = scrape.sample(kind, texts)
    if sample.state is SampleState.MISSING and not texts and pod.other_model is not None:
        return Sample(SampleState.MISSING, detail=f'its pods report model_name "{pod.other_model}"')
    return sample
