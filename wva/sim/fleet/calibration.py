"""The balance of a replica at a request rate: for choosing the loads of scenarios.

With requests of fixed length, n sequences in the batch and rate r, a decode step takes alpha + beta * n, and kv_read
for each token that the n sequences have in the KV cache: the prompt and, on average, half of the answer. Each request
interrupts all others for its prefill, in which each token attends to half of the prompt on average. A request stays for
``output`` steps, stretched by the share of time that prefills take, so by Little's law
n = r * output * step / (1 - r * prefill). That is linear in r: the rate follows from the batch, and the batch from the
KV cache usage. The model has no queue in front of a full cache, so ``saturation`` is the rate at which the queue
starts to grow without bound. ``capacity`` finds by simulation the rate at which users are still content.

Illustrative presets, prompt 512 and answer 256 tokens (requests per second and replica; ITL in milliseconds;
``tests/sim/fleet/test_calibration.py`` holds the table and compares it with the simulation):

========  ======  ======  ======  ==========  ======  ======  ======  ==========
engine    KV 0.3  KV 0.5  KV 0.7  saturation  ITL .3  ITL .5  ITL .7  saturation
========  ======  ======  ======  ==========  ======  ======  ======  ==========
H100        13.2    17.1    19.5        21.7      18      23      28          36
A100         8.1    10.3    11.7        13.0      29      38      47          60
MI300X      15.7    18.6    20.3        21.7      23      32      41          54
L40S         1.4     2.0     2.5         3.1      43      49      55          64
========  ======  ======  ======  ==========  ======  ======  ======  ==========
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from wva.sim.fleet.columns import WATERMARK
from wva.sim.fleet.parameters import EngineParameters


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A replica in balance.

    Attributes:
        requests_per_second: arrivals that keep it there.
        sequences: mean batch.
        kv_cache_usage: share of blocks in use.
        inter_token_latency_seconds: mean gap between tokens, prefills of others included.

    """

    requests_per_second: float
    sequences: float
    kv_cache_usage: float
    inter_token_latency_seconds: float


def step_seconds(parameters: EngineParameters, sequences: float, *, prompt_tokens: int, output_tokens: int) -> float:
    """Return how long a decode step takes with so many sequences, half through their answers on average."""
    read_seconds = parameters.kv_read_seconds_per_token * (prompt_tokens + output_tokens / 2)
    return parameters.alpha_seconds + (parameters.beta_seconds_per_sequence + read_seconds) * sequences


def prompt_seconds(parameters: EngineParameters, prompt_tokens: int) -> float:
    """Return how long the tokens of a prompt take: each attends to half of the prompt on average."""
    token_seconds = (
        parameters.prefill_seconds_per_token + parameters.attention_seconds_per_token_pair * prompt_tokens / 2
    )
    return token_seconds * prompt_tokens


def alone_seconds(parameters: EngineParameters, prompt_tokens: int) -> float:
    """Return the time to the first token of a request that has the engine to itself."""
    chunks = ceil(prompt_tokens / parameters.max_num_batched_tokens)
    step = parameters.alpha_seconds + parameters.beta_seconds_per_sequence
    return prompt_seconds(parameters, prompt_tokens) + chunks * step


def operating_point(
    parameters: EngineParameters, *, kv_cache_usage: float, prompt_tokens: int = 512, output_tokens: int = 256
) -> OperatingPoint:
    """Return the balance in which a replica uses this share of its KV cache, or all its slots if those bind first."""
    resident_tokens = prompt_tokens + (output_tokens + parameters.block_size) / 2  # the last block is half empty
    by_memory = kv_cache_usage * parameters.kv_cache_tokens / resident_tokens
    sequences = min(by_memory, float(parameters.max_num_seqs))
    step = step_seconds(parameters, sequences, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    prefill_seconds = prompt_seconds(parameters, prompt_tokens) + parameters.beta_seconds_per_sequence
    rate = sequences / (output_tokens * step + sequences * prefill_seconds)
    return OperatingPoint(
        requests_per_second=rate,
        sequences=sequences,
        kv_cache_usage=sequences * resident_tokens / parameters.kv_cache_tokens,
        inter_token_latency_seconds=step / (1 - rate * prefill_seconds),
    )


def saturation(parameters: EngineParameters, *, prompt_tokens: int = 512, output_tokens: int = 256) -> OperatingPoint:
    """Return the highest rate a replica carries: cache full up to the watermark, or all slots taken."""
    return operating_point(
        parameters,
        kv_cache_usage=1 - WATERMARK,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
    )
