"""The range queries about one model: one for each signal.

All input from outside is put into quoted strings. The series of a pod is the sum over its engines. A series that is
scraped twice counts once.
"""

from __future__ import annotations

from typing import Final

from wva.collect.queries import picker_gauge, quote, validate_namespace

VISIBLE_MODELS: Final = "count by (namespace, model_name) (vllm:num_requests_running)"

_BY_ENGINE: Final = "max by (pod, engine)"
_MEANS: Final = {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting"}
_RATES: Final = {
    "prompt_sum": ("vllm:request_prompt_tokens_sum",),
    "prompt_count": ("vllm:request_prompt_tokens_count",),
    "output_sum": ("vllm:request_generation_tokens_sum",),
    "output_count": ("vllm:request_generation_tokens_count",),
    "ttft_sum": ("vllm:time_to_first_token_seconds_sum",),
    "ttft_count": ("vllm:time_to_first_token_seconds_count",),
    "itl_sum": ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
    "itl_count": ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"),
    "generated": ("vllm:generation_tokens_total",),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits"),
}
"""Counters by signal. The second name is that of older engines."""
_BUCKETS: Final = {
    "ttft_bucket": "vllm:time_to_first_token_seconds_bucket",
    "prompt_bucket": "vllm:request_prompt_tokens_bucket",
    "output_bucket": "vllm:request_generation_tokens_bucket",
}
_OF_VARIANTS: Final = {
    "current": "wva_current_replicas",
    "desired": "wva_desired_replicas",
    "cost": "wva_variant_cost",
    "maximum": "wva_maximum_replicas",
}

BY_POD: Final = (*_MEANS, "kv_usage", "success", *_RATES)
"""Signals with a series for each pod."""
BY_BOUND: Final = tuple(_BUCKETS)
"""Signals with a series for each bound ``le`` of a histogram."""
BY_VARIANT: Final = tuple(_OF_VARIANTS)
"""Signals that the controller publishes, with a series for each variant of the namespace."""
CACHE: Final = "cache"
QUEUE: Final = "queue"
INTERVAL: Final = "interval"


def queries(namespace: str, model_id: str, *, window_seconds: float) -> dict[str, str]:
    """Return the PromQL of each signal. Rates and means look back by the window.

    Raises ValueError for an invalid namespace or model id.
    """
    quoted_namespace = quote(validate_namespace(namespace))
    model = f"namespace={quoted_namespace},model_name={quote(model_id)}"
    window = f"[{window_seconds:.0f}s]"

    def per_pod(aggregation: str, text: str) -> str:
        return f"{aggregation} by (pod) ({_BY_ENGINE} ({text}))"

    def rates(names: tuple[str, ...]) -> str:
        return " or ".join(per_pod("sum", f"rate({name}{{{model}}}{window})") for name in names)

    def of_variants(name: str) -> str:
        selectors = (f"{name}{{{label}={quoted_namespace}}}" for label in ("exported_namespace", "namespace"))
        return f"max by (variant_name, accelerator_type) ({' or '.join(selectors)})"

    success = f"rate(vllm:request_success_total{{{model}}}{window})"
    return {
        **{signal: per_pod("sum", f"avg_over_time({name}{{{model}}}{window})") for signal, name in _MEANS.items()},
        "kv_usage": per_pod("avg", f"avg_over_time(vllm:kv_cache_usage_perc{{{model}}}{window})"),
        "success": f"sum by (pod) (max by (pod, engine, finished_reason) ({success}))",
        **{signal: rates(names) for signal, names in _RATES.items()},
        **{signal: f"sum by (le) (rate({name}{{{model}}}{window}))" for signal, name in _BUCKETS.items()},
        **{signal: of_variants(name) for signal, name in _OF_VARIANTS.items()},
        CACHE: (
            "max by (pod, kv_cache_size_tokens, num_gpu_blocks, block_size)"
            f" (vllm:cache_config_info{{namespace={quoted_namespace}}})"
        ),
        QUEUE: f"sum ({picker_gauge('flow_control_queue_size', f'{{{model}}}')})",
        INTERVAL: "max (wva_cycle_interval_seconds)",
    }
