"""Answers of Prometheus: instant vectors, error bodies, and the samples that WVA reads from them."""

from __future__ import annotations

import math

import msgspec
from prometheus_client import CollectorRegistry

from tests.collect.cluster import no_faults
from wva.api.core import Pod
from wva.collect.queries import (
    ANALYZER_QUERIES,
    ESSENTIAL_QUERIES,
    CounterSignal,
    EngineSignal,
    QueueSignal,
    SampleSignal,
)
from wva.collect.replicas import ReplicaJoin
from wva.collect.scrape_intervals import ScrapeIntervals
from wva.collect.variants import AcceptedVariant
from wva.instruments import Instruments
from wva.model.metrics import Freshness, SampleState
from wva.model.variant import ModelKey, Variant, VariantKey
from wva.prometheus.answers import InstantVector, PrometheusError, decode_vector, error_reason
from wva.slices import at_once

NOW = 1_767_225_600.0
SECRET = "a-token-of-prometheus"
LONGEST_TEXT = 400
MOST_OF_ANY = 1e20
_MODEL = ModelKey("ns", "m")
_POD = msgspec.convert(
    {
        "metadata": {"name": "p", "namespace": "ns"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    },
    Pod,
)
_VARIANTS = [AcceptedVariant(Variant(VariantKey("ns", "v"), _MODEL, "v"), (_POD,))]
_INSTRUMENTS = Instruments(CollectorRegistry())
_FRESHNESS = Freshness(60.0, 300.0)


def words():
    """Return the names in an answer, the labels that WVA reads, and values at the limits of a sample."""
    yield from ("status", "success", "error", "errorType", "data", "resultType", "vector", "matrix", "result", "metric")
    yield from ("value", "histogram", "warnings", "infos", "namespace", "ns", "pod", "pod_name", "p", "model_name", "m")
    yield from (
        "target_model_name",
        "signal",
        "engine",
        *EngineSignal,
        *CounterSignal,
        *QueueSignal,
        *SampleSignal,
        SECRET,
        "\\u0000",
        "\x1b[0m",
    )
    yield from (
        "0.5",
        "1",
        "-0",
        "NaN",
        "+Inf",
        "1e9",
        "1.7976931348623157e308",
        f"{NOW}",
        f"{NOW + 31}",
        "1_0",
        "0x1p3",
    )


def check(data):
    """WVA reads a vector or raises PrometheusError; each value is possible for its signal; no text has the secret."""
    told = [error_reason(data, secrets=(SECRET,))]
    try:
        vector = at_once(decode_vector(data, secrets=(SECRET,)))
    except PrometheusError as error:
        told.append(error.message)
        vector = InstantVector()
    told += vector.warnings
    for text in told:
        assert len(text) <= LONGEST_TEXT
        assert SECRET not in text
        assert text.isprintable()
    join = ReplicaJoin(
        _VARIANTS, instruments=_INSTRUMENTS, wanted={_MODEL: frozenset(ANALYZER_QUERIES)}, faults=no_faults()
    )
    for query in (*ESSENTIAL_QUERIES, *ANALYZER_QUERIES):
        join.add(query, vector)
    taken = _replicas(join) | _queues(join)
    return bool(vector.series) and taken


def _replicas(join):
    (replica,) = join.replicas(now=NOW, freshness=_FRESHNESS, intervals=ScrapeIntervals())
    _believable(replica.kv_usage, 1.0)
    _believable(replica.queue_length, 1e9)
    for name in replica.engine.__struct_fields__:
        _believable(getattr(replica.engine, name), MOST_OF_ANY)
    _believable(replica.tokens_in_use, MOST_OF_ANY)
    if replica.counters is not None:
        for name in replica.counters.__struct_fields__:
            assert abs(getattr(replica.counters, name)) <= MOST_OF_ANY
    assert len(replica.counters_detail) <= LONGEST_TEXT
    return replica.kv_usage.detail != "" or replica.kv_usage.value is not None


def _queues(join):
    (queue,) = join.queues(now=NOW, freshness=_FRESHNESS)
    _believable(queue.size, MOST_OF_ANY)
    _believable(queue.size_bytes, MOST_OF_ANY)
    return queue.size.value is not None


def _believable(sample, most):
    if sample.value is not None:
        assert sample.state in {SampleState.FRESH, SampleState.STALE}
        assert 0 <= sample.value <= most
    assert sample.timestamp is None or math.isfinite(sample.timestamp)
    assert len(sample.detail) <= LONGEST_TEXT
