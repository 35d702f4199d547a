"""The formulas of docs/token-analyzer.md#the-formulas, one function for each, in tokens.

They take and return plain numbers, so that tests can compare them with the recorded cases of v0.5.1. The callers,
``tokens`` and ``tokens_learning``, decide what a missing number means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wva.decide.amounts import AMPLE
from wva.model.capacity import CapacityBasis, CapacityRecord, LearnedFrom, LengthBucket
from wva.model.policy import SaturationPolicy
from wva.model.vllm_parameters import VllmParameters

BYTES_PER_TOKEN: Final = 4
SHORT_ANSWER: Final = 100.0
MEDIUM_ANSWER: Final = 500.0


@dataclass(frozen=True, slots=True)
class Workload:
    """A mean request: prompt and answer in tokens, and the share of the prompt found in the prefix cache."""

    input_tokens: float = 0.0
    output_tokens: float = 0.0
    hit_rate: float = 0.0


def memory_bound(kv_tokens: int, policy: SaturationPolicy) -> int:
    """Return k1: the tokens that may be in the KV cache before it counts as full."""
    return int(kv_tokens * policy.kv_cache_threshold)


def compute_bound(queue: float, tokens_in_use: float, policy: SaturationPolicy) -> int:
    """Return k2 as seen now: the tokens in use while requests queue, 0 when this says nothing about computation."""
    return int(tokens_in_use) if queue >= policy.queue_length_threshold else 0


def effective(k1: int, *, observed: int = 0, history: int = 0, derived: int = 0) -> tuple[int, CapacityBasis]:
    """Return the smaller of k1 and k2, k2 being the first that is known of the three; and which one it is."""
    bases = (CapacityBasis.OBSERVED, CapacityBasis.HISTORY, CapacityBasis.DERIVED)
    for k2, basis in zip((observed, history, derived), bases, strict=True):
        if k2 > 0:
            return (k2, basis) if k2 < k1 else (k1, CapacityBasis.KV_CACHE)
    return k1, CapacityBasis.KV_CACHE


def derived_capacity(parameters: VllmParameters | None, workload: Workload) -> int:
    """Return what the arguments of an engine let it carry of a workload; 0 when they do not tell.

    At a time B tokens are computed per step and S sequences run; on the average half of an answer is there.
    """
    output = workload.output_tokens
    if parameters is None or output <= 0:
        return 0
    running = parameters.batched_tokens * output / (workload.input_tokens + output)
    sequences = min(running, float(parameters.max_num_seqs))
    return max(0, int(sequences * (workload.input_tokens + output / 2)))


def bucket_of(output_tokens: float) -> LengthBucket:
    """Return which answers are equally long."""
    if output_tokens < SHORT_ANSWER:
        return LengthBucket.SHORT
    return LengthBucket.MEDIUM if output_tokens < MEDIUM_ANSWER else LengthBucket.LONG


def median(values: Sequence[int]) -> int:
    """Return the median; of an even number the mean of the middle two, rounded down. 0 without values."""
    ordered, middle = sorted(values), len(values) // 2
    if not ordered:
        return 0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def charge(requests: float, workload: Workload, *, size_bytes: float = 0.0) -> float:
    """Return the tokens that waiting requests will take: prompts not found in the prefix cache, and answers.

    ``size_bytes`` is the size of all of them together; the larger of the two guesses at their prompts counts.
    """
    prompts = max(size_bytes / BYTES_PER_TOKEN, requests * workload.input_tokens)
    return prompts * (1 - workload.hit_rate) + requests * workload.output_tokens


def idle_capacity(
    record: CapacityRecord | None, *, workload: Workload, policy: SaturationPolicy, sibling: CapacityRecord | None
) -> tuple[int, CapacityBasis]:
    """Return what a replica of a variant without usable replicas would carry, from its record.

    ``sibling`` is the record of another variant with compatible engines, None when there is none.
    """
    if record is None:
        return 0, CapacityBasis.UNKNOWN
    if record.effective <= 0:
        return (0, CapacityBasis.UNKNOWN) if sibling is None else (sibling.effective, CapacityBasis.BORROWED)
    derived = derived_capacity(record.parameters, workload)
    if record.learned_from is LearnedFrom.LIVE or derived <= 0:
        return record.effective, CapacityBasis.RECORD
    bounds = [(derived, CapacityBasis.DERIVED)]
    if record.kv_tokens > 0:
        bounds.append((memory_bound(record.kv_tokens, policy), CapacityBasis.KV_CACHE))
    if sibling is not None and sibling.learned_from is LearnedFrom.LIVE and sibling.effective > 0:
        bounds.append((sibling.effective, CapacityBasis.BORROWED))
    return min(bounds, key=lambda bound: bound[0])


def missing(*, demand: float, anticipated: float, policy: SaturationPolicy) -> float:
    """Return what is missing to stay below U, given the replicas there are and those on their way; U = 0: nothing."""
    threshold = policy.scale_up_threshold
    return max(0.0, min(demand / threshold, AMPLE) - anticipated) if threshold > 0 else 0.0


def left_over(*, demand: float, supply: float, policy: SaturationPolicy) -> float:
    """Return what could go of what serves before the utilization reaches D; D = 0: nothing."""
    boundary = policy.scale_down_boundary
    return max(0.0, supply - min(demand / boundary, AMPLE)) if boundary > 0 else 0.0


def mean(values: Sequence[float]) -> float | None:
    """Return the plain mean, None without values; the order does not matter."""
    return math.fsum(values) / len(values) if values else None
