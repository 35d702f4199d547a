"""Stand-ins for time and Prometheus."""

from __future__ import annotations

import re

import msgspec

from wva.collect.queries import ESSENTIAL_QUERIES, SampleSignal
from wva.prometheus.answers import InstantSeries, InstantVector, Labels, PrometheusError

NOW = 1_700_000_000.0


def series(labels, value="1"):
    """Return a series as the decoder makes it, without labels that no query groups by."""
    return InstantSeries(msgspec.convert(labels, Labels), (NOW, value))


def _signalling(series, signal):
    """Return a series with the label that tells signals of one query apart."""
    return InstantSeries(msgspec.structs.replace(series.metric, signal=signal), series.value)


class RecordingClock:
    """A clock that stands still and records the pauses."""

    def __init__(self):
        """Start without pauses."""
        self.pauses = []

    def now(self):
        """Return the one time there is."""
        return NOW

    def monotonic(self):
        """Return the one time there is."""
        return NOW

    async def sleep(self, seconds):
        """Note the pause."""
        self.pauses.append(seconds)

    async def wait(self, event, timeout_seconds):
        """Note the pause; nothing happens in it."""
        self.pauses.append(timeout_seconds)
        return event.is_set()


class FakePrometheus:
    """Answers queries by their name from series put there, restricted to the namespaces that a query names."""

    def __init__(self):
        """Start without series: every query answers an empty vector."""
        self.series = {}
        self.queries = []
        self.failing = {}
        self.warnings = ()

    def put(self, name, value, *, namespace="ns", pod="va-0", model_name="m", **labels):
        """Add one series to the answers of a query."""
        metric = {"namespace": namespace, "pod": pod, "model_name": model_name, **labels}
        self.series.setdefault(name, []).append(series(metric, value))

    def put_replica(self, *, kv="0.5", queue="1", age_seconds=5.0, **labels):
        """Add the four series of a pod that reports."""
        self.put("kv_cache_usage", kv, **labels)
        self.put("queue_length", queue, **labels)
        for name in ("kv_cache_usage_timestamp", "queue_length_timestamp"):
            self.put(name, str(NOW - age_seconds), **labels)

    def answer(self, name):
        """Return the series that answer a query about all namespaces."""
        if name not in ESSENTIAL_QUERIES:
            return self.series.get(name, [])
        signals = {name: SampleSignal.VALUE, f"{name}_timestamp": SampleSignal.TIMESTAMP}
        return [_signalling(each, signal) for of, signal in signals.items() for each in self.series.get(of, [])]

    def fail(self, name, kind, message):
        """Make a query fail from now on."""
        self.failing[name] = PrometheusError(kind, message)

    async def query(self, promql, *, name, at):
        """Answer like PrometheusClient."""
        self.queries.append((name, promql, at))
        if name in self.failing:
            raise self.failing[name]
        namespaces = set(re.search(r'namespace=~"([^"]*)"', promql)[1].split("|"))
        found = [series for series in self.answer(name) if series.metric.get("namespace") in namespaces]
        return InstantVector(tuple(found), self.warnings)
