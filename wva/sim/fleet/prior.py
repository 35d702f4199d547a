"""What a replica will carry, before any traffic: from data sheets or measured kernels, and the simulated engine.

``carried`` sizes an engine of ``accelerators``, with the step times of ``kernels`` if asked for, by the balance of
``calibration``. ``measured_error`` says how far such engines are from published measurements of vLLM on a GPU, with
models of about that size; docs/physics.md has each measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from wva.sim.fleet.accelerators import GPUS, MODELS, Precision, engine_parameters
from wva.sim.fleet.calibration import OperatingPoint, operating_point, prompt_seconds, saturation, step_seconds
from wva.sim.fleet.kernels import LIBRARY, with_kernels
from wva.sim.fleet.parameters import EngineParameters

_COUNTS: Final = (1, 2, 4, 8)
"""GPUs of one replica that are tried: as many as share a fast link."""
_LONGEST: Final = 8192
"""Tokens of the longest sequence, unless the requests are longer. vLLM takes the model's own, which is more."""
_HALVINGS: Final = 60
"""Of the KV cache usage, until an objective is met."""
SIZES: Final = MappingProxyType({"8B": (6.0, 9.0), "70B": (60.0, 80.0)})
"""Least and most billions of parameters of the models that were measured, by the name of the size."""


class StepTimes(StrEnum):
    """Where the step times of an engine come from."""

    DATA_SHEET = "data-sheet"
    KERNELS = LIBRARY


@dataclass(frozen=True, slots=True)
class MeasuredError:
    """How far simulated engines are from published measurements: latency, throughput and time per token.

    Attributes:
        percent: mean absolute error.
        figures: how many measurements.

    """

    percent: float
    figures: int


MEASURED_ERRORS: Final[Mapping[tuple[str, str], MeasuredError]] = MappingProxyType(
    {
        ("A100", "70B"): MeasuredError(4, 9),
        ("A100", "8B"): MeasuredError(12, 9),
        ("A100-40GB", "8B"): MeasuredError(11, 2),
        ("H100", "70B"): MeasuredError(5, 21),
        ("H100", "8B"): MeasuredError(10, 21),
        ("H200", "70B"): MeasuredError(12, 1),
        ("H200", "8B"): MeasuredError(16, 1),
        ("L40", "8B"): MeasuredError(5, 14),
        ("L40S", "8B"): MeasuredError(4, 1),
        ("MI300X", "70B"): MeasuredError(4, 20),
        ("MI300X", "8B"): MeasuredError(1, 2),
    }
)
"""By GPU and size of the model, as the tables of docs/physics.md have them."""

KERNEL_ERRORS: Final[Mapping[tuple[str, str], MeasuredError]] = MappingProxyType(
    {
        ("A100", "70B"): MeasuredError(2.5, 9),
        ("A100", "8B"): MeasuredError(5.6, 9),
        ("H100", "70B"): MeasuredError(15.8, 16),
        ("H100", "8B"): MeasuredError(21.2, 18),
        ("H200", "70B"): MeasuredError(23.1, 1),
        ("H200", "8B"): MeasuredError(21.9, 1),
        ("L40S", "8B"): MeasuredError(14.1, 1),
    }
)
"""The same with step times of aiconfigurator-core 0.12.0, as ``python -m bench.kernels`` prints them."""


@dataclass(frozen=True, slots=True)
class CapacityPrior:
    """What one replica will carry of requests of one length.

    Attributes:
        gpus: GPUs of the replica.
        engine: its derived parameters.
        full: the balance beyond which its queue grows.
        carried: the same, or below it the highest load within the objective for the time between tokens; None where
            even one request alone misses the objective.
        first_token_seconds: computing the prompt of a request that is alone, without server and network.
        token_seconds: time between the tokens of a request that is alone.

    """

    gpus: int
    engine: EngineParameters
    full: OperatingPoint
    carried: OperatingPoint | None
    first_token_seconds: float
    token_seconds: float


def carried(
    model: str,
    gpu: str,
    *,
    gpus: int | None,
    precision: Precision,
    prompt_tokens: int,
    output_tokens: int,
    itl_seconds: float,
    step_times: StepTimes = StepTimes.DATA_SHEET,
) -> CapacityPrior:
    """Return what a replica of a model on some GPUs carries; None takes the fewest GPUs on which it fits.

    Raises:
        ValueError: no GPU or model has this name, the GPU has no such precision, the model does not fit, or the kernels
            of this combination are not known.

    """
    problem = ""
    for count in _COUNTS if gpus is None else (gpus,):
        try:
            engine = engine_parameters(
                gpu,
                model,
                tensor_parallel=count,
                precision=precision,
                max_model_len=max(_LONGEST, prompt_tokens + output_tokens),
            )
        except ValueError as error:
            problem = str(error)
            continue
        if step_times is StepTimes.KERNELS:
            engine = with_kernels(engine, model, gpu, gpus=count, precision=precision)
        return _prior(engine, count, prompt_tokens, output_tokens, itl_seconds)
    raise ValueError(problem)


def _prior(
    engine: EngineParameters, gpus: int, prompt_tokens: int, output_tokens: int, itl_seconds: float
) -> CapacityPrior:
    full = saturation(engine, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    token_seconds = step_seconds(engine, 1.0, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    first_seconds = engine.alpha_seconds + prompt_seconds(engine, prompt_tokens)
    within_objective: OperatingPoint | None = full
    if full.inter_token_latency_seconds > itl_seconds:
        within_objective = None
        low, high = 0.0, full.kv_cache_usage
        for _ in range(_HALVINGS if token_seconds < itl_seconds else 0):
            usage = (low + high) / 2
            point = operating_point(
                engine, kv_cache_usage=usage, prompt_tokens=prompt_tokens, output_tokens=output_tokens
            )
            if point.inter_token_latency_seconds <= itl_seconds:
                low, within_objective = usage, point
            else:
                high = usage
    return CapacityPrior(gpus, engine, full, within_objective, first_seconds, token_seconds)


def measured_error(model: str, gpu: str, step_times: StepTimes = StepTimes.DATA_SHEET) -> MeasuredError | None:
    """Return the error of simulated engines on this GPU with models of this size; None where nothing was measured."""
    errors = MEASURED_ERRORS if step_times is StepTimes.DATA_SHEET else KERNEL_ERRORS
    return errors.get((gpu, size_of(model)))


def size_of(model: str) -> str:
    """Return the size of a model by name of ``SIZES``; empty for another size."""
    billions = MODELS[model].parameters / 1e9
    return next((name for name, (least, most) in SIZES.items() if least <= billions <= most), "")


def model_named(text: str) -> str | None:
    """Return the model that a name means, also as model hubs write it: ``meta-llama/Llama-3.1-8B-Instruct``."""
    plain = text.rpartition("/")[2].casefold().removeprefix("meta-").removesuffix("-instruct")
    return next((name for name in MODELS if name.casefold() == plain), None)


def gpu_named(text: str) -> str | None:
    """Return the GPU that a name means; labels of nodes say too little: an A100 may have 40 or 80 GB."""
    return next((name for name in GPUS if name.casefold() == text.casefold()), None)
