"""Published measurements of vLLM, and the loads under which they were made.

``CURRENT`` are those of vLLM's V1 engine, the default since version 0.8. The efficiencies in ``accelerators`` are
fitted to them, and to the latencies of single requests in ``EARLIER``, which are of the V0 engine. V0's throughput
with many sequences was bound by its Python code and is not fitted. ``docs/physics.md`` shows all of them beside what
the engine here gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from wva.model.records import replace
from wva.sim.fleet.accelerators import Precision, engine_parameters
from wva.sim.fleet.measurement import OfferedLoad, measure
from wva.sim.fleet.parameters import EngineParameters

_TOKENS_OF_LONGEST: Final = 12288
"""Longest sequence in a measurement."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What was measured: a model on some GPUs, with the limits of the scheduler; None is vLLM's default."""

    gpu: str
    model: str
    tensor_parallel: int = 1
    precision: Precision = Precision.BF16
    kv_bytes: int = 2
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One published figure.

    ``figure`` is the name of its attribute in ``LoadOutcome``; ``source`` is a key of SOURCES.
    """

    source: str
    setup: Setup
    load: OfferedLoad
    figure: str
    value: float


def data_sheet_engine(setup: Setup) -> EngineParameters:
    """Return the engine that data sheet and model give for a setup."""
    return engine_parameters(
        setup.gpu,
        setup.model,
        tensor_parallel=setup.tensor_parallel,
        precision=setup.precision,
        kv_bytes=setup.kv_bytes,
        max_model_len=_TOKENS_OF_LONGEST,
    )


def simulated(measurement: Measurement, engine: Callable[[Setup], EngineParameters] = data_sheet_engine) -> float:
    """Return the figure that the engine gives for a measurement."""
    setup = measurement.setup
    parameters = engine(setup)
    sequences = setup.max_num_seqs or parameters.max_num_seqs
    tokens = setup.max_num_batched_tokens or parameters.max_num_batched_tokens
    limited = replace(parameters, max_num_seqs=sequences, max_num_batched_tokens=max(tokens, sequences))
    return float(getattr(measure(limited, measurement.load), measurement.figure))


SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "amd": "https://github.com/ROCm/vllm/tree/main/docs/dev-docker",
        "qwen3guard": "https://github.com/vllm-project/recipes/pull/431",
        "blis": "https://github.com/inference-sim/training",
        "mlperf": "https://www.redhat.com/en/blog/efficient-and-reproducible-llm-inference-red-hat-mlperf-inference-v51-results",
        "sweep-a100": "https://johnmusgrave.com/p/vllm-throughput-latency-sweep-on",
        "sweep-h100": "https://yobitelcomm.github.io/bench/recipes/concurrency-sweep/",
        "card-8b": "https://huggingface.co/RedHatAI/DeepSeek-R1-Distill-Llama-8B-quantized.w8a8",
        "card-70b": "https://huggingface.co/RedHatAI/DeepSeek-R1-Distill-Llama-70B-FP8-dynamic",
        "card-32b": "https://huggingface.co/RedHatAI/DeepSeek-R1-Distill-Qwen-32B-FP8-dynamic",
        "card-granite": "https://huggingface.co/RedHatAI/granite-3.1-8b-instruct-FP8-dynamic",
        "ci-h200": "https://buildkite.com/vllm/performance-benchmark/builds/9515",
        "ci-a100": "https://buildkite.com/vllm/performance-benchmark/builds/9523",
    }
)
"""Where each measurement was published."""


# -- vLLM's V1 engine -------------------------------------------------------------------------------------------------

_AMD: Final = Setup("MI300X", "Llama-3.1-70B", 8, Precision.FP8, max_num_batched_tokens=131072)
_AMD_LATENCIES: Final[Mapping[tuple[int, int], Sequence[tuple[int, float]]]] = MappingProxyType(
    {
        (128, 2048): (
            (1, 17.236), (2, 18.057), (4, 18.450), (8, 19.677), (16, 22.072), (32, 24.932), (64, 33.287), (128, 46.484),
        ),
        (2048, 2048): (
            (1, 17.500), (2, 18.055), (4, 18.858), (8, 20.161), (16, 22.347), (32, 25.966), (64, 35.324), (128, 52.394),
        ),
    }
)  # fmt: skip
"""Seconds for a batch, by tokens of prompt and answer: vLLM 0.10 on eight GPUs."""

_AMD_THROUGHPUTS: Final = (
    (128, 2048, 3200, 13383.3), (128, 4096, 1500, 11203.6), (500, 2000, 2000, 10963.3), (2048, 2048, 1500, 7560.9),
)  # fmt: skip
"""Prompt, answer, requests that come at once, and tokens per second."""

_QWEN3GUARD: Final = Setup("MI300X", "Qwen3-8B")
_QWEN3GUARD_LOAD: Final = OfferedLoad(1024, 1024, requests=100, users=32)

_BLIS_70B: Final = Setup("H100", "Llama-2-70B", 4, max_num_seqs=128, max_num_batched_tokens=2048)
_BLIS_34B: Final = Setup("H100", "CodeLlama-34B", 2, max_num_seqs=128, max_num_batched_tokens=2048)
_BLIS_7B: Final = Setup("H100", "Llama-2-7B", 1, max_num_seqs=128, max_num_batched_tokens=2048)
_BLIS: Final = (
    (_BLIS_70B, 575, 248, 8.0, 4.678399, 0.057389),
    (_BLIS_70B, 575, 248, 20.0, 5.577488, 0.121275),
    (_BLIS_70B, 592, 247, 5.0, 4.332861, 0.053403),
    (_BLIS_70B, 592, 247, 10.0, 4.741816, 0.056679),
    (_BLIS_34B, 592, 247, 5.0, 3.610361, 0.044458),
    (_BLIS_34B, 592, 247, 10.0, 3.779106, 0.046142),
    (_BLIS_7B, 592, 247, 5.0, 1.810322, 0.025037),
    (_BLIS_7B, 575, 248, 8.0, 2.057600, 0.027109),
    (_BLIS_7B, 575, 248, 20.0, 4.158150, 0.051854),
)
"""Prompt, answer, rate, mean latency and mean time to the first token: vLLM 0.15.1, with 44 or 45 different prompts.

The time per token is what lies between, over all tokens but the first. The benchmark's own figure counts each token
twice, as two chunks of the stream.
"""

_MLPERF: Final = (("H100", 5777.0), ("L40S", 1642.0))
"""GPU and tokens of answers per second, offline, with prompts of 778 and answers of 73 tokens: vLLM 0.10."""


def _current() -> Iterator[Measurement]:
    for (prompt, output), batches in _AMD_LATENCIES.items():
        for requests, seconds in batches:
            yield Measurement("amd", _AMD, OfferedLoad(prompt, output, requests=requests), "latency", seconds)
    for prompt, output, requests, tokens in _AMD_THROUGHPUTS:
        setup = replace(_AMD, max_num_seqs=requests, kv_bytes=1)
        yield Measurement(
            "amd", setup, OfferedLoad(prompt, output, requests=requests), "output_tokens_per_second", tokens
        )
    for figure, value in (
        ("tpot", 0.00942), ("ttft", 0.64502), ("ttft_p99", 1.08467), ("output_tokens_per_second", 2701.39),
    ):  # fmt: skip
        yield Measurement("qwen3guard", _QWEN3GUARD, _QWEN3GUARD_LOAD, figure, value)
    for setup, prompt, output, rate, latency, ttft in _BLIS:
        load = OfferedLoad(prompt, output, requests=int(200 * rate), rate=rate, prompts=45)
        yield Measurement("blis", setup, load, "tpot", (latency - ttft) / (output - 1))
        yield Measurement("blis", setup, load, "ttft", ttft)
    load = OfferedLoad(1083, 1448, requests=400, users=128, prompts=23)
    yield Measurement("blis", _BLIS_70B, load, "tpot", (161.729851 - 118.995821) / 1441)
    for gpu, tokens in _MLPERF:
        setup = Setup(gpu, "Llama-3.1-8B", 1, Precision.FP8, max_num_seqs=512, max_num_batched_tokens=8192)
        yield Measurement("mlperf", setup, OfferedLoad(778, 73, requests=3000), "output_tokens_per_second", tokens)
    a100 = Setup("A100-40GB", "Llama-3.1-8B")
    yield Measurement(
        "sweep-a100", a100, OfferedLoad(1024, 128, requests=20, users=1), "output_tokens_per_second", 75.0
    )
    yield Measurement(
        "sweep-a100", a100, OfferedLoad(1024, 128, requests=160, users=8), "output_tokens_per_second", 495.0
    )
    yield Measurement("sweep-h100", Setup("H100", "Llama-3.1-8B"), OfferedLoad(64, 128), "tpot", 0.00648)


CURRENT: Final[tuple[Measurement, ...]] = tuple(_current())
"""Measurements of the V1 engine."""


# -- vLLM's V0 engine -------------------------------------------------------------------------------------------------

LENGTHS: Final = (
    (256, 128), (512, 256), (768, 128), (1024, 128), (256, 1024), (1024, 1024), (4096, 512), (10240, 1536),
)  # fmt: skip
"""Tokens of prompt and answer in the model cards' benchmark."""

_FP8: Final = Precision.FP8
_CARDS: Final[Sequence[tuple[str, Setup, Sequence[float | None]]]] = (
    ("card-8b", Setup("A100", "Llama-3.1-8B"), (1.5, 3.1, 1.6, 1.6, 12.1, 12.4, 6.5, 25.6)),
    ("card-8b", Setup("H100", "Llama-3.1-8B"), (1.0, 1.9, 1.0, 1.0, 7.6, 7.7, 4.1, 16.3)),
    ("card-8b", Setup("H100", "Llama-3.1-8B", 1, _FP8), (0.7, 1.4, 0.7, 0.7, 5.7, 5.8, 3.2, 22.5)),
    ("card-32b", Setup("A100", "Qwen2.5-32B"), (5.6, 11.1, 5.7, 5.8, 44.0, 44.7, 23.6, 73.7)),
    ("card-32b", Setup("H100", "Qwen2.5-32B"), (3.3, 6.7, 3.4, 3.4, 26.6, 26.9, 14.3, 47.8)),
    ("card-32b", Setup("H100", "Qwen2.5-32B", 1, _FP8), (2.2, 4.3, 2.2, 2.3, 17.3, 17.5, 9.5, 33.4)),
    ("card-70b", Setup("A100", "Llama-3.1-70B", 2), (6.4, 12.8, 6.6, 6.7, 50.4, 50.8, 27.0, 85.4)),
    ("card-70b", Setup("H100", "Llama-3.1-70B", 2), (3.8, 7.6, 3.9, 3.9, 30.0, 30.4, 16.1, 56.5)),
    ("card-70b", Setup("H100", "Llama-3.1-70B", 2, _FP8), (2.7, 5.3, 2.7, 2.8, 21.1, 21.4, 11.5, 47.2)),
    ("card-granite", Setup("L40", "Granite-3.1-8B"), (3.2, 6.3, 3.2, 3.2, 25.1, 25.3, 13.4, None)),
    ("card-granite", Setup("L40", "Granite-3.1-8B", 1, _FP8), (2.1, 4.2, 2.2, 2.2, 16.8, 17.1, 9.3, None)),
)
"""Seconds for a single request of each of LENGTHS: vLLM 0.7.2, the last two 0.6.6."""

_CARD_RATES: Final[Sequence[tuple[str, Setup, Sequence[float | None]]]] = (
    ("card-8b", Setup("A100", "Llama-3.1-8B"), (24.5, 11.3, 13.0, 10.5, 3.5, 2.5, 1.7, 0.3)),
    ("card-8b", Setup("H100", "Llama-3.1-8B"), (49.0, 22.6, 28.3, 22.9, 7.2, 5.1, 3.6, 0.6)),
    ("card-8b", Setup("H100", "Llama-3.1-8B", 1, _FP8), (57.1, 26.0, 34.5, 28.7, 7.2, 5.4, 4.3, 0.7)),
    ("card-32b", Setup("A100", "Qwen2.5-32B", 2), (12.9, 5.8, 6.3, 5.1, 2.0, 1.5, 0.9, 0.2)),
    ("card-32b", Setup("H100", "Qwen2.5-32B", 2), (25.5, 12.5, 14.0, 11.3, 3.6, 2.7, 1.9, 0.4)),
    ("card-32b", Setup("H100", "Qwen2.5-32B", 2, _FP8), (46.7, 20.3, 23.3, 18.4, 5.3, 3.7, 2.6, 0.5)),
    ("card-70b", Setup("A100", "Llama-3.1-70B", 4), (10.41, 5.10, 5.50, 4.36, 1.49, 1.21, 0.89, 0.19)),
    ("card-70b", Setup("H100", "Llama-3.1-70B", 4), (14.04, 10.85, 12.25, 9.93, 3.68, 2.82, 1.81, 0.35)),
    ("card-70b", Setup("H100", "Llama-3.1-70B", 4, _FP8), (41.44, 19.64, 21.03, 16.72, 6.01, 4.46, 2.55, 0.49)),
    ("card-granite", Setup("L40", "Granite-3.1-8B"), (15.5, 6.0, 7.8, 6.2, 1.4, 1.1, 0.7, None)),
    ("card-granite", Setup("L40", "Granite-3.1-8B", 1, _FP8), (15.3, 6.9, 7.4, 5.9, 2.1, 1.3, 0.8, None)),
)
"""Requests per second at most, of each of LENGTHS."""

_CI: Final = (
    ("ci-a100", Setup("A100", "Llama-3.1-8B"), 1.57927),
    ("ci-a100", Setup("A100", "Llama-3.1-70B", 4), 3.99059),
    ("ci-h200", Setup("H200", "Llama-3.1-8B"), 0.833421),
    ("ci-h200", Setup("H200", "Llama-3.1-70B", 4), 2.07753),
)
"""Seconds for eight requests at once of 32 and 128 tokens: taken for V0."""

_RUSH_SECONDS: Final = 360.0
"""How long each of these loads lasts."""

RUSH_LENGTHS: Final = ((512, 256), (1024, 128), (256, 1024), (4096, 512))
"""Those of LENGTHS for which the throughput is simulated: it takes long."""


def _latencies() -> Iterator[Measurement]:
    for source, setup, values in _CARDS:
        limited = replace(setup, max_num_seqs=256, max_num_batched_tokens=2048)
        for (prompt, output), value in zip(LENGTHS, values, strict=True):
            if value is not None:
                yield Measurement(source, limited, OfferedLoad(prompt, output), "latency", value)
    for source, setup, value in _CI:
        yield Measurement(source, setup, OfferedLoad(32, 128, requests=8), "latency", value)


def _rates() -> Iterator[Measurement]:
    for source, setup, values in _CARD_RATES:
        limited = replace(setup, max_num_seqs=256, max_num_batched_tokens=2048)
        for (prompt, output), value in zip(LENGTHS, values, strict=True):
            if value is not None and (prompt, output) in RUSH_LENGTHS:
                requests = 512 + int(2.5 * value * _RUSH_SECONDS)
                load = OfferedLoad(prompt, output, requests=requests, seconds=_RUSH_SECONDS)
                yield Measurement(source, limited, load, "requests_per_second", value)


EARLIER_LATENCIES: Final[tuple[Measurement, ...]] = tuple(_latencies())
"""Measurements of the V0 engine with one request or a few."""

EARLIER_RATES: Final[tuple[Measurement, ...]] = tuple(_rates())
"""Measurements of the V0 engine under as much load as it takes."""
