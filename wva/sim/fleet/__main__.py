"""``python -m wva.sim.fleet --port 8000 --seed 1``: the fleet's server as a process of its own.

It starts empty; variants, pods and loads come over HTTP (see ``server``). Once it answers, it writes its port as a line
to the standard output, so that ``--port 0`` is usable. Ends on SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence

os.environ.setdefault("NUMBA_DISABLE_JIT", "1")  # in real time there is no need, and compiling stops everything

from wva.clock import SystemClock
from wva.sim.fleet.fleet import Fleet
from wva.sim.fleet.server import FleetServer


async def serve(*, port: int, seed: int) -> None:
    """Serve an empty fleet on 127.0.0.1 until a signal comes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = FleetServer(Fleet((), loads={}, seed=seed), clock=SystemClock())
    async with asyncio.TaskGroup() as tasks, server.serving(tasks, port=port) as bound_port:
        sys.stdout.write(f"{bound_port}\n")
        sys.stdout.flush()
        await stop.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m wva.sim.fleet", description="Serve a simulated vLLM fleet.")
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--seed", type=int, default=0, help="seed of all arrivals and lengths")
    options = parser.parse_args(arguments)
    asyncio.run(serve(port=options.port, seed=options.seed))


if __name__ == "__main__":
    main()
