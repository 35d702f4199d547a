"""``wva emulator``: one vLLM replica without a GPU, for a pod or a laptop."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from wva.cli.flags import fail
from wva.clock import SystemClock
from wva.godurations import parse_duration
from wva.model.records import replace

if TYPE_CHECKING:
    from wva.sim.fleet.parameters import EngineParameters


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; status 1 with one line when that cannot work."""
    try:
        parameters = _parameters(arguments)
        startup_seconds = _startup_seconds(arguments.startup)
    except ValueError as error:
        return fail(str(error))
    try:
        asyncio.run(_serve(arguments, parameters, startup_seconds))
    except (OSError, OverflowError) as error:
        return fail(f"--host={arguments.host} --port={arguments.port}: cannot listen: {error}")
    return 0


def _parameters(arguments: argparse.Namespace) -> EngineParameters:
    """Return the engine that the flags ask for. Raises ValueError naming the flag."""
    from wva.sim.fleet.parameters import PRESETS  # noqa: PLC0415 - only this command needs the embedded world

    preset = PRESETS.get(arguments.accelerator)
    if preset is None:
        raise ValueError(f"--accelerator={arguments.accelerator!r}: expected one of {', '.join(PRESETS)}")
    given = {
        "max_num_seqs": arguments.max_num_seqs,
        "max_num_batched_tokens": arguments.max_num_batched_tokens,
        "max_model_len": arguments.max_model_len,
        "num_gpu_blocks": arguments.num_gpu_blocks_override,
    }
    if arguments.output_tokens < 1:
        raise ValueError(f"--output-tokens={arguments.output_tokens}: expected at least 1")
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(preset, **changes)


def _startup_seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ValueError(f"--startup: {error}") from error
    if seconds < 0:
        raise ValueError(f"--startup={text}: expected no negative duration")
    return seconds


async def _serve(arguments: argparse.Namespace, parameters: EngineParameters, startup_seconds: float) -> None:
    os.environ.setdefault("NUMBA_DISABLE_JIT", "1")  # in real time there is no need, and compiling stops everything
    from wva.sim.emulator.replica import EmulatedReplica  # noqa: PLC0415 - see above
    from wva.sim.emulator.server import EmulatorServer  # noqa: PLC0415 - see above

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    clock = SystemClock()
    replica = EmulatedReplica(
        parameters,
        model=arguments.model,
        clock=clock,
        mean_output_tokens=arguments.output_tokens,
        seed=arguments.seed,
    )
    server = EmulatorServer(replica, clock=clock, startup_seconds=startup_seconds)
    async with server.serving(host=arguments.host, port=arguments.port) as port:
        sys.stdout.write(f"serving {arguments.model} as one {arguments.accelerator} on {arguments.host}:{port}\n")
        sys.stdout.flush()
        await stop.wait()
