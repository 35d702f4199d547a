"""Joins samples with the Ready pods of known variants, with their engines, and with the queues of models.

The pods come from the caches, by way of their owners; Prometheus only says what they report. So WVA counts and drops a
series that belongs to none of our pods, and a pod without a series is still a replica (one that does not report). WVA
finds the pod of a sample in the caches, and never builds its identity from label values. Label values may be large or
odd; WVA keeps only a shortened model name, for a hint.

The queue of an endpoint picker belongs to the model that its series name **in the picker's namespace**, which is the
label ``namespace`` that Prometheus adds: a pool and its picker live beside the workload they serve. If a queue counted
in every namespace, the requests of one tenant would add replicas to another. The model is the request's target, or its
name if the request has no target.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from wva.api.core import Pod
from wva.api.meta import parse_time
from wva.collect import queries, samples
from wva.collect.faults import Faults
from wva.collect.namesakes import Namesakes
from wva.collect.scrape_intervals import ScrapeIntervals
from wva.collect.variants import AcceptedVariant
from wva.instruments import Instruments
from wva.model.metrics import MISSING, Freshness, ReplicaMetrics, Sample, SampleState
from wva.model.records import replace
from wva.model.snapshot import SchedulerQueue
from wva.model.variant import ModelKey, VariantKey
from wva.numbers import FINITE
from wva.prometheus.answers import InstantSeries, InstantVector

_SHOWN_MODEL_CHARACTERS: Final = 80
_MAX_NAMES: Final = 100
"""Under so many names a model may be asked for at the gateway."""


class IgnoredCause(StrEnum):
    """Why a series belongs to no replica of ours."""

    FOREIGN_POD = "foreign_pod"
    NOT_READY = "not_ready"
    OTHER_MODEL = "other_model"
    MALFORMED = "malformed"


@dataclass(slots=True)
class _GatheredPod:
    """A Ready pod of a known variant, with its series so far: by query, and those of its engines also by signal."""

    pod: Pod
    variant: VariantKey
    model: ModelKey
    model_id: str
    engines: dict[str, dict[str, list[InstantSeries]]]
    series: dict[tuple[str, str], list[InstantSeries]] = field(default_factory=dict)
    hint: str | None = None  # why it may have no samples

    def texts(self, query: str, signal: queries.SampleSignal) -> samples.Texts:
        """Return what the answer to an essential query says of one signal."""
        return samples.texts_of(self.series.get((query, signal), ()))


class ReplicaJoin:
    """Gathers the answers of one cycle; make one per cycle."""

    def __init__(
        self,
        variants: Iterable[AcceptedVariant],
        *,
        instruments: Instruments,
        wanted: Mapping[ModelKey, frozenset[str]] = {},
        faults: Faults,
        namesakes: Namesakes | None = None,
    ) -> None:
        """Note pods and models; ``wanted`` has the names of the queries that only some models need.

        ``faults`` takes the models whose samples cannot be read, and ``namesakes`` the pods of others that report the
        name of a model.
        """
        self._faults = faults
        self._namesakes = namesakes or Namesakes()
        self._instruments = instruments
        self._failures: dict[tuple[str, str], str] = {}
        self._pods: dict[tuple[str, str], _GatheredPod] = {}
        self._unready: set[tuple[str, str]] = set()
        self._models: set[ModelKey] = set()
        self._nameless: set[ModelKey] = set()
        """Models with series that have no label ``pod``."""
        self._queues: dict[ModelKey, dict[str, list[InstantSeries]]] = {}
        for accepted in variants:
            key, model = accepted.variant.key, accepted.variant.model
            wants = wanted.get(model, frozenset())
            if queries.SCHEDULER_QUEUE in wants and accepted.variant.active:
                self._queues[model] = {}
            self._models.add(model)
            self._namesakes.add(accepted)
            for pod in accepted.ready:
                engines: dict[str, dict[str, list[InstantSeries]]] = {query: {} for query in wants & queries.BY_PODS}
                name = pod.metadata.namespace, pod.metadata.name
                self._pods[name] = _GatheredPod(pod, key, model, model.model_id, engines)
            self._unready.update((pod.metadata.namespace, pod.metadata.name) for pod in accepted.unready)

    def knows(self, namespace: str, pod: str) -> bool:
        """Tell whether a pod is one of a variant, Ready or not."""
        return (namespace, pod) in self._pods or (namespace, pod) in self._unready

    def fail(self, query: str, namespaces: Iterable[str], message: str) -> None:
        """Note why a query about some namespaces that only some models need has no answer."""
        self._failures.update({(query, namespace): message for namespace in namespaces})

    def add(self, query: str, vector: InstantVector) -> None:
        """Take over the series of the answer to a query, named as in ``queries``."""
        if query == queries.SCHEDULER_QUEUE:
            for series in vector.series:
                queue = self._queues.get(queries.model_of(series.metric))
                if queue is not None:
                    queue.setdefault(series.metric.signal or "", []).append(series)
            return
        if query in queries.BY_PODS:
            pods = self._pods
            for series in vector.series:
                labels = series.metric
                pod = pods.get((labels.namespace or "", labels.pod or ""))
                # The size of the cache comes without a model: it belongs to the engine, with all the names it serves.
                if pod is not None and (labels.model_name is None or labels.model_name == pod.model_id):
                    row = pod.engines.get(query)
                    if row is not None:
                        row.setdefault(labels.signal or "", []).append(series)
            return
        ignored: Counter[IgnoredCause | None] = Counter()
        for series in vector.series:
            try:
                cause = self._place(query, series)
                if series.metric.signal == queries.SampleSignal.VALUE:  # a sample and its time count once
                    ignored[cause] += 1
            except Exception as error:  # noqa: BLE001 - the other series are still read
                ignored[IgnoredCause.MALFORMED] += 1
                name = series.metric.pod or ""
                pod = self._pods.get((series.metric.namespace or "", name))
                if pod is not None:
                    self._faults.note(pod.model, f"reading the samples of pod {name}", error)
        for cause in IgnoredCause:
            self._instruments.samples_ignored.labels(cause).inc(ignored[cause])

    def _place(self, query: str, series: InstantSeries) -> IgnoredCause | None:
        """Give the series to its pod, or return why it belongs to none."""
        labels = series.metric
        namespace, pod_name, model_name = labels.namespace, labels.pod, labels.model_name
        if not namespace or not pod_name or model_name is None:
            model = ModelKey(namespace or "", model_name or "")
            if not pod_name and model in self._models:
                self._nameless.add(model)
            elif (unnamed := self._pods.get((namespace or "", pod_name or ""))) is not None:
                unnamed.hint = unnamed.hint or "its series have no label model_name"
            return IgnoredCause.MALFORMED
        pod = self._pods.get((namespace, pod_name))
        if pod is None and (namespace, pod_name) in self._unready:
            return IgnoredCause.NOT_READY
        if (pod is None or model_name != pod.model_id) and (named := ModelKey(namespace, model_name)) in self._models:
            self._namesakes.report(named, pod_name)
        if pod is None:
            return IgnoredCause.FOREIGN_POD
        if model_name != pod.model_id:
            cut = model_name[:_SHOWN_MODEL_CHARACTERS]
            shown = "".join(character if character.isprintable() else "?" for character in cut)
            shown += "..." if len(model_name) > _SHOWN_MODEL_CHARACTERS else ""
            # Of several hints the smallest one stays: it must not depend on the order of an answer.
            hint = f'its pods report model_name "{shown}"'
            pod.hint = hint if pod.hint is None else min(pod.hint, hint)
            return IgnoredCause.OTHER_MODEL
        pod.series.setdefault((query, labels.signal or ""), []).append(series)
        return None

    def replicas(
        self, *, now: float, freshness: Freshness, intervals: ScrapeIntervals, strays: Mapping[ModelKey, str] = {}
    ) -> list[ReplicaMetrics]:
        """Return an entry for every Ready pod, classified at ``now`` (seconds since the epoch); forget the pods.

        ``intervals`` learns from the times of their samples. ``strays`` has the models whose series exist under other
        names or labels, and says in words under which.
        """
        classifier = samples.Classifier(now, freshness)
        intervals.keep(self._pods.keys())
        replicas = []
        for key in list(self._pods):
            pod = self._pods.pop(key)  # freed one by one: all at once would take too long
            pod.hint = pod.hint or strays.get(pod.model)
            try:
                replicas.append(self._replica(pod, classifier, intervals))
            except Exception as error:  # noqa: BLE001 - the replicas of other models are still judged
                self._faults.note(pod.model, f"reading the samples of pod {pod.pod.metadata.name}", error)
        states = Counter((queries.KV_CACHE_USAGE, replica.kv_usage.state) for replica in replicas)
        states.update((queries.QUEUE_LENGTH, replica.queue_length.state) for replica in replicas)
        for labels, count in states.items():
            self._instruments.samples.labels(*labels).inc(count)
        return replicas

    def _replica(self, pod: _GatheredPod, classifier: samples.Classifier, intervals: ScrapeIntervals) -> ReplicaMetrics:
        meta = pod.pod.metadata
        if pod.hint is None and pod.model in self._nameless:
            pod.hint = "series of its model have no label pod"
        counter_series = pod.engines.get(queries.ENGINE_COUNTERS)
        time = pod.texts(queries.KV_CACHE_USAGE, queries.SampleSignal.TIMESTAMP)
        queue_time = pod.texts(queries.QUEUE_LENGTH, queries.SampleSignal.TIMESTAMP)
        counter_time = samples.texts_of(
            () if counter_series is None else counter_series.get(queries.CounterSignal.TIME, ())
        )
        times = [classifier.time(texts) for texts in (time, queue_time, counter_time)]
        newest = max([at for at in times if at is not None], default=None)
        between = intervals.learn((meta.namespace, meta.name), newest)
        scrape, queue_scrape = classifier.scrape(time, between), classifier.scrape(queue_time, between)
        engine, counters, detail, created = None, None, "", None
        if counter_series is not None:
            counter_scrape = classifier.scrape(counter_time, between)
            failure = self._failures.get((queries.ENGINE_COUNTERS, meta.namespace), "")
            engine = samples.engine_signals(counter_series, counter_scrape, failure=failure, signals=samples.GAUGES)
            counters, detail = samples.engine_counters(counter_series, counter_scrape, engine)
            if (prefills := pod.engines.get(queries.ENGINE_PREFILLS)) is not None and counters is not None:
                counters = samples.with_prefills(counters, prefills)
            created = parse_time(meta.creation_timestamp)
        signal_series = pod.engines.get(queries.ENGINE_SIGNALS)
        if signal_series is not None:
            failure = self._failures.get((queries.ENGINE_SIGNALS, meta.namespace), "")
            engine = samples.engine_signals(signal_series, scrape, failure=failure)
        return ReplicaMetrics(
            meta.name,
            pod.variant,
            _sample(samples.SHARE, queries.KV_CACHE_USAGE, pod, scrape),
            _sample(samples.REQUESTS, queries.QUEUE_LENGTH, pod, queue_scrape),
            engine,
            ready_since=pod.pod.ready_since,
            counters=counters,
            counters_detail=detail,
            dormant=(queries.KV_CACHE_USAGE, queries.SampleSignal.DORMANT) in pod.series,
            created=created,
            scrape_seconds=between,
            namesakes=self._namesakes.words(pod.model),
        )

    def queues(self, *, now: float, freshness: Freshness) -> list[SchedulerQueue]:
        """Return the requests that endpoint pickers hold back for each model that needs them, sorted by model."""
        classifier = samples.Classifier(now, freshness)
        scheduler_queues = []
        for model, series in sorted(self._queues.items()):
            try:
                scheduler_queues.append(self._queue(model, series, classifier))
            except Exception as error:  # noqa: BLE001 - the other models still get their queues
                self._faults.note(model, "reading the scheduler's queue", error)
        return scheduler_queues

    def _queue(self, model: ModelKey, series: samples.PodSeries, classifier: samples.Classifier) -> SchedulerQueue:
        """Sum up the queues of a model. Without an answer they are invalid, since there may be requests or none."""
        failure = self._failures.get((queries.SCHEDULER_QUEUE, model.namespace))
        if failure is not None:
            unknown = Sample(SampleState.INVALID, detail=failure)
            return SchedulerQueue(model, unknown, unknown)
        times = samples.texts_of(series.get(queries.QueueSignal.TIMESTAMP, ()))
        few = 0 < len(times) <= _MAX_NAMES
        oldest = classifier.scrape((min(times, key=lambda text: FINITE.find(text) or 0.0),) if few else ())
        totals = []
        for signal in (queries.QueueSignal.SIZE, queries.QueueSignal.BYTES):
            elements = series.get(signal, [])
            if max(len(elements), len(times)) > _MAX_NAMES:
                detail = f"requests under more than {_MAX_NAMES} names of the model"
                totals.append(Sample(SampleState.INVALID, detail=detail))
                continue
            # Two names of one model make two series for each signal: requests under both names wait for the same
            # replicas. A series without a number makes the sum invalid.
            judged = [oldest.sample(samples.COUNTED, samples.texts_of([element])) for element in elements]
            doubtful = [sample for sample in judged if sample.value is None]
            if doubtful or not judged:
                totals.append(doubtful[0] if doubtful else MISSING)
            else:
                totals.append(replace(judged[0], value=math.fsum(sample.value or 0.0 for sample in judged)))
        return SchedulerQueue(model, *totals)


def _sample(kind: samples.SignalRange, query: str, pod: _GatheredPod, scrape: samples.ScrapeTime) -> Sample:
    texts = pod.texts(query, queries.SampleSignal.VALUE)
    sample = scrape.sample(kind, texts)
    if sample.state is SampleState.MISSING and not texts and pod.hint is not None:
        return Sample(SampleState.MISSING, detail=pod.hint)
    return sample
