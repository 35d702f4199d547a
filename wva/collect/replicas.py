"""Join of samples with replicas: every Ready pod of a known variant, and what it reports.

The pods come from the caches, by way of their owners; Prometheus is only asked what they report. So a series without
a pod of ours is counted and forgotten, a pod without a series is still a replica (one that does not report), and the
identity of a sample is looked up, never built from label values: however large or odd they are, nothing of them is
kept but a shortened model name for a hint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from wva.api.meta import parse_time
from wva.collect.answers import InstantVector, Series
from wva.collect.engines import CounterJoin, EngineJoin
from wva.collect.faults import Faults
from wva.collect.queries import KV_CACHE_USAGE, KV_CACHE_USAGE_TIMESTAMP, QUEUE_LENGTH, QUEUE_LENGTH_TIMESTAMP
from wva.collect.samples import REQUESTS, SHARE, Classifier, Reading, Signal
from wva.collect.variants import AcceptedVariant
from wva.instruments import Instruments
from wva.model.metrics import Freshness, ReplicaMetrics, Sample, SampleState
from wva.model.variant import ModelKey, VariantKey

_SHOWN_MODEL_CHARACTERS: Final = 80
_COUNTED_QUERIES: Final = frozenset({KV_CACHE_USAGE, QUEUE_LENGTH})
"""Ignored series are counted for the values only, not once more for their times."""


class IgnoredCause(StrEnum):
    """Why a series belongs to no replica of ours."""

    FOREIGN_POD = "foreign_pod"
    NOT_READY = "not_ready"
    OTHER_MODEL = "other_model"
    MALFORMED = "malformed"


@dataclass(slots=True)
class _Pod:
    """A pod of a known variant while its series are being gathered."""

    variant: VariantKey
    model: ModelKey
    ready: bool
    ready_since: float | None
    creation_timestamp: str | None
    series: dict[str, list[Series]] = field(default_factory=dict)
    other_model: str | None = None


class ReplicaJoin:
    """Gathers the answers of one cycle; make one per cycle."""

    def __init__(
        self,
        variants: Iterable[AcceptedVariant],
        *,
        instruments: Instruments,
        engines: EngineJoin | None = None,
        counters: CounterJoin | None = None,
        faults: Faults | None = None,
    ) -> None:
        """Note the pods of the variants; ``engines`` and ``counters`` know what those of some of them tell beside.

        ``faults`` takes the models whose pods or samples cannot be read.
        """
        self._faults = Faults() if faults is None else faults
        self._instruments = instruments
        self._engines = engines
        self._counters = counters
        self._pods: dict[tuple[str, str], _Pod] = {}
        for accepted in variants:
            variant = accepted.variant
            for pod in accepted.pods:
                metadata = pod.metadata
                try:
                    since = metadata.creation_timestamp
                    noted = _Pod(variant.key, variant.model, pod.ready, pod.ready_since, since)
                except Exception as error:  # noqa: BLE001 - the other models' pods are read all the same
                    self._faults.note(variant.model, f"reading pod {metadata.name}", error)
                else:
                    self._pods[metadata.namespace, metadata.name] = noted

    def add(self, query: str, vector: InstantVector) -> None:
        """Take over the series of the answer to a query, named as in ``queries``."""
        ignored = Counter(self._placed(query, series) for series in vector.series)
        if query in _COUNTED_QUERIES:
            for cause in IgnoredCause:
                self._instruments.samples_ignored.labels(cause).inc(ignored[cause])

    def replicas(self, *, now: float, freshness: Freshness) -> list[ReplicaMetrics]:
        """Return one entry for every Ready pod, classified at ``now`` (seconds since the epoch). Then forget them."""
        classifier = Classifier(now, freshness)
        found = []
        for namespace, name in list(self._pods):
            pod = self._pods.pop((namespace, name))  # freed one by one: all at once would take too long
            if not pod.ready:
                continue
            try:
                found.append(self._replica(namespace, name, pod, classifier))
            except Exception as error:  # noqa: BLE001 - the other models' replicas are judged all the same
                self._faults.note(pod.model, f"reading the samples of pod {name}", error)
        self._count(KV_CACHE_USAGE, Counter(replica.kv_usage.state for replica in found))
        self._count(QUEUE_LENGTH, Counter(replica.queue_length.state for replica in found))
        return found

    def _replica(self, namespace: str, name: str, pod: _Pod, classifier: Classifier) -> ReplicaMetrics:
        kv_usage = self._sample(SHARE, (KV_CACHE_USAGE, KV_CACHE_USAGE_TIMESTAMP), pod, classifier)
        queue = self._sample(REQUESTS, (QUEUE_LENGTH, QUEUE_LENGTH_TIMESTAMP), pod, classifier)
        engine = None
        if self._engines is not None:
            time = Reading.of(pod.series.get(KV_CACHE_USAGE_TIMESTAMP, []))
            engine = self._engines.signals((namespace, name), time=time, classifier=classifier)
        counted = None
        if self._counters is not None:
            counted = self._counters.counted((namespace, name), classifier=classifier)
        if counted is None:
            return ReplicaMetrics(name, pod.variant, kv_usage, queue, engine, ready_since=pod.ready_since)
        return ReplicaMetrics(
            name,
            pod.variant,
            kv_usage,
            queue,
            counted.gauges if engine is None else engine,
            ready_since=pod.ready_since,
            counters=counted.counters,
            counters_detail=counted.detail,
            created=parse_time(pod.creation_timestamp),
        )

    def _count(self, signal: str, states: Counter[SampleState]) -> None:
        for state, count in states.items():
            self._instruments.samples.labels(signal, state).inc(count)

    def _placed(self, query: str, series: Series) -> IgnoredCause | None:
        """Do what ``_place`` does; a series that raises holds the model of its pod, if it has one of ours."""
        try:
            return self._place(query, series)
        except Exception as error:  # noqa: BLE001 - the other series are read all the same
            labels = series.metric
            name = labels.get("pod") or labels.get("pod_name", "")
            pod = self._pods.get((labels.get("namespace", ""), name))
            if pod is not None:
                self._faults.note(pod.model, f"reading the samples of pod {name}", error)
            return IgnoredCause.MALFORMED

    def _place(self, query: str, series: Series) -> IgnoredCause | None:
        """Hand the series to its pod, or say why not."""
        labels = series.metric
        namespace, pod_name = labels.get("namespace"), labels.get("pod") or labels.get("pod_name")
        model_name = labels.get("model_name")
        if not namespace or not pod_name or model_name is None:
            return IgnoredCause.MALFORMED
        pod = self._pods.get((namespace, pod_name))
        if pod is None:
            return IgnoredCause.FOREIGN_POD
        if not pod.ready:
            return IgnoredCause.NOT_READY
        if model_name != pod.model.model_id:
            shown = _shown(model_name)
            # The smallest of several: the hint must not depend on the order of an answer.
            pod.other_model = shown if pod.other_model is None else min(pod.other_model, shown)
            return IgnoredCause.OTHER_MODEL
        pod.series.setdefault(query, []).append(series)
        return None

    @staticmethod
    def _sample(signal: Signal, names: tuple[str, str], pod: _Pod, classifier: Classifier) -> Sample:
        value, time = (Reading.of(pod.series.get(name, [])) for name in names)
        sample = classifier.sample(signal, value=value, time=time)
        if sample.state is SampleState.MISSING and not value.texts and pod.other_model is not None:
            return Sample(SampleState.MISSING, detail=f'its pods report model_name "{pod.other_model}"')
        return sample


def _shown(model_name: str) -> str:
    cut = model_name[:_SHOWN_MODEL_CHARACTERS]
    text = "".join(character if character.isprintable() else "?" for character in cut)
    return text if len(model_name) <= _SHOWN_MODEL_CHARACTERS else text + "..."
