"""The families of the metrics page of vLLM 0.32.0, in its order: names, types, labels, help texts and values.

All are here, also those of features that the simulated engine does not have: they are constant, as with a real engine
that does not use the feature. A sample is text with ``%s`` for each value that the engine counts; ``{target}`` stands
for ``model_name`` and the labels of the pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from wva.sim.fleet import counters
from wva.sim.fleet.engine import EngineSample

_ONE: Final = ("{engine},{target} %s",)
_ZERO: Final = ("{engine},{target} 0.0",)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One family of the page.

    Attributes:
        name: as in the header.
        kind: its type.
        text: its help.
        samples: the labels and the value of each, where it is no histogram.
        values: what to put for ``%s`` in them, in order.
        histogram: which one of ``EngineSample.histograms`` it shows, where it is one.

    """

    name: str
    kind: str
    text: str
    samples: tuple[str, ...] = ()
    values: Callable[[EngineSample], tuple[Any, ...]] = lambda _: ()
    histogram: int | None = None


def _gauge(name: str, text: str, value: Callable[[EngineSample], float]) -> MetricFamily:
    return MetricFamily(name, "gauge", text, _ONE, lambda sample: (float(value(sample)),))


def _counter(name: str, text: str, value: Callable[[EngineSample], int]) -> MetricFamily:
    return MetricFamily(name, "counter", text, _ONE, lambda sample: (float(value(sample)),))


def _unused(name: str, text: str, samples: tuple[str, ...] = _ZERO) -> MetricFamily:
    return MetricFamily(name, "counter", text, samples)


def _histogram(name: str, text: str, row: int) -> MetricFamily:
    return MetricFamily(name, "histogram", text, histogram=row)


FAMILIES: Final = (
    _unused("vllm:estimated_flops_per_gpu_total", "Estimated number of floating point operations per GPU."),
    _unused("vllm:estimated_read_bytes_per_gpu_total", "Estimated number of bytes read from memory per GPU."),
    _unused("vllm:estimated_write_bytes_per_gpu_total", "Estimated number of bytes written to memory per GPU."),
    _gauge("vllm:num_requests_running", "Number of requests in model execution batches.", lambda s: s.running),
    _gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", lambda s: s.waiting),
    MetricFamily(
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "Number of waiting requests by reason: for capacity, or deferred.",
        ('{engine},{target},reason="capacity" %s', '{engine},{target},reason="deferred" %s'),
        lambda s: (float(s.waiting - s.deferred), float(s.deferred)),
    ),
    MetricFamily(
        "vllm:engine_sleep_state",
        "gauge",
        "Engine sleep state: awake, or asleep with its weights offloaded or all discarded.",
        (
            '{engine},{target},sleep_state="awake" 1.0',
            '{engine},{target},sleep_state="weights_offloaded" 0.0',
            '{engine},{target},sleep_state="discard_all" 0.0',
        ),
    ),
    _gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", lambda s: s.kv_cache_usage),
    _counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in tokens.", lambda s: s.prefix_cache_queries),
    _counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in tokens.", lambda s: s.prefix_cache_hits),
    _counter(
        "vllm:external_prefix_cache_queries_total",
        "External prefix cache queries, in tokens.",
        lambda s: s.prompt_tokens_transferred,
    ),
    _counter(
        "vllm:external_prefix_cache_hits_total",
        "External prefix cache hits, in tokens.",
        lambda s: s.prompt_tokens_transferred,
    ),
    _unused("vllm:mm_cache_queries_total", "Multi-modal cache queries, in items."),
    _unused("vllm:mm_cache_hits_total", "Multi-modal cache hits, in items."),
    _counter("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", lambda s: s.preemptions),
    _counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", lambda s: s.prompt_tokens),
    MetricFamily(
        "vllm:prompt_tokens_by_source_total",
        "counter",
        "Number of prompt tokens by source.",
        (
            '{engine},{target},source="local_compute" %s',
            '{engine},{target},source="local_cache_hit" %s',
            '{engine},{target},source="external_kv_transfer" %s',
        ),
        lambda s: (
            float(s.prompt_tokens - s.prompt_tokens_cached - s.prompt_tokens_transferred),
            float(s.prompt_tokens_cached),
            float(s.prompt_tokens_transferred),
        ),
    ),
    _counter(
        "vllm:prompt_tokens_cached_total",
        "Number of cached prompt tokens.",
        lambda s: s.prompt_tokens_cached + s.prompt_tokens_transferred,
    ),
    MetricFamily(
        "vllm:prompt_tokens_cached_by_source_total",
        "counter",
        "Prefix cache hits by the cache tier that supplied them, in tokens, counted at admission.",
        (
            '{engine},{target},source="device" %s',
            '{engine},{target},source="host" 0.0',
            '{engine},{target},source="p2p" 0.0',
            '{engine},{target},source="disk" 0.0',
            '{engine},{target},source="external_unspecified" 0.0',
        ),
        lambda s: (float(s.prefix_cache_hits),),
    ),
    _counter("vllm:generation_tokens_total", "Number of generation tokens processed.", lambda s: s.generation_tokens),
    MetricFamily(
        "vllm:request_success_total",
        "counter",
        "Count of successfully processed requests.",
        (
            '{engine},finished_reason="stop",{target} %s',
            '{engine},finished_reason="length",{target} %s',
            '{engine},finished_reason="abort",{target} 0.0',
            '{engine},finished_reason="error",{target} 0.0',
            '{engine},finished_reason="repetition",{target} 0.0',
        ),
        lambda s: (float(s.finished["stop"]), float(s.finished["length"])),
    ),
    _unused(
        "vllm:admission_rejections_total",
        "Number of admission attempts rejected by a queue limit, by reason.",
        ('{target},reason="max_num_queued_reqs" 0.0', '{target},reason="max_num_queued_tokens" 0.0'),
    ),
    _histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.", counters.PROMPT_TOKENS),
    _histogram("vllm:request_generation_tokens", "Number of generation tokens processed.", counters.GENERATION_TOKENS),
    _histogram("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", counters.STEP_TOKENS),
    _histogram(  # the same as long as each request asks for one answer
        "vllm:request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        counters.GENERATION_TOKENS,
    ),
    _histogram("vllm:request_params_n", "Histogram of the n request parameter.", counters.WANTED_ANSWERS),
    _histogram(
        "vllm:request_params_max_tokens",
        "Histogram of the max_tokens request parameter.",
        counters.LONGEST_ANSWER,
    ),
    _histogram(
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        counters.TIME_TO_FIRST_TOKEN,
    ),
    _histogram(
        "vllm:inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        counters.INTER_TOKEN_LATENCY,
    ),
    _histogram(
        "vllm:request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        counters.TIME_PER_OUTPUT_TOKEN,
    ),
    _histogram(
        "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", counters.E2E_LATENCY
    ),
    _histogram(
        "vllm:request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        counters.QUEUE_TIME,
    ),
    _histogram(
        "vllm:request_inference_time_seconds",
        "Histogram of time spent in RUNNING phase for request.",
        counters.INFERENCE_TIME,
    ),
    _histogram(
        "vllm:request_prefill_time_seconds",
        "Histogram of time spent in PREFILL phase for request.",
        counters.PREFILL_TIME,
    ),
    _histogram(
        "vllm:request_decode_time_seconds",
        "Histogram of time spent in DECODE phase for request.",
        counters.DECODE_TIME,
    ),
    _histogram(
        "vllm:request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        counters.PREEMPTIONS,
    ),
    _histogram(
        "vllm:request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        counters.COMPUTED_TOKENS,
    ),
)
"""All but ``vllm:cache_config_info``, whose labels are the engine's settings."""
