"""``wva prior MODEL GPU``: what a replica will carry, before it has had any traffic."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from wva.command_error import UsageError
from wva.command_line import add_output, print_json
from wva.godurations import parse_duration
from wva.numbers import Real, Whole
from wva.sim.commands.runs import whole

if TYPE_CHECKING:
    from wva.sim.fleet.prior import CapacityPrior, MeasuredError

EXAMPLES: Final = (
    "wva prior Llama-3.1-8B H100",
    "wva prior Llama-3.1-70B H100 --gpus 4 --prompt-tokens 1155 --output-tokens 211 --itl 50ms",
    "wva prior Qwen3-32B H200 --precision fp8 --output json",
    "wva prior Llama-3.1-8B A100 --from aiconfigurator-core",
)
_TOKENS: Final = whole(Whole(1, 1_000_000))
_GPUS: Final = whole(Whole(1, 64))
_ITL: Final = Real(0.0, 86_400.0, above=True)
_DATA_SHEET: Final = (
    "data sheet of the GPU and configuration of the model; efficiencies fitted to published measurements of vLLM "
    "(docs/physics.md)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the replica, of its requests and of the output."""
    parser.description = (
        "Say what one replica of a model on a GPU will carry, before any traffic: requests per second, where its queue "
        "begins to grow, and how far such figures were from measurements. It is a first guess: the controller learns "
        "the real figure from traffic."
    )
    parser.epilog = "Exit status: 0, 2 on a wrong flag, and for a model or a GPU that is not known or does not fit."
    add = parser.add_argument
    add("model", metavar="MODEL", help="the model, such as Llama-3.1-8B or meta-llama/Llama-3.1-8B-Instruct")
    add("gpu", metavar="GPU", help="the GPU, such as H100")
    add("--gpus", type=_GPUS, metavar="N", help="GPUs of one replica (default: the fewest of 1, 2, 4, 8 that hold it)")
    add("--precision", choices=["bf16", "fp8"], default="bf16", help="of the weights (default: bf16)")
    add("--prompt-tokens", type=_TOKENS, default=512, metavar="N", help="tokens of a prompt (default: 512)")
    add("--output-tokens", type=_TOKENS, default=256, metavar="N", help="tokens of an answer (default: 256)")
    between = "objective for the mean time between tokens (default: 100ms)"
    add("--itl", default="100ms", metavar="DURATION", help=between)
    add(
        "--from",
        dest="step_times",
        choices=["data-sheet", "aiconfigurator-core"],
        default="data-sheet",
        help="where step times come from: the data sheet of the GPU, or the kernels that aiconfigurator-core has "
        "measured; that is a library which you install beside WVA (default: data-sheet)",
    )
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the prior and return 0. Raises UsageError for a model or a GPU that is not known or does not fit."""
    from wva.sim.fleet.accelerators import GPUS, MODELS, Precision
    from wva.sim.fleet.prior import StepTimes, carried, gpu_named, measured_error, model_named

    model, gpu = model_named(arguments.model), gpu_named(arguments.gpu)
    if model is None:
        raise UsageError(f"MODEL={arguments.model!r}: expected one of {', '.join(MODELS)}")
    if gpu is None:
        raise UsageError(f"GPU={arguments.gpu!r}: expected one of {', '.join(GPUS)}")
    try:
        itl_seconds = _ITL.find(parse_duration(arguments.itl))
    except ValueError as error:
        raise UsageError(f"--itl={arguments.itl!r}: {error}") from error
    if itl_seconds is None:
        raise UsageError(f"--itl={arguments.itl!r}: expected a duration above zero and at most 24h")
    try:
        prior = carried(
            model,
            gpu,
            gpus=arguments.gpus,
            precision=Precision(arguments.precision),
            prompt_tokens=arguments.prompt_tokens,
            output_tokens=arguments.output_tokens,
            itl_seconds=itl_seconds,
            step_times=StepTimes(arguments.step_times),
        )
    except ValueError as error:
        raise UsageError(f"{model} in {arguments.precision} on {gpu}: {error}") from error
    measured = measured_error(model, gpu, StepTimes(arguments.step_times))
    if arguments.output == "json":
        print_json(_document(arguments, model, gpu, prior, measured))
    else:
        for line in _lines(arguments, model, gpu, prior, measured):
            print(line)
    return 0


def _lines(
    arguments: argparse.Namespace, model: str, gpu: str, prior: CapacityPrior, error: MeasuredError | None
) -> Iterator[str]:
    length = f"{arguments.prompt_tokens} + {arguments.output_tokens} tokens"
    yield f"one replica: {model} in {arguments.precision} on {prior.gpus} x {gpu}; requests of {length}"
    if prior.carried is None:
        yield f"  nothing within {arguments.itl} between tokens: a request alone has {_ms(prior.token_seconds)}"
    else:
        point = prior.carried
        batch = f"{point.sequences:.0f} at a time, {_ms(point.inter_token_latency_seconds)} between tokens"
        yield f"  {point.requests_per_second:5.1f} requests/s within {arguments.itl} between tokens ({batch})"
    yield f"  {prior.full.requests_per_second:5.1f} requests/s at most: beyond that its queue grows"
    yield f"  {_ms(prior.first_token_seconds)} to the first token of a request alone, without server and network"
    yield f"  {prior.engine.kv_cache_tokens} tokens fit into its KV cache"
    yield f"from: {_origin(arguments.step_times)}"
    yield f"error: {_error_words(error, gpu)}"


def _origin(step_times: str) -> str:
    """Return where the figures come from, in words."""
    from wva.sim.fleet.kernels import LIBRARY, library_version

    if step_times != LIBRARY:
        return _DATA_SHEET
    return f"kernels measured by {LIBRARY} {library_version()}; memory by the data sheet of the GPU (docs/physics.md)"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def _error_words(error: MeasuredError | None, gpu: str) -> str:
    """Return how far such figures were from measurements, in words."""
    if error is None:
        return f"nothing was measured on {gpu} with a model of this size: take it for a guess"
    figures = "figure" if error.figures == 1 else "figures"
    return (
        f"{error.percent:g} % on average over {error.figures} published {figures} on {gpu} with models of this size "
        "(latency, throughput, time per token)"
    )


def _document(
    arguments: argparse.Namespace, model: str, gpu: str, prior: CapacityPrior, error: MeasuredError | None
) -> dict[str, object]:
    return {
        "model": model,
        "gpu": gpu,
        "gpus": prior.gpus,
        "precision": arguments.precision,
        "prompt_tokens": arguments.prompt_tokens,
        "output_tokens": arguments.output_tokens,
        "within_objective": None if prior.carried is None else asdict(prior.carried),
        "at_most": asdict(prior.full),
        "first_token_seconds": prior.first_token_seconds,
        "kv_cache_tokens": prior.engine.kv_cache_tokens,
        "from": _origin(arguments.step_times),
        "measured_error": None if error is None else asdict(error),
    }
