"""Every PromQL text of a cycle, in one place.

There are four queries for each chunk of at most 100 namespaces, for any number of models, variants and pods in them:
the two signals, and for each the time of its last sample. The time is needed because an instant query stamps its
results with the evaluation time, and ``max_over_time`` shows a series for a minute after its last sample.

A signal is the highest value of the last minute over the engines of a pod, as in v0.5.1. It is also grouped by model
and namespace, since one answer has all of them.

Two more queries are sent for each chunk in which the analyzer of some model needs them, restricted to the namespaces of
such models: ``engine_signals`` has all that these analyzers need to know of an engine, and ``scheduler_queue`` the
requests that endpoint pickers hold back. Each joins several expressions by ``or`` and tells them apart by the label
``signal``. Other analyzers decide without them. No series that a pod exposes can make them fail: series are aggregated
before anything is matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wva.collect.promql import namespace_matcher

MAX_NAMESPACES_PER_CHUNK: Final = 100

KV_CACHE_USAGE: Final = "kv_cache_usage"
QUEUE_LENGTH: Final = "queue_length"
KV_CACHE_USAGE_TIMESTAMP: Final = "kv_cache_usage_timestamp"
QUEUE_LENGTH_TIMESTAMP: Final = "queue_length_timestamp"

ENGINE_SIGNALS: Final = "engine_signals"
SCHEDULER_QUEUE: Final = "scheduler_queue"

TIMESTAMP_QUERIES: Final = frozenset({KV_CACHE_USAGE_TIMESTAMP, QUEUE_LENGTH_TIMESTAMP})
"""The queries whose values are times of samples."""

_METRICS: Final = {
    KV_CACHE_USAGE: "vllm:kv_cache_usage_perc",
    QUEUE_LENGTH: "vllm:num_requests_waiting",
}
_GROUPING: Final = "max by (namespace, model_name, pod)"


_BY_POD: Final = "by (namespace, model_name, pod)"
_BY_ENGINE: Final = "by (namespace, model_name, pod, engine)"
_QUEUE_LABELS: Final = "by (namespace, model_name, target_model_name)"
_QUEUE_SERIES: Final = "by (namespace, pod, inference_pool, fairness_id, priority, model_name, target_model_name)"
"""All labels of the picker's series: what is scraped twice is counted once."""


class EngineSignal(StrEnum):
    """What ``engine_signals`` tells of a pod, as the label ``signal`` calls it."""

    CACHE_CONFIG = "cache_config"
    KV_USAGE = "kv_usage"
    WAITING = "waiting"
    RUNNING = "running"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    PREFIX_HIT_RATE = "prefix_hit_rate"
    SUCCESS_RATE = "success_rate"
    TIME_TO_FIRST_TOKEN = "time_to_first_token"  # noqa: S105 - no secret
    INTER_TOKEN_LATENCY = "inter_token_latency"  # noqa: S105 - no secret


class QueueSignal(StrEnum):
    """What ``scheduler_queue`` tells of a model, as the label ``signal`` calls it."""

    SIZE = "size"
    BYTES = "bytes"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL text under the name that metrics and logs call it by.

    Without the answer to one that is ``essential`` nothing can be said of its namespaces.
    """

    name: str
    text: str
    essential: bool = True


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
    matchers = namespace_matcher(namespaces)
    values = [Query(name, f"{_GROUPING} (max_over_time({metric}{matchers}[1m]))") for name, metric in _METRICS.items()]
    timestamps = [
        Query(f"{name}_timestamp", f"{_GROUPING} (timestamp({metric}{matchers}))") for name, metric in _METRICS.items()
    ]
    return (*values, *timestamps)


def engine_queries(namespaces: Sequence[str]) -> tuple[Query, ...]:
    """Return the two queries about the engines and pickers of some namespaces; raises as ``chunk_queries`` does."""
    matchers = namespace_matcher(namespaces)
    return (
        Query(ENGINE_SIGNALS, _joined(_engine_expressions(matchers)), essential=False),
        Query(SCHEDULER_QUEUE, _joined(_queue_expressions(matchers)), essential=False),
    )


def _engine_expressions(matchers: str) -> dict[str, str]:
    """Return the expressions of ``engine_signals``. A mean over nothing is no series: a NaN would say it is broken.

    ``rate`` divides by its whole window, so it is too low for a series that began within it: after a restart of
    Prometheus all replicas would seem half as busy as they are. Such a series tells its last step (``irate``).

    vLLM 0.11 names the counters of the prefix cache ``..._total`` and the time between tokens
    ``inter_token_latency``; before, both had other names.
    """

    def per_engine(aggregation: str, metric: str) -> str:
        return f"{aggregation} {_BY_POD} (max {_BY_ENGINE} ({metric}{matchers}))"

    def rate(*metrics: str, window: str) -> str:
        return " or ".join(f"sum {_BY_POD} (rate({metric}{matchers}[{window}]))" for metric in metrics)

    def ratio(part: Sequence[str], whole: Sequence[str], window: str) -> str:
        return f"({rate(*part, window=window)}) / (({rate(*whole, window=window)}) > 0)"

    def average(*histograms: str, window: str) -> str:
        return ratio([f"{name}_sum" for name in histograms], [f"{name}_count" for name in histograms], window)

    success = f"vllm:request_success_total{matchers}"
    hits, queries = "vllm:prefix_cache_hits", "vllm:prefix_cache_queries"
    return {
        EngineSignal.CACHE_CONFIG: (
            "max by (namespace, model_name, pod, engine, num_gpu_blocks, block_size)"
            f" (vllm:cache_config_info{matchers})"
        ),
        EngineSignal.KV_USAGE: per_engine("avg", "vllm:kv_cache_usage_perc"),
        EngineSignal.WAITING: per_engine("sum", "vllm:num_requests_waiting"),
        EngineSignal.RUNNING: per_engine("sum", "vllm:num_requests_running"),
        EngineSignal.INPUT_TOKENS: average("vllm:request_prompt_tokens", window="5m"),
        EngineSignal.OUTPUT_TOKENS: average("vllm:request_generation_tokens", window="5m"),
        EngineSignal.PREFIX_HIT_RATE: ratio((f"{hits}_total", hits), (f"{queries}_total", queries), "5m"),
        EngineSignal.SUCCESS_RATE: (
            f"sum {_BY_POD} (max by (namespace, model_name, pod, engine, finished_reason)"
            f" ((rate({success}[1m]) and {success} offset 1m) or irate({success}[1m])))"
        ),
        EngineSignal.TIME_TO_FIRST_TOKEN: average("vllm:time_to_first_token_seconds", window="1m"),
        EngineSignal.INTER_TOKEN_LATENCY: average(
            "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds", window="1m"
        ),
    }


def _queue_expressions(matchers: str) -> dict[str, str]:
    """Return the expressions of ``scheduler_queue``; its time is that of the oldest sample in it."""
    size, size_bytes = (f"inference_extension_flow_control_queue_{name}{matchers}" for name in ("size", "bytes"))
    return {
        QueueSignal.SIZE: f"sum {_QUEUE_LABELS} (max {_QUEUE_SERIES} ({size}))",
        QueueSignal.BYTES: f"sum {_QUEUE_LABELS} (max {_QUEUE_SERIES} ({size_bytes}))",
        QueueSignal.TIMESTAMP: f"min {_QUEUE_LABELS} (timestamp({size}))",
    }


def _joined(expressions: Mapping[str, str]) -> str:
    return " or ".join(f'label_replace({text}, "signal", "{signal}", "", "")' for signal, text in expressions.items())
