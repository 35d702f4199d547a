"""What an engine counts over its life: the numbers behind the counters and histograms of vLLM's metrics page.

They start at zero with the engine's process, as vLLM's do. All are rows of columns (``columns.Columns``): an engine has
``COUNTS`` rows of ``counts``, and for each histogram one row of ``sums`` and its buckets in ``buckets``.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

COUNT_STOPPED: Final = 0
"""Finished because the answer was complete."""
COUNT_CUT: Final = 1
"""Finished because the answer reached its limit."""
COUNT_PREEMPTIONS: Final = 2
COUNT_PROMPT_TOKENS: Final = 3
COUNT_PROMPT_CACHED: Final = 4
"""Those of them that a prefix cache held: both are counted with the first token, hits when the prompt is admitted."""
COUNT_GENERATION_TOKENS: Final = 5
COUNT_PREFIX_QUERIES: Final = 6
"""Tokens looked up in the prefix cache."""
COUNT_PREFIX_HITS: Final = 7
COUNT_TRANSFERRED: Final = 8
"""Those of the prompt tokens whose KV cache came from another engine: counted with the first token."""
COUNTS: Final = 9

TIME_TO_FIRST_TOKEN: Final = 0
INTER_TOKEN_LATENCY: Final = 1
E2E_LATENCY: Final = 2
QUEUE_TIME: Final = 3
PREFILL_TIME: Final = 4
DECODE_TIME: Final = 5
PROMPT_TOKENS: Final = 6
GENERATION_TOKENS: Final = 7
INFERENCE_TIME: Final = 8
"""Of a request from its admission to its end."""
TIME_PER_OUTPUT_TOKEN: Final = 9
"""The mean inter-token latency of each request; 0 for an answer of one token."""
PREEMPTIONS: Final = 10
"""How often each request was preempted."""
COMPUTED_TOKENS: Final = 11
"""Prompt tokens of each request that no cache held."""
LONGEST_ANSWER: Final = 12
"""Of each request the most tokens it may get: where it was cut, or else the room that its prompt leaves."""
STEP_TOKENS: Final = 13
"""Tokens of each step: prompts that it completes and tokens that it generates."""
HISTOGRAMS: Final = 14
WANTED_ANSWERS: Final = HISTOGRAMS
"""How many answers each request asks for. It is always one, so this histogram follows from the others and has no row.
"""
TOKEN_HISTOGRAMS: Final = (PROMPT_TOKENS, GENERATION_TOKENS, COMPUTED_TOKENS, LONGEST_ANSWER)
"""Their bounds end with the longest sequence of the model."""

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

PREEMPTION_BOUNDS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
ANSWER_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0)
STEP_BOUNDS: Final = (1.0, *(float(8 << power) for power in range(12)))

FINISH_REASONS: Final = {"stop": COUNT_STOPPED, "length": COUNT_CUT}
"""The simulated engine's reasons. A request whose user gave up counts nowhere, as in vLLM (docs/metrics.md)."""


def one_two_five(limit: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50 ... up to ``limit``: vLLM's buckets for token counts."""
    bounds: list[float] = []
    power = 1
    while power <= limit:
        bounds.extend(float(mantissa * power) for mantissa in (1, 2, 5) if mantissa * power <= limit)
        power *= 10
    return tuple(bounds)


def bucket_bounds(longest: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the upper bounds of all histograms, one after the other, and where each begins, with the end of all.

    The bounds of tokens reach up to ``longest``.
    """
    tokens = one_two_five(longest)
    by_row = (
        TTFT_BOUNDS,
        ITL_BOUNDS,
        *(LATENCY_BOUNDS,) * 4,
        tokens,
        tokens,
        LATENCY_BOUNDS,
        ITL_BOUNDS,
        PREEMPTION_BOUNDS,
        tokens,
        tokens,
        STEP_BOUNDS,
    )
    return tuple(bound for bounds in by_row for bound in bounds), (0, *accumulate(len(bounds) for bounds in by_row))
