"""``wva emulator``: one vLLM replica without a GPU, for a pod or a laptop."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from wva.clock import SystemClock
from wva.command_error import CommandError, UsageError
from wva.godurations import parse_duration
from wva.model.records import replace

if TYPE_CHECKING:
    from wva.sim.fleet.parameters import EngineParameters

EXAMPLES: Final = (
    "wva emulator --model default/default",
    "wva emulator --model default/default --accelerator H100 --port 8001 --startup 30s",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the server and of its engine."""
    parser.description = (
        "Serve the API and the /metrics of vLLM with the physics of the simulated "
        "fleet, in real time. Answers are words without meaning; a token is taken for four characters."
    )
    add = parser.add_argument
    add("--model", required=True, metavar="NAME", help="name under which the model is served")
    add("--accelerator", default="A100", metavar="NAME", help="speed and KV cache (default: A100)")
    add("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    add("--port", type=int, default=8000, metavar="N", help="port; 0 takes a free one (default: 8000)")
    add("--startup", default="0s", metavar="DURATION", help="time to load the model (default: 0s)")
    add("--output-tokens", type=int, default=150, metavar="N", help="mean answer length (default: 150)")
    add("--seed", type=int, default=0, metavar="N", help="of the answer lengths (default: 0)")
    add("--max-num-seqs", type=int, metavar="N", help="as of vLLM (default: the accelerator's)")
    add("--max-num-batched-tokens", type=int, metavar="N", help="as of vLLM")
    add("--max-model-len", type=int, metavar="N", help="as of vLLM")
    add("--num-gpu-blocks-override", dest="num_gpu_blocks", type=int, metavar="N", help="as of vLLM")


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises CommandError if a flag is wrong or the port is taken."""
    from wva.sim.fleet.parameters import PRESETS

    preset = PRESETS.get(arguments.accelerator)
    if preset is None:
        raise UsageError(f"--accelerator={arguments.accelerator!r}: expected one of {', '.join(PRESETS)}")
    if arguments.output_tokens < 1:
        raise UsageError(f"--output-tokens={arguments.output_tokens}: expected at least 1")
    overrides = {
        name: getattr(arguments, name)
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_gpu_blocks")
    }
    try:
        parameters = replace(preset, **{name: value for name, value in overrides.items() if value is not None})
    except ValueError as error:
        raise UsageError(str(error)) from error
    try:
        startup_seconds = parse_duration(arguments.startup)
    except ValueError as error:
        raise UsageError(f"--startup: {error}") from error
    if startup_seconds < 0:
        raise UsageError(f"--startup={arguments.startup}: expected no negative duration")
    try:
        asyncio.run(_serve(arguments, parameters, startup_seconds))
    except OverflowError as error:
        raise UsageError(f"--port={arguments.port}: {error}") from error
    except OSError as error:
        raise CommandError(f"--host={arguments.host} --port={arguments.port}: cannot listen: {error}") from error
    return 0


async def _serve(arguments: argparse.Namespace, parameters: EngineParameters, startup_seconds: float) -> None:
    # Real time needs no compiled code, and compiling would block the server.
    os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
    from wva.sim.emulator.replica import EmulatedReplica
    from wva.sim.emulator.server import EmulatorServer

    stop = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    clock = SystemClock()
    tokens = arguments.output_tokens
    replica = EmulatedReplica(
        parameters, model=arguments.model, clock=clock, mean_output_tokens=tokens, seed=arguments.seed
    )
    server = EmulatorServer(replica, clock=clock, startup_seconds=startup_seconds)
    async with server.serving(host=arguments.host, port=arguments.port) as port:
        sys.stdout.write(f"serving {arguments.model} as one {arguments.accelerator} on {arguments.host}:{port}\n")
        sys.stdout.flush()
        await stop.wait()
