"""Step times of an engine from measured kernels, by the library aiconfigurator-core where it is installed.

The library knows how long the kernels of vLLM took on a GPU. ``with_kernels`` asks it for some steps and fits the
linear step of the simulated engine to them; memory and limits of the engine stay those of the data sheet. The library
is not a dependency: it has 82 MB, and needs half a minute for its tables.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, Final

from wva.model.records import replace
from wva.sim.fleet.accelerators import Precision
from wva.sim.fleet.parameters import EngineParameters

LIBRARY: Final = "aiconfigurator-core"

SYSTEMS: Final[Mapping[str, str]] = MappingProxyType(
    {"H100": "h100_sxm", "H200": "h200_sxm", "A100": "a100_sxm", "L40S": "l40s"}
)
"""The library's name of each GPU that both know."""

KNOWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Llama-3.1-8B": "meta-llama/Meta-Llama-3.1-8B",
        "Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
        "Qwen3-32B": "Qwen/Qwen3-32B",
        "Qwen3-8B": "Qwen/Qwen3-8B",
    }
)
"""The library's name of each model that both know."""

_BATCHES: Final = (1, 4, 16, 64, 128, 256)
_CONTEXTS: Final = (128, 512, 2048, 4096)
_PROMPTS: Final = (512, 1024, 2048, 4096, 8192)
_BESIDE: Final = 64
"""Sequences that decode in the steps in which prompts are computed. Beside them a prompt hides behind no weights."""


def library_version() -> str | None:
    """Return the version of the library; None where it is not installed."""
    try:
        return version(LIBRARY)
    except PackageNotFoundError:
        return None


def with_kernels(
    engine: EngineParameters, model: str, gpu: str, *, gpus: int, precision: Precision
) -> EngineParameters:
    """Return the engine of a model on some GPUs of one kind, with the step times of measured kernels.

    Raises:
        ValueError: the library is not installed, or does not know the GPU, the model or this combination.

    """
    if library_version() is None:
        raise ValueError(f"{LIBRARY} is not installed: pip install {LIBRARY}")
    for name, known in ((gpu, SYSTEMS), (model, KNOWN)):
        if name not in known:
            raise ValueError(f"{LIBRARY} has no {name}; it has {', '.join(known)}")
    return fitted(engine, _steps(model, gpu, gpus, precision))


def _steps(model: str, gpu: str, gpus: int, precision: Precision) -> Any:
    """Return the library's engine. The library logs each table that it borrows; these messages are left out."""
    quiet = logging.getLogger("aiconfigurator_core")
    level = quiet.level
    quiet.setLevel(logging.CRITICAL)
    quantized = {"gemm_quant_mode": "fp8"} if precision is Precision.FP8 else {}
    try:
        handle = import_module("aiconfigurator_core.sdk").EngineHandle
        return handle.compile(KNOWN[model], SYSTEMS[gpu], "vllm", tp_size=gpus, **quantized)
    except Exception as error:
        raise ValueError(f"{LIBRARY}: {error}") from error
    finally:
        quiet.setLevel(level)


def fitted(engine: EngineParameters, steps: Any) -> EngineParameters:
    """Return the engine with the linear step that is nearest, in relative terms, to those of the library.

    ``steps`` answers in milliseconds: ``decode_step_latency`` for so many sequences at a context, and
    ``mixed_step_latency`` for the tokens of a prompt beside so many sequences.
    """
    decodes = [(batch, context) for batch in _BATCHES for context in _CONTEXTS]
    seconds = [steps.decode_step_latency(batch, context, 2) / 1000 for batch, context in decodes]
    alpha, beta, read = _least_squares([(1.0, batch, batch * context) for batch, context in decodes], seconds)
    added = [
        (steps.mixed_step_latency(prompt, _BESIDE, prompt, 2) - steps.decode_step_latency(_BESIDE, prompt, 2)) / 1000
        for prompt in _PROMPTS
    ]
    token, pair = _least_squares([(prompt, prompt * prompt / 2) for prompt in _PROMPTS], added)
    return replace(
        engine,
        alpha_seconds=alpha,
        beta_seconds_per_sequence=beta,
        kv_read_seconds_per_token=read,
        prefill_seconds_per_token=token,
        attention_seconds_per_token_pair=pair,
    )


def _least_squares(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Return the factors of the columns, none below 0: a negative one is left out, and the others are fitted again."""
    np = import_module("numpy")  # the library brings it; nothing else of the command needs it
    table, times = np.asarray(rows, dtype=float), np.asarray(seconds, dtype=float)
    weights = 1 / np.maximum(times, 1e-6)
    columns = list(range(table.shape[1]))
    while True:
        solution, *_ = np.linalg.lstsq(table[:, columns] * weights[:, None], times * weights, rcond=None)
        kept = [column for column, factor in zip(columns, solution, strict=True) if factor >= 0]
        if len(kept) == len(columns):
            factors = dict(zip(columns, solution.tolist(), strict=True))
            return [factors.get(column, 0.0) for column in range(table.shape[1])]
        columns = kept
