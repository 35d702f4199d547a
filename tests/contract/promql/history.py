"""The contract's history: one page with explicit timestamps, from which every expected number follows.

Times are offsets in seconds from a base that the runner chooses. A real server refuses samples that are more than some
minutes old.
"""

from __future__ import annotations

from tests.contract.promql.scope import scoped

STEP_SECONDS = 15
END_SECONDS = 600


def _every_step(value, *, start: int = 0, end: int = END_SECONDS) -> dict[int, str]:
    """Return samples every 15 s; ``value`` is a text or a function of the offset."""
    times = range(start, end + 1, STEP_SECONDS)
    return {time: value if isinstance(value, str) else str(value(time)) for time in times}


def _series(metric: str, samples: dict[int, str], **labels: str) -> tuple[str, dict[int, str]]:
    pairs = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{pairs}}}", samples


A0 = {"namespace": "team-a", "model_name": "llama", "pod": "a-0", "engine": "0"}
A1 = {"namespace": "team-a", "model_name": "llama", "pod": "a-1", "engine": "0"}
A1_SECOND = {**A1, "engine": "1"}
B0 = {"namespace": "team-b", "model_name": "qwen", "pod": "b-0", "engine": "0"}
_QUEUE_SIZE = "inference_extension_flow_control_queue_size"
_EPP = {
    "namespace": "team-a",
    "pod": "epp-0",
    "inference_pool": "pool",
    "fairness_id": "default-flow",
    "priority": "0",
    "model_name": "mistral",
    "target_model_name": "mistral",
}
_CONFIG = {"block_size": "16", "engine": "0"}
_TEN_SECONDS_A_STEP = [
    ("0.1", lambda time: time // 15),
    ("1", lambda time: time // 15 * 3),
    ("10", lambda time: time // 15 * 4),
    ("+Inf", lambda time: time // 15 * 4),
]

HISTORY = [
    # Gauges: one with a peak at 525 s, one that is always NaN, one that is NaN once, one that ends at 200 s.
    _series("vllm:kv_cache_usage_perc", {**_every_step("0.4"), 525: "0.9"}, **A0),
    _series("vllm:kv_cache_usage_perc", _every_step("0.25"), **A1),
    _series("vllm:kv_cache_usage_perc", _every_step("NaN"), **A1_SECOND),
    _series("vllm:kv_cache_usage_perc", {**_every_step("0.5", end=195), 200: "0.75"}, **B0),
    _series("vllm:num_requests_waiting", {**_every_step(lambda time: time // 60), 600: "NaN"}, **A0),
    _series("vllm:num_requests_waiting", _every_step("2"), **B0),
    # As in real vLLM, this metric has no model_name, and one pod has two engines.
    _series(
        "vllm:cache_config_info", _every_step("1"), namespace="team-a", pod="a-0", num_gpu_blocks="1000", **_CONFIG
    ),
    _series(
        "vllm:cache_config_info", _every_step("1"), namespace="team-a", pod="a-1", num_gpu_blocks="2000", **_CONFIG
    ),
    _series(
        "vllm:cache_config_info",
        _every_step("1"),
        namespace="team-a",
        pod="a-1",
        num_gpu_blocks="2000",
        block_size="16",
        engine="1",
    ),
    # a-0 computes 30 tokens and 0.2 requests per second; a-1 is idle, so its mean is 0/0.
    _series("vllm:request_generation_tokens_sum", _every_step(lambda time: 30 * time), **A0),
    _series("vllm:request_generation_tokens_count", _every_step(lambda time: time / 5), **A0),
    _series("vllm:request_generation_tokens_sum", _every_step("500"), **A1),
    _series("vllm:request_generation_tokens_count", _every_step("10"), **A1),
    _series("vllm:request_prompt_tokens_sum", _every_step(lambda time: 100 * time), **A0),
    _series("vllm:request_prompt_tokens_count", _every_step(lambda time: time / 5), **A0),
    _series("vllm:prefix_cache_hits_total", _every_step(lambda time: 3 * time), **A0),
    _series("vllm:prefix_cache_queries_total", _every_step(lambda time: 4 * time), **A0),
    # Counters: one request per second with a restart between 300 s and 315 s; one that begins at 540 s; a constant one.
    _series("vllm:request_success_total", _every_step(lambda time: time if time <= 300 else time - 315), **A0),
    _series("vllm:request_success_total", _every_step(lambda time: 1000 + time - 540, start=540), **A1),
    _series("vllm:request_success_total", _every_step("7"), **B0),
    # Aborted requests; counters of one engine that two jobs scrape, and of a second engine; hits under two names.
    _series("vllm:request_success_total", _every_step("3"), finished_reason="abort", **B0),
    _series("vllm:prompt_tokens_total", _every_step(lambda time: 100 * time), **A0),
    _series("vllm:prompt_tokens_total", _every_step("700"), **A1),
    _series("vllm:prompt_tokens_total", _every_step("700"), job="contract-job-twice", **A1),
    _series("vllm:prompt_tokens_total", _every_step("800"), **A1_SECOND),
    _series("vllm:prompt_tokens_cached_total", _every_step("100"), **A1),
    _series("vllm:prefix_cache_hits_total", _every_step("90"), **A1),
    # Histogram: each step adds one request up to 0.1 s, two up to 1 s, and one up to 10 s.
    *(
        _series("vllm:time_to_first_token_seconds_bucket", _every_step(count), le=bound, **A0)
        for bound, count in _TEN_SECONDS_A_STEP
    ),
    # Latency sums and counts under their present names and, for a-1, under an old name.
    _series("vllm:time_to_first_token_seconds_sum", _every_step(lambda time: time * 0.1), **A0),
    _series("vllm:time_to_first_token_seconds_count", _every_step(lambda time: time / 5), **A0),
    _series("vllm:inter_token_latency_seconds_sum", _every_step(lambda time: time * 0.6), **A0),
    _series("vllm:inter_token_latency_seconds_count", _every_step(lambda time: time * 30), **A0),
    _series("vllm:time_per_output_token_seconds_sum", _every_step(lambda time: time * 0.3), **A1),
    _series("vllm:time_per_output_token_seconds_count", _every_step(lambda time: time * 10), **A1),
    _series("vllm:num_requests_running", _every_step("5"), **A0),
    _series("vllm:num_requests_running", _every_step("3"), **A1),
    _series("vllm:num_requests_running", _every_step("4"), **A1_SECOND),
    # Pickers of team-a: two jobs scrape one of them, one is silent since 585 s, and some requests have an alias.
    _series(_QUEUE_SIZE, _every_step("4"), **_EPP),
    _series(_QUEUE_SIZE, _every_step("4"), job="contract-job-twice", **_EPP),
    _series(_QUEUE_SIZE, _every_step("2", end=585), **{**_EPP, "pod": "epp-1"}),
    _series(_QUEUE_SIZE, _every_step("1"), **{**_EPP, "model_name": "alias"}),
    _series("inference_extension_flow_control_queue_bytes", _every_step("4000"), **_EPP),
    # A picker of llm-d-router, which shows each number under two names.
    *(
        _series(f"{prefix}_flow_control_queue_{name}", _every_step(value), **{**_EPP, "pod": "epp-2"})
        for prefix in ("llm_d_epp", "inference_extension")
        for name, value in (("size", "3"), ("bytes", "500"))
    ),
    # The scheduler's queue: one model has its target name, the other only its own name.
    _series(
        "inference_extension_flow_control_queue_size", _every_step("4"), model_name="alias", target_model_name="llama"
    ),
    _series(
        "inference_extension_flow_control_queue_size", _every_step("5"), model_name="other", target_model_name="llama"
    ),
    _series("inference_extension_flow_control_queue_size", _every_step("6"), model_name="qwen", target_model_name=""),
    _series("inference_extension_flow_control_queue_bytes", _every_step("1e+21"), model_name="qwen"),
    _series("contract_pod_info", _every_step("1"), namespace="team-a", pod="a-0", node="n-0"),
    _series("contract_pod_info", _every_step("1"), namespace="team-a", pod="a-1", node="n-1"),
    # The large numbers cancel each other out; their sum is the small one.
    _series("contract_cancelling", {0: "1e+100", 15: "1", 30: "-1e+100"}, **A0),
    _series("contract_text", _every_step("1"), namespace="team-a", text="two\\nlines"),
    # A counter that ends at 300 s, one that begins then, buckets with falling counts and with negative bounds.
    _series("contract_ended_total", _every_step(lambda time: time, end=300), **A0),
    _series("contract_young_total", _every_step(lambda time: 2 + (time - 300) // 15 * 10, start=300), **A0),
    *(
        _series("contract_bucket", _every_step(count), namespace="team-a", kind=kind, le=bound)
        for kind, buckets in {
            "falling": {"1": "5", "2": "3", "3": "6", "+Inf": "6"},
            "negative": {"-1": "4", "1": "6", "+Inf": "8"},
        }.items()
        for bound, count in buckets.items()
    ),
]


def history_page(base_seconds: int, suffix: str) -> str:
    """Return ``HISTORY`` in the text format with absolute times in milliseconds."""
    rows = [
        f"{series} {samples[time]} {(base_seconds + time) * 1000}"
        for series, samples in HISTORY
        for time in sorted(samples)
    ]
    return scoped("\n".join(rows) + "\n", suffix)
