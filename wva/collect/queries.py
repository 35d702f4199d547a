"""Every PromQL text of a cycle, in one place.

Four queries for each chunk of at most 100 namespaces, whatever the number of models, variants and pods in them:
the two signals, and for each the time of its last sample. The latter is needed because an instant query stamps its
results with the evaluation time, and ``max_over_time`` shows a series for a minute after its last sample.

The signals are the highest value of the last minute over the engines of a pod, as in the original (engine.md 2.2),
grouped by model and namespace as well, since one answer carries them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from wva.collect.promql import quote, regex_literal, validate_namespace

MAX_NAMESPACES_PER_CHUNK: Final = 100

KV_CACHE_USAGE: Final = "kv_cache_usage"
QUEUE_LENGTH: Final = "queue_length"
KV_CACHE_USAGE_TIMESTAMP: Final = "kv_cache_usage_timestamp"
QUEUE_LENGTH_TIMESTAMP: Final = "queue_length_timestamp"

TIMESTAMP_QUERIES: Final = frozenset({KV_CACHE_USAGE_TIMESTAMP, QUEUE_LENGTH_TIMESTAMP})
"""The queries whose values are times of samples."""

_METRICS: Final = {
    KV_CACHE_USAGE: "vllm:kv_cache_usage_perc",
    QUEUE_LENGTH: "vllm:num_requests_waiting",
}
_GROUPING: Final = "max by (namespace, model_name, pod)"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL text under the name that metrics and logs call it by."""

    name: str
    text: str


def chunks(namespaces: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the namespaces sorted, without repetition, in groups of at most 100."""
    ordered = sorted(set(namespaces))
    return [
        tuple(ordered[start : start + MAX_NAMESPACES_PER_CHUNK])
        for start in range(0, len(ordered), MAX_NAMESPACES_PER_CHUNK)
    ]


def chunk_queries(namespaces: Sequence[str]) -> tuple[Query, ...]:
    """Return the four queries for a chunk of namespaces.

    Raises ValueError when there is none, or one is not a namespace of Kubernetes.
    """
    if not namespaces:
        raise ValueError("a query without namespaces would read every namespace")
    pattern = "|".join(regex_literal(validate_namespace(namespace)) for namespace in namespaces)
    matchers = f"{{namespace=~{quote(pattern)}}}"
    values = [Query(name, f"{_GROUPING} (max_over_time({metric}{matchers}[1m]))") for name, metric in _METRICS.items()]
    timestamps = [
        Query(f"{name}_timestamp", f"{_GROUPING} (timestamp({metric}{matchers}))") for name, metric in _METRICS.items()
    ]
    return (*values, *timestamps)
