"""What one simulated vLLM engine can do: step times, KV cache size and scheduler limits.

The step time follows the linear model of the queueing analyzer: ``alpha + beta * sequences in the step``, plus a
price per prompt token computed in it. The presets are illustrative, not measurements: a dense model of about 30B
parameters in 8 bit on one card, with weights read once per step (alpha follows memory bandwidth) and the remaining
memory given to the KV cache. They are chosen such that the cards differ by plausible factors and that saturation shows
both in the KV cache and in the queue. ``calibration`` says which request rates they carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class EngineParameters:
    """Limits and step times of one engine, named after vLLM's own arguments where it has them.

    Attributes:
        alpha_seconds: duration of a step that computes nothing: reading the weights.
        beta_seconds_per_sequence: what each sequence in the step adds.
        prefill_seconds_per_token: what each prompt token computed in the step adds.
        kv_read_seconds_per_token: what each token in the KV cache of a sequence that decodes adds: attention reads it.
        attention_seconds_per_token_pair: what each pair of a prompt token computed and a token before it adds.
        num_gpu_blocks: KV cache blocks of the engine.
        block_size: tokens per KV block.
        max_num_seqs: most sequences running at once.
        max_num_batched_tokens: token budget of a step; at least ``max_num_seqs``, so that decoding never waits.
        max_model_len: most tokens of prompt and answer together; one sequence of this length fits into the KV cache.

    """

    alpha_seconds: float
    beta_seconds_per_sequence: float
    prefill_seconds_per_token: float
    num_gpu_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 8192
    kv_read_seconds_per_token: float = 0.0
    attention_seconds_per_token_pair: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what vLLM itself refuses, and step times that would stop virtual time.

        Raises:
            ValueError: naming the first rule that is broken.

        """
        rules = (
            (self.alpha_seconds > 0, "alpha_seconds must be positive"),
            (self.beta_seconds_per_sequence >= 0, "beta_seconds_per_sequence must not be negative"),
            (self.prefill_seconds_per_token >= 0, "prefill_seconds_per_token must not be negative"),
            (self.kv_read_seconds_per_token >= 0, "kv_read_seconds_per_token must not be negative"),
            (self.attention_seconds_per_token_pair >= 0, "attention_seconds_per_token_pair must not be negative"),
            (self.block_size >= 1, "block_size must be at least 1"),
            (self.max_num_seqs >= 1, "max_num_seqs must be at least 1"),
            (self.max_num_batched_tokens >= self.max_num_seqs, "max_num_batched_tokens is below max_num_seqs"),
            (self.max_model_len >= 2, "max_model_len must hold a prompt and an answer token"),  # noqa: PLR2004 - one each
            (self.kv_cache_tokens >= self.max_model_len, "a sequence of max_model_len does not fit into the KV cache"),
        )
        for holds, message in rules:
            if not holds:
                raise ValueError(message)

    @property
    def kv_cache_tokens(self) -> int:
        """Tokens the KV cache holds."""
        return self.num_gpu_blocks * self.block_size

    def concurrent_sequences(self, *, tokens_per_sequence: float) -> float:
        """Return how many sequences of this mean resident size run at once: bounded by slots or by KV cache."""
        return min(float(self.max_num_seqs), self.kv_cache_tokens / max(tokens_per_sequence, 1.0))

    def at_speed(self, factor: float) -> EngineParameters:
        """Return an engine of the same size that does everything ``factor`` times as fast; it is positive."""
        return replace(
            self,
            alpha_seconds=self.alpha_seconds / factor,
            beta_seconds_per_sequence=self.beta_seconds_per_sequence / factor,
            prefill_seconds_per_token=self.prefill_seconds_per_token / factor,
            kv_read_seconds_per_token=self.kv_read_seconds_per_token / factor,
            attention_seconds_per_token_pair=self.attention_seconds_per_token_pair / factor,
        )


PRESETS: Final[Mapping[str, EngineParameters]] = MappingProxyType(
    {
        "H100": EngineParameters(
            alpha_seconds=0.010,
            beta_seconds_per_sequence=0.00004,
            prefill_seconds_per_token=0.000045,
            num_gpu_blocks=8192,
        ),
        "A100": EngineParameters(
            alpha_seconds=0.016,
            beta_seconds_per_sequence=0.00006,
            prefill_seconds_per_token=0.00008,
            num_gpu_blocks=8192,
            max_num_batched_tokens=2048,
        ),
        "MI300X": EngineParameters(
            alpha_seconds=0.009,
            beta_seconds_per_sequence=0.00005,
            prefill_seconds_per_token=0.00005,
            num_gpu_blocks=12288,
            max_num_seqs=384,
        ),
        "L40S": EngineParameters(
            alpha_seconds=0.034,
            beta_seconds_per_sequence=0.00020,
            prefill_seconds_per_token=0.00020,
            num_gpu_blocks=2048,
            max_num_seqs=128,
            max_num_batched_tokens=2048,
        ),
    },
)
"""Illustrative engines by accelerator name."""
