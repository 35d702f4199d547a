"""Turns the series of ``scheduler_queue`` into one entry per model: finds the model of each picker's queue.

The picker's series name a model; their label ``namespace`` is the one that Prometheus adds from the picker's pod. A
queue belongs to the model of that name **in the picker's namespace**, because a pool and its picker live beside the
workload they serve. If a queue counted in every namespace, the requests of one tenant would add replicas to another.
The model is the request's target, or its name where a request has no target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final

from wva.collect.faults import Faults
from wva.collect.queries import QueueSignal
from wva.collect.samples import COUNTED, Classifier, texts_of
from wva.model.metrics import Sample, SampleState
from wva.model.records import replace
from wva.model.snapshot import SchedulerQueue
from wva.model.variant import ModelKey
from wva.numbers import FINITE
from wva.prometheus.answers import InstantSeries, InstantVector

_MAX_NAMES: Final = 100


class SchedulerQueueJoin:
    """Gathers the answers of one cycle about the queues of some models; make one per cycle."""

    def __init__(self, models: Collection[ModelKey], *, faults: Faults | None = None) -> None:
        """Note the models; series of other models are dropped. ``faults`` takes the models that cannot be read."""
        self._faults = Faults() if faults is None else faults
        self._series: dict[ModelKey, dict[str, list[InstantSeries]]] = {model: {} for model in models}
        self._failures: dict[str, str] = {}

    def add(self, vector: InstantVector) -> None:
        """Take over the series of an answer."""
        for series in vector.series:
            labels = series.metric
            model = ModelKey(labels.namespace or "", labels.target_model_name or labels.model_name or "")
            found = self._series.get(model)
            if found is not None:
                found.setdefault(labels.signal or "", []).append(series)

    def fail(self, namespaces: Iterable[str], message: str) -> None:
        """Note why the queues in some namespaces could not be read."""
        self._failures.update(dict.fromkeys(namespaces, message))

    def queues(self, classifier: Classifier) -> list[SchedulerQueue]:
        """Return one entry per model. Without an answer the samples are invalid, since there may be a queue or none."""
        found = []
        for model, series in self._series.items():
            try:
                found.append(self._queue(model, series, classifier))
            except Exception as error:  # noqa: BLE001 - the other models still get their queues
                self._faults.note(model, "reading the scheduler's queue", error)
        return found

    def _queue(self, model: ModelKey, series: dict[str, list[InstantSeries]], classifier: Classifier) -> SchedulerQueue:
        failure = self._failures.get(model.namespace)
        if failure is not None:
            unknown = Sample(SampleState.INVALID, detail=failure)
            return SchedulerQueue(model, unknown, unknown)
        times = texts_of(series.get(QueueSignal.TIMESTAMP, ()))
        few = 0 < len(times) <= _MAX_NAMES
        oldest = classifier.scrape((min(times, key=lambda text: FINITE.find(text) or 0.0),) if few else ())
        totals = []
        for signal in (QueueSignal.SIZE, QueueSignal.BYTES):
            found = series.get(signal, [])
            if max(len(found), len(times)) > _MAX_NAMES:
                detail = f"requests under more than {_MAX_NAMES} names of the model"
                totals.append(Sample(SampleState.INVALID, detail=detail))
                continue
            # Two names of one model make two series for each signal: requests under both names wait for the same
            # replicas. A series without a number makes the sum invalid.
            samples = [oldest.sample(COUNTED, texts_of([one])) for one in found]
            doubtful = next((sample for sample in samples if sample.value is None), None)
            if not samples or doubtful is not None:
                totals.append(doubtful or Sample(SampleState.MISSING))
            else:
                totals.append(replace(samples[0], value=math.fsum(sample.value or 0.0 for sample in samples)))
        return SchedulerQueue(model, *totals)
