"""Which model a queue of an endpoint picker belongs to: the series of ``scheduler_queue``, to one entry per model.

The picker's series name a model and no namespace of their own; the label ``namespace`` is the one that Prometheus adds
from the picker's pod. A queue belongs to the model of that name **in the picker's namespace**, and to no other: a pool
and its picker live beside the workload they serve, and a model of the same name elsewhere is another one. What a picker
outside of the model's namespace holds back is not seen; counting it for every namespace would make one tenant's queue
another's replicas. The model is the request's target, or its name where a request has no target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final

from wva.collect.answers import InstantVector, Series
from wva.collect.faults import Faults
from wva.collect.queries import QueueSignal
from wva.collect.samples import Classifier, Reading, Signal
from wva.model.metrics import Sample, SampleState
from wva.model.records import replace
from wva.model.snapshot import SchedulerQueue
from wva.model.variant import ModelKey
from wva.numbers import FINITE, Real

_AMOUNT: Final = Signal(Real(0, 1e15))
"""No queue has more bytes; a larger number is an attempt to break a calculation."""
_MAX_NAMES: Final = 100


class SchedulerQueueJoin:
    """Gathers the answers of one cycle about the queues of some models; make one per cycle."""

    def __init__(self, models: Collection[ModelKey], *, faults: Faults | None = None) -> None:
        """Note the models; what is said of any other is forgotten. ``faults`` takes those that cannot be read."""
        self._faults = Faults() if faults is None else faults
        self._series: dict[ModelKey, dict[str, list[Series]]] = {model: {} for model in models}
        self._failures: dict[str, str] = {}

    def add(self, vector: InstantVector) -> None:
        """Take over the series of an answer."""
        for series in vector.series:
            labels = series.metric
            name = labels.get("target_model_name") or labels.get("model_name", "")
            found = self._series.get(ModelKey(labels.get("namespace", ""), name))
            if found is not None:
                found.setdefault(labels.get("signal", ""), []).append(series)

    def fail(self, namespaces: Iterable[str], message: str) -> None:
        """Note why the queues in some namespaces could not be read."""
        self._failures.update(dict.fromkeys(namespaces, message))

    def queues(self, classifier: Classifier) -> list[SchedulerQueue]:
        """Return one entry per model. Without an answer its samples are invalid: there may be a queue or none."""
        found = []
        for model, series in self._series.items():
            try:
                found.append(self._queue(model, series, classifier))
            except Exception as error:  # noqa: BLE001 - the other models have theirs
                self._faults.note(model, "reading the scheduler's queue", error)
        return found

    def _queue(self, model: ModelKey, series: dict[str, list[Series]], classifier: Classifier) -> SchedulerQueue:
        failure = self._failures.get(model.namespace)
        if failure is not None:
            unknown = Sample(SampleState.INVALID, detail=failure)
            return SchedulerQueue(model, unknown, unknown)
        times = Reading.of(series.get(QueueSignal.TIMESTAMP, []))
        # Two names of one model make two series for each signal: what waits under either waits for the same replicas.
        size, size_bytes = (
            _total(series.get(signal, []), times, classifier) for signal in (QueueSignal.SIZE, QueueSignal.BYTES)
        )
        return SchedulerQueue(model, size, size_bytes)


def _total(series: list[Series], times: Reading, classifier: Classifier) -> Sample:
    """Return the sum over the series at the time of the oldest; one that is no number spoils it."""
    if max(len(series), len(times.texts)) > _MAX_NAMES:
        return Sample(SampleState.INVALID, detail=f"requests under more than {_MAX_NAMES} names of the model")
    time = Reading((min(times.texts, key=lambda text: FINITE.find(text) or 0.0),) if times.texts else ())
    samples = [classifier.sample(_AMOUNT, value=Reading.of([one]), time=time) for one in series]
    doubtful = next((sample for sample in samples if sample.value is None), None)
    if not samples or doubtful is not None:
        return doubtful or Sample(SampleState.MISSING)
    return replace(samples[0], value=math.fsum(sample.value or 0.0 for sample in samples))
