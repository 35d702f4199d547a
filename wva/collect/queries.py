"""Every PromQL text of a cycle, in one place.

There are four queries for each chunk of at most 100 namespaces and 4,000 pods, for any number of models in them:
the two signals, and for each the time of its last sample. The time is needed because an instant query stamps its
results with the evaluation time, and ``max_over_time`` shows a series for a minute after its last sample.

A signal is the highest value of the last minute over the engines of a pod, as in v0.5.1. It is also grouped by model
and namespace, since one answer has all of them.

More queries are sent for each chunk in which the analyzer of some model needs them, restricted to the namespaces of
such models. ``engine_signals`` has what the token analyzer and the queueing model need to know of an engine,
``engine_counters`` what the demand analyzer does, and ``scheduler_queue`` the requests that endpoint pickers hold back.
Where one namespace has more pods than 4,000, the first two ask about parts of them.
Each joins several expressions by ``or`` and tells them apart by the label ``signal``. Other analyzers decide without
them. No series that a pod exposes can make them fail: series are aggregated before anything is matched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wva.collect.promql import namespace_matcher, quote, regex_literal

MAX_NAMESPACES_PER_CHUNK: Final = 100
MAX_PODS_PER_CHUNK: Final = 4_000
"""An answer with the counters of so many pods has 56,000 series and less than 16 MiB (``answers``)."""

KV_CACHE_USAGE: Final = "kv_cache_usage"
QUEUE_LENGTH: Final = "queue_length"
KV_CACHE_USAGE_TIMESTAMP: Final = "kv_cache_usage_timestamp"
QUEUE_LENGTH_TIMESTAMP: Final = "queue_length_timestamp"

ENGINE_SIGNALS: Final = "engine_signals"
ENGINE_COUNTERS: Final = "engine_counters"
SCHEDULER_QUEUE: Final = "scheduler_queue"

TIMESTAMP_QUERIES: Final = frozenset({KV_CACHE_USAGE_TIMESTAMP, QUEUE_LENGTH_TIMESTAMP})
"""The queries whose values are times of samples."""

_METRICS: Final = {
    KV_CACHE_USAGE: "vllm:kv_cache_usage_perc",
    QUEUE_LENGTH: "vllm:num_requests_waiting",
}
_GROUPING: Final = "max by (namespace, model_name, pod)"


_BY_POD: Final = "by (namespace, model_name, pod)"
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


class CounterSignal(StrEnum):
    """What ``engine_counters`` tells of a pod, as the label ``signal`` calls it: counters, and what they are read with.

    All of it is of one scrape, whose time is ``TIME``.
    """

    TIME = "time"
    CACHE_CONFIG = "cache_config"
    KV_USAGE = "kv_usage"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    ABORTED = "aborted"
    PROMPT_TOKENS = "prompt_tokens"
    CACHED_TOKENS = "cached_tokens"
    PROMPTS = "prompts"
    ANSWER_TOKENS = "answer_tokens"
    ANSWERS = "answers"
    GAP_SECONDS = "gap_seconds"
    GAPS = "gaps"


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


def chunks(namespaces: Iterable[str], pods: Mapping[str, int] = {}) -> list[tuple[str, ...]]:
    """Return the namespaces sorted, without repetition, in groups of at most 100 and with at most 4,000 ``pods``.

    A namespace with more pods is a group of its own.
    """
    found: list[list[str]] = []
    count = MAX_PODS_PER_CHUNK + 1
    for each in sorted(set(namespaces)):
        count += pods.get(each, 0)
        if count > MAX_PODS_PER_CHUNK or len(found[-1]) >= MAX_NAMESPACES_PER_CHUNK:
            found.append([])
            count = pods.get(each, 0)
        found[-1].append(each)
    return [tuple(group) for group in found]


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


def engine_signals(namespaces: Sequence[str], pods: str = "") -> Query:
    """Return the query about the engines of some namespaces; raises as ``chunk_queries`` does."""
    return Query(ENGINE_SIGNALS, _joined(_engine_expressions(_matchers(namespaces, pods))), essential=False)


def engine_counters(namespaces: Sequence[str], pods: str = "") -> Query:
    """Return the query about the counters of engines of some namespaces; raises as ``chunk_queries`` does."""
    return Query(ENGINE_COUNTERS, _joined(_counter_expressions(_matchers(namespaces, pods))), essential=False)


def scheduler_queue(namespaces: Sequence[str]) -> Query:
    """Return the query about the endpoint pickers of some namespaces; raises as ``chunk_queries`` does."""
    return Query(SCHEDULER_QUEUE, _joined(_queue_expressions(namespace_matcher(namespaces))), essential=False)


ANALYZER_QUERIES: Final[Mapping[str, Callable[..., Query]]] = {
    ENGINE_SIGNALS: engine_signals,
    ENGINE_COUNTERS: engine_counters,
    SCHEDULER_QUEUE: scheduler_queue,
}
"""By name, the queries that are sent only where an analyzer wants them: functions of namespaces."""
BY_PODS: Final = frozenset({ENGINE_SIGNALS, ENGINE_COUNTERS})
"""Those that have several series for each pod, and so may ask about ``parts`` of the pods: their second argument."""


def parts(pods: Iterable[str]) -> tuple[str, ...]:
    """Return matchers that ask about all pods in parts of at most 4,000 of these, by the last character of their names.

    That is random in the names that Kubernetes makes. The last part has all that the others have not. Of fewer pods
    there is one part, with an empty matcher.
    """
    ends = Counter(name[-1:] for name in pods)
    if ends.total() <= MAX_PODS_PER_CHUNK:
        return ("",)
    groups, count = [""], 0
    for end in sorted(ends):
        if groups[-1] and count + ends[end] > MAX_PODS_PER_CHUNK:
            groups.append("")
            count = 0
        groups[-1] += regex_literal(end)
        count += ends[end]
    *first, _ = groups
    others = f"pod!~{quote(f'.*[{str().join(first)}]')}" if first else ""
    return (*[f"pod=~{quote(f'.*[{group}]')}" for group in first], others)


def _matchers(namespaces: Sequence[str], pods: str) -> str:
    found = namespace_matcher(namespaces)
    return f"{found[:-1]},{pods}}}" if pods else found


def _per_engine(aggregation: str, metric: str, *more_labels: str) -> str:
    """Return an aggregate of pods over their engines; what is scraped twice is counted once."""
    engines = f"by ({', '.join(('namespace', 'model_name', 'pod', 'engine', *more_labels))})"
    return f"{aggregation} {_BY_POD} (max {engines} ({metric}))"


def _cache_config(matchers: str) -> str:
    return f"max by (namespace, model_name, pod, engine, num_gpu_blocks, block_size) (vllm:cache_config_info{matchers})"


def _gauges(matchers: str) -> dict[str, str]:
    """Return the expressions of what an engine shows of its state, as of the last scrape."""
    return {
        EngineSignal.KV_USAGE: _per_engine("avg", f"vllm:kv_cache_usage_perc{matchers}"),
        EngineSignal.WAITING: _per_engine("sum", f"vllm:num_requests_waiting{matchers}"),
        EngineSignal.RUNNING: _per_engine("sum", f"vllm:num_requests_running{matchers}"),
    }


def _engine_expressions(matchers: str) -> dict[str, str]:
    """Return the expressions of ``engine_signals``. A mean over nothing is no series: a NaN would say it is broken.

    ``rate`` divides by its whole window, so it is too low for a series that began within it: after a restart of
    Prometheus all replicas would seem half as busy as they are. Such a series tells its last step (``irate``).

    vLLM 0.11 names the counters of the prefix cache ``..._total`` and the time between tokens
    ``inter_token_latency``; before, both had other names.
    """

    def rate(*metrics: str, window: str) -> str:
        return " or ".join(f"sum {_BY_POD} (rate({metric}{matchers}[{window}]))" for metric in metrics)

    def ratio(part: Sequence[str], whole: Sequence[str], window: str) -> str:
        return f"({rate(*part, window=window)}) / (({rate(*whole, window=window)}) > 0)"

    def average(*histograms: str, window: str) -> str:
        return ratio([f"{name}_sum" for name in histograms], [f"{name}_count" for name in histograms], window)

    success = f"vllm:request_success_total{matchers}"
    hits, queries = "vllm:prefix_cache_hits", "vllm:prefix_cache_queries"
    return {
        EngineSignal.CACHE_CONFIG: _cache_config(matchers),
        **_gauges(matchers),
        EngineSignal.INPUT_TOKENS: average("vllm:request_prompt_tokens", window="5m"),
        EngineSignal.OUTPUT_TOKENS: average("vllm:request_generation_tokens", window="5m"),
        EngineSignal.PREFIX_HIT_RATE: ratio((f"{hits}_total", hits), (f"{queries}_total", queries), "5m"),
        EngineSignal.SUCCESS_RATE: _per_engine(
            "sum", f"(rate({success}[1m]) and {success} offset 1m) or irate({success}[1m])", "finished_reason"
        ),
        EngineSignal.TIME_TO_FIRST_TOKEN: average("vllm:time_to_first_token_seconds", window="1m"),
        EngineSignal.INTER_TOKEN_LATENCY: average(
            "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds", window="1m"
        ),
    }


def _counter_expressions(matchers: str) -> dict[str, str]:
    """Return the expressions of ``engine_counters``: values as they were scraped, since a rate would hide the scrape.

    Of several names of a counter the first is taken that a pod has: the time between tokens had another name before
    vLLM 0.11, and the tokens found in the prefix cache are counted together with those of the prompt
    (``prompt_tokens_cached``) since https://github.com/vllm-project/vllm/pull/33290.
    """

    def total(*metrics: str) -> str:
        return " or ".join(_per_engine("sum", f"{metric}{matchers}") for metric in metrics)

    def finished(more: str) -> str:
        selector = f"vllm:request_success_total{matchers[:-1]}{more}}}"
        return _per_engine("sum", selector, "finished_reason")

    answers, gaps = "vllm:request_generation_tokens", "vllm:inter_token_latency_seconds"
    gaps_before, hits = "vllm:time_per_output_token_seconds", "vllm:prefix_cache_hits"
    return {
        CounterSignal.TIME: f"max {_BY_POD} (timestamp(vllm:num_requests_running{matchers}))",
        CounterSignal.CACHE_CONFIG: _cache_config(matchers),
        **_gauges(matchers),
        CounterSignal.FINISHED: finished(""),
        CounterSignal.ABORTED: finished(',finished_reason="abort"'),
        CounterSignal.PROMPT_TOKENS: total("vllm:prompt_tokens_total"),
        CounterSignal.CACHED_TOKENS: total("vllm:prompt_tokens_cached_total", f"{hits}_total", hits),
        CounterSignal.PROMPTS: total("vllm:time_to_first_token_seconds_count"),
        CounterSignal.ANSWER_TOKENS: total(f"{answers}_sum"),
        CounterSignal.ANSWERS: total(f"{answers}_count"),
        CounterSignal.GAP_SECONDS: total(f"{gaps}_sum", f"{gaps_before}_sum"),
        CounterSignal.GAPS: total(f"{gaps}_count", f"{gaps_before}_count"),
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
