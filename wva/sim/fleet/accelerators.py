"""Step times and KV cache of vLLM engines, derived from data sheets of GPUs and from configurations of models.

``engine_parameters`` is a roofline model with a few efficiencies. Reading weights and KV cache takes their bytes over
the memory bandwidth, computing takes its operations over the peak of the tensor cores, and each layer and each sequence
has a fixed price: launching kernels, scheduling, sampling. The shares of its peaks that a GPU reaches and these prices
are fitted to published measurements of vLLM. ``docs/physics.md`` has the source of every number here, the measurements,
and the error of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar

from wva.sim.fleet.parameters import EngineParameters


class Precision(StrEnum):
    """How the weights are stored, and in which precision they are multiplied."""

    BF16 = "bf16"
    FP8 = "fp8"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. The first group comes from data sheets, the second one is fitted.

    Attributes:
        memory_bytes: memory that the driver reports.
        bandwidth: bytes per second to and from that memory.
        bf16_flops: dense operations per second in bfloat16.
        fp8_flops: the same in 8 bit; None if the tensor cores have no such type.
        link: bytes per second to the other GPUs of a replica, in one direction.
        price: list price of an hour on demand, US dollars; an order of magnitude.
        max_num_batched_tokens: what vLLM's server takes as its default on this GPU: more on one with at least 70 GiB,
            unless it is an A100.
        max_num_seqs: the same.
        memory_share: share of the bandwidth that reading reaches.
        compute_share: share of the peak that computing prompts reaches.
        layer_seconds: fixed price of a layer in each step.
        all_reduce_seconds: fixed price of one of the two all-reduces of a layer.
        sequence_seconds: fixed price of a sequence in each step.

    """

    memory_bytes: float
    bandwidth: float
    bf16_flops: float
    fp8_flops: float | None
    link: float
    price: float
    max_num_batched_tokens: int
    max_num_seqs: int
    memory_share: float
    compute_share: float
    layer_seconds: float
    all_reduce_seconds: float
    sequence_seconds: float


@dataclass(frozen=True, slots=True)
class DecoderModel:
    """A dense decoder with grouped-query attention.

    ``parameters`` counts all weights, the embeddings included; ``tied`` tells that input and output share them.
    """

    parameters: float
    vocabulary: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int = 128
    tied: bool = False

    @property
    def embedding(self) -> float:
        """Weights of the table of input embeddings, of which a step reads a few rows only."""
        return float(self.vocabulary * self.hidden)

    @property
    def head(self) -> float:
        """Weights of the output layer. Quantized checkpoints keep it, and the embeddings, in 16 bit."""
        return self.embedding

    @property
    def body(self) -> float:
        """Weights of the layers."""
        return self.parameters - self.embedding - (0.0 if self.tied else self.head)


_GIB: Final = 2.0**30

MEMORY_UTILIZATION: Final = 0.9
"""vLLM's default for ``gpu_memory_utilization``."""

OVERHEAD_BYTES: Final = 3.0 * _GIB
"""Memory of a GPU that goes to activations (2.4 GiB), CUDA graphs (0.5 GiB) and libraries (0.2 GiB)."""

LINK_SHARE: Final = 0.7
"""Share of the link's speed that large all-reduces reach. Assumed."""

ATTENTION_SHARE: Final = 0.4
"""Share of the 16-bit peak that attention over a prompt reaches. Assumed; it matters beyond some thousand tokens."""

EXPOSED_COMPUTE: Final = 0.29
"""Share of a decoded token's computing that reading the weights does not hide."""

FP8_LAYER_FACTOR: Final = 1.55
"""By how much quantizing activations makes the fixed price of a layer higher."""

_BLOCK_SIZE: Final = 16
_LAYER_SECONDS: Final = 56e-6
_SEQUENCE_SECONDS: Final = 4e-6

GPUS: Final[Mapping[str, Gpu]] = MappingProxyType(
    {
        "H100": Gpu(
            memory_bytes=79.2 * _GIB, bandwidth=3.35e12, bf16_flops=989e12, fp8_flops=1979e12, link=450e9, price=3.3,
            max_num_batched_tokens=8192, max_num_seqs=1024, memory_share=0.90, compute_share=0.55,
            layer_seconds=_LAYER_SECONDS, all_reduce_seconds=9e-6, sequence_seconds=_SEQUENCE_SECONDS,
        ),
        "H200": Gpu(
            memory_bytes=139.8 * _GIB, bandwidth=4.8e12, bf16_flops=989e12, fp8_flops=1979e12, link=450e9, price=3.8,
            max_num_batched_tokens=8192, max_num_seqs=1024, memory_share=0.90, compute_share=0.55,
            layer_seconds=_LAYER_SECONDS, all_reduce_seconds=9e-6, sequence_seconds=_SEQUENCE_SECONDS,
        ),
        "A100": Gpu(
            memory_bytes=79.2 * _GIB, bandwidth=2.039e12, bf16_flops=312e12, fp8_flops=None, link=300e9, price=1.8,
            max_num_batched_tokens=2048, max_num_seqs=256, memory_share=0.84, compute_share=0.65,
            layer_seconds=_LAYER_SECONDS, all_reduce_seconds=16e-6, sequence_seconds=_SEQUENCE_SECONDS,
        ),
        "A100-40GB": Gpu(
            memory_bytes=39.4 * _GIB, bandwidth=1.555e12, bf16_flops=312e12, fp8_flops=None, link=300e9, price=1.3,
            max_num_batched_tokens=2048, max_num_seqs=256, memory_share=0.84, compute_share=0.65,
            layer_seconds=_LAYER_SECONDS, all_reduce_seconds=16e-6, sequence_seconds=_SEQUENCE_SECONDS,
        ),
        "L40S": Gpu(
            memory_bytes=44.4 * _GIB, bandwidth=0.864e12, bf16_flops=362e12, fp8_flops=733e12, link=32e9, price=1.9,
            max_num_batched_tokens=2048, max_num_seqs=256, memory_share=0.83, compute_share=0.62,
            layer_seconds=_LAYER_SECONDS, all_reduce_seconds=30e-6, sequence_seconds=_SEQUENCE_SECONDS,
        ),
        "L40": Gpu(
            memory_bytes=44.4 * _GIB, bandwidth=0.864e12, bf16_flops=181e12, fp8_flops=362e12, link=32e9, price=1.0,
            max_num_batched_tokens=2048, max_num_seqs=256, memory_share=0.83, compute_share=0.62,
            layer_seconds=_LAYER_SECONDS, all_reduce_seconds=30e-6, sequence_seconds=_SEQUENCE_SECONDS,
        ),
        "MI300X": Gpu(
            memory_bytes=191.7 * _GIB, bandwidth=5.3e12, bf16_flops=1307e12, fp8_flops=2615e12, link=448e9, price=3.0,
            max_num_batched_tokens=8192, max_num_seqs=1024, memory_share=0.81, compute_share=0.35, layer_seconds=43e-6,
            all_reduce_seconds=9e-6, sequence_seconds=70e-6,
        ),
    },
)  # fmt: skip
"""GPUs by name. H200 and A100-40GB have the fitted numbers of their sisters, L40 has those of L40S."""

MODELS: Final[Mapping[str, DecoderModel]] = MappingProxyType(
    {
        "Llama-3.1-8B": DecoderModel(8.03e9, 128256, layers=32, hidden=4096, heads=32, kv_heads=8),
        "Llama-3.1-70B": DecoderModel(70.55e9, 128256, layers=80, hidden=8192, heads=64, kv_heads=8),
        "Qwen3-32B": DecoderModel(32.76e9, 151936, layers=64, hidden=5120, heads=64, kv_heads=8),
        "Qwen3-8B": DecoderModel(8.19e9, 151936, layers=36, hidden=4096, heads=32, kv_heads=8),
        "Qwen2.5-32B": DecoderModel(32.76e9, 152064, layers=64, hidden=5120, heads=40, kv_heads=8),
        "Llama-2-7B": DecoderModel(6.74e9, 32000, layers=32, hidden=4096, heads=32, kv_heads=32),
        "Llama-2-70B": DecoderModel(68.98e9, 32000, layers=80, hidden=8192, heads=64, kv_heads=8),
        "CodeLlama-34B": DecoderModel(33.74e9, 32000, layers=48, hidden=8192, heads=64, kv_heads=8),
        "Granite-3.1-8B": DecoderModel(8.17e9, 49155, layers=40, hidden=4096, heads=32, kv_heads=8, tied=True),
    },
)
"""Models by name: the ones to simulate, and those that published measurements are about."""


def engine_parameters(
    gpu: Gpu | str,
    model: DecoderModel | str,
    *,
    tensor_parallel: int = 1,
    precision: Precision = Precision.BF16,
    kv_bytes: int = 2,
    max_model_len: int = 8192,
) -> EngineParameters:
    """Return the parameters of a vLLM engine that runs a model on ``tensor_parallel`` GPUs, with vLLM's defaults.

    ``kv_bytes`` is the size of a number in the KV cache.

    Raises:
        ValueError: no GPU or model has this name, the GPU has no such precision, or the weights leave too little memory
            for a sequence of ``max_model_len`` tokens.

    """
    gpu = _known(gpu, GPUS, "GPU") if isinstance(gpu, str) else gpu
    model = _known(model, MODELS, "model") if isinstance(model, str) else model
    peak = gpu.fp8_flops if precision is Precision.FP8 else gpu.bf16_flops
    if peak is None:
        raise ValueError(f"this GPU does not multiply in {precision}")
    weight_bytes = 1 if precision is Precision.FP8 else 2
    read_bytes = (model.body * weight_bytes + model.head * 2) / tensor_parallel
    held_bytes = read_bytes + (0.0 if model.tied else model.embedding * 2 / tensor_parallel)
    kv_bytes_per_token = 2 * model.layers * max(1.0, model.kv_heads / tensor_parallel) * model.head_size * kv_bytes
    layer_seconds = gpu.layer_seconds * (FP8_LAYER_FACTOR if precision is Precision.FP8 else 1.0)
    if tensor_parallel > 1:
        layer_seconds += 2 * gpu.all_reduce_seconds
    exchanged_bytes = 4 * model.layers * model.hidden * 2 * (tensor_parallel - 1) / tensor_parallel
    computing_seconds = 2 * (model.body + model.head) / tensor_parallel / peak
    free_bytes = gpu.memory_bytes * MEMORY_UTILIZATION - held_bytes - OVERHEAD_BYTES
    return EngineParameters(
        alpha_seconds=model.layers * layer_seconds + read_bytes / (gpu.bandwidth * gpu.memory_share),
        beta_seconds_per_sequence=gpu.sequence_seconds + EXPOSED_COMPUTE * computing_seconds,
        prefill_seconds_per_token=computing_seconds / gpu.compute_share + exchanged_bytes / (gpu.link * LINK_SHARE),
        kv_read_seconds_per_token=kv_bytes_per_token / (gpu.bandwidth * gpu.memory_share),
        attention_seconds_per_token_pair=4
        * model.heads
        * model.head_size
        * model.layers
        / tensor_parallel
        / (gpu.bf16_flops * ATTENTION_SHARE),
        num_gpu_blocks=max(0, int(free_bytes / (kv_bytes_per_token * _BLOCK_SIZE))),
        block_size=_BLOCK_SIZE,
        max_num_seqs=gpu.max_num_seqs,
        max_num_batched_tokens=gpu.max_num_batched_tokens,
        max_model_len=max_model_len,
    )


KnownT = TypeVar("KnownT", Gpu, DecoderModel)


def _known(name: str, known: Mapping[str, KnownT], kind: str) -> KnownT:
    value = known.get(name)
    if value is None:
        raise ValueError(f"no {kind} is called {name!r}; there are {', '.join(known)}")
    return value
