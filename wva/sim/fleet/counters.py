"""What an engine counts over its life: the numbers behind the counters and histograms of vLLM's metrics page."""

from __future__ import annotations

from typing import Final

from wva.sim.fleet.histogram import Histogram, one_two_five
from wva.sim.fleet.requests import Sequence

TTFT_BOUNDS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
ITL_BOUNDS: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
LATENCY_BOUNDS: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip

FINISH_REASONS: Final = ("stop", "length", "abort")
"""vLLM exposes all of them from the start, with zeros."""


class EngineCounters:
    """Monotone counts of one engine; they start at zero with its process, as vLLM's do."""

    __slots__ = (
        "e2e_latency",
        "finished",
        "generation_tokens",
        "inter_token_latency",
        "preemptions",
        "prefix_cache_hits",
        "prefix_cache_queries",
        "prompt_tokens",
        "request_decode_time",
        "request_generation_tokens",
        "request_prefill_time",
        "request_prompt_tokens",
        "request_queue_time",
        "steps",
        "submitted",
        "time_to_first_token",
    )

    def __init__(self, *, max_model_len: int) -> None:
        """Start at zero; token histograms reach up to ``max_model_len``."""
        self.submitted = 0
        self.steps = 0
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.preemptions = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.prefix_cache_queries = 0
        self.prefix_cache_hits = 0
        self.time_to_first_token = Histogram(TTFT_BOUNDS)
        self.inter_token_latency = Histogram(ITL_BOUNDS)
        self.e2e_latency = Histogram(LATENCY_BOUNDS)
        self.request_queue_time = Histogram(LATENCY_BOUNDS)
        self.request_prefill_time = Histogram(LATENCY_BOUNDS)
        self.request_decode_time = Histogram(LATENCY_BOUNDS)
        self.request_prompt_tokens = Histogram(one_two_five(max_model_len))
        self.request_generation_tokens = Histogram(one_two_five(max_model_len))

    def count_admission(self, sequence: Sequence) -> None:
        """Count the look-up of the prompt in the prefix cache, in tokens."""
        self.prefix_cache_queries += sequence.request.prompt_tokens
        self.prefix_cache_hits += sequence.prefill_tokens - sequence.prefill_remaining

    def count_first_token(self, sequence: Sequence, *, at_seconds: float) -> None:
        """Count the end of a first prefill. vLLM measures from when the engine got the request."""
        self.prompt_tokens += sequence.request.prompt_tokens
        self.time_to_first_token.observe(at_seconds - sequence.queued_seconds)

    def count_finish(self, sequence: Sequence, *, at_seconds: float, reason: str) -> None:
        """Count a finished sequence and where its time went."""
        self.finished[reason] += 1
        admitted = sequence.queued_seconds if sequence.admitted_seconds is None else sequence.admitted_seconds
        first = at_seconds if sequence.first_token_seconds is None else sequence.first_token_seconds
        self.e2e_latency.observe(at_seconds - sequence.queued_seconds)
        self.request_queue_time.observe(admitted - sequence.queued_seconds)
        self.request_prefill_time.observe(first - admitted)
        self.request_decode_time.observe(at_seconds - first)
        self.request_prompt_tokens.observe(sequence.request.prompt_tokens)
        self.request_generation_tokens.observe(sequence.output_tokens)
