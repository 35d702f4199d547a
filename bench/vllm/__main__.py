"""Measures how well WVA knows a real vLLM: ``python -m bench.vllm [--repeats 3] [--folder DIR]``.

Two servers with one core each. In each repeat they are started anew, and a new controller decides on one pod, then on
two. The second server is started once more before it is the second pod, since pods have counted nothing before.

1. A load that one pod carries, until the engine is known. *Demand* is what WVA measures of it.
2. More than one pod carries. *Seconds* pass until WVA asks for two.
3. One pod carries its load while the other starts. Then both have as much as was too much for one, and then as much as
   the clients get through. *Capacity* is what WVA has learned of one pod.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.vllm.cluster import NAMESPACE, EngineCluster, opened, until
from bench.vllm.engine import MODEL, VllmServer, installed, made_model
from e2e.controlplane.build import PROMETHEUS, build
from e2e.controlplane.layout import LOOPBACK, Layout
from e2e.controlplane.ports import free_port
from e2e.controlplane.processes import ServerProcess, stop_all
from e2e.controlplane.prometheus import PrometheusProcess
from wva.clock import SystemClock
from wva.command_error import CommandError
from wva.decide.pipeline import conclude
from wva.hindsight.cycle import Recording
from wva.hindsight.recordings import read_all
from wva.sim.loadgen.client import ChatClient, open_session
from wva.sim.loadgen.report import ResultTally
from wva.sim.loadgen.run import RunLimits, generate
from wva.sim.loadgen.schedule import RateStep, arrivals

PROMPT_WORDS: Final = 60
ANSWER_TOKENS: Final = 40
SCRAPE_SECONDS: Final = 5
CALIBRATION_SECONDS: Final = 20.0
LEARNING_SECONDS: Final = 150.0
MEASURED_SECONDS: Final = 60.0
OVERLOAD_SECONDS: Final = 90.0
LOW, HIGH, BOTH = 0.5, 1.5, 1.4
"""Loads as multiples of what one saturated server gets through."""
_AT_ONCE: Final = 32  # requests in progress at a saturated server: twice as many as run
_FAR_MORE: Final = 500.0  # requests per second: more than any server gets through


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of one repeat: rates in requests per second, and seconds until the order; nan: it did not come."""

    sent: float
    demand: float
    seconds: float
    throughput: float
    capacity: float


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """A server as a client of the load generator."""

    client: ChatClient
    seed: int


class BackgroundLoad:
    """Sends requests to servers in the background until it is closed."""

    def __init__(self, targets: Sequence[LoadTarget], rate: float, *, at_once: int = 1024) -> None:
        """Send ``rate`` requests per second to each of the targets, with at most so many in progress."""
        self.tallies = [ResultTally() for _ in targets]
        self._began = time.monotonic()
        step = (RateStep(3600.0, rate * 60.0),)
        limits = RunLimits(at_once, 120.0, ANSWER_TOKENS)
        self._tasks = [
            asyncio.create_task(
                generate(
                    target.client, arrivals(step, seed=target.seed), limits=limits, clock=SystemClock(), tally=tally
                )
            )
            for target, tally in zip(targets, self.tallies, strict=True)
        ]

    def sent(self) -> int:
        """Return how many requests have been sent."""
        return sum(tally.sent for tally in self.tallies)

    def answered(self) -> int:
        """Return how many requests have been answered."""
        return sum(tally.answered for tally in self.tallies)

    async def close(self) -> None:
        """Stop sending and give up what is in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def throughput(targets: Sequence[LoadTarget], seconds: float) -> float:
    """Return how many requests per second each of the targets answers when all are saturated."""
    load = BackgroundLoad(targets, _FAR_MORE, at_once=_AT_ONCE)
    await asyncio.sleep(5.0)
    before, began = load.answered(), time.monotonic()
    await asyncio.sleep(seconds)
    rate = (load.answered() - before) / (time.monotonic() - began) / len(targets)
    await load.close()
    return rate


class Recorded:
    """What a controller writes with ``--record-dir``."""

    def __init__(self, folder: Path) -> None:
        """Read from ``folder``, which need not exist yet."""
        self._folder = folder

    def since(self, at: float) -> list[Recording]:
        """Return the cycles from a time on, in seconds since the epoch."""
        try:
            return [each for each in read_all(str(self._folder)) if each.now >= at]
        except CommandError:  # nothing is written yet, or a file is just being written
            return []

    def asked(self, at: float) -> float | None:
        """Return when WVA first asked for two replicas, at or after a time; None if it has not."""
        times = [each.now for each in self.since(at) if any(one.desired > 1 for one in each.decisions or ())]
        return min(times, default=None)


def loads(recordings: Sequence[Recording]) -> list[tuple[float, float]]:
    """Return demand, and capacity of all Ready pods, of each recorded cycle that knows them."""
    found = []
    for each in recordings:
        outcome = conclude(each.snapshot, each.memory, each.policy, each.now)
        found += [(load.demand, load.serving) for load in outcome.loads.values()]
    return found


async def started(servers: Sequence[VllmServer]) -> None:
    """Start servers anew and wait until they serve: a pod has counted nothing before it is Ready."""
    for server in servers:
        server.start()
    for server in servers:
        await asyncio.to_thread(server.wait_ready)


async def repeat(
    cluster: EngineCluster,
    controller: ServerProcess,
    recorded: Recorded,
    servers: Sequence[VllmServer],
    targets: Sequence[LoadTarget],
) -> Measured:
    """Run one repeat; the controller has not been started yet."""
    cluster.scale(1)
    scale = await throughput(targets, CALIBRATION_SECONDS)
    print(f"a saturated server answers {scale:.1f} requests/s", flush=True)
    await asyncio.sleep(20.0)  # Prometheus has seen the idle server
    controller.start()
    calm = BackgroundLoad(targets[:1], LOW * scale)
    await asyncio.sleep(LEARNING_SECONDS)
    begun, before = time.time(), calm.sent()
    await asyncio.sleep(MEASURED_SECONDS)
    sent = (calm.sent() - before) / (time.time() - begun)
    demand = statistics.mean([found[0] for found in loads(recorded.since(begun))])
    await calm.close()
    begun, more = time.time(), BackgroundLoad(targets[:1], HIGH * scale)
    await until(lambda: recorded.asked(begun) is not None, seconds=OVERLOAD_SECONDS)
    asked = recorded.asked(begun)
    await more.close()
    alone = BackgroundLoad(targets[:1], LOW * scale)
    await started(servers[1:])
    cluster.scale(2)
    await alone.close()
    both = BackgroundLoad(targets, BOTH * scale / len(targets))
    await asyncio.sleep(LEARNING_SECONDS)
    capacities = [found[1] / len(targets) for found in loads(recorded.since(time.time() - MEASURED_SECONDS))]
    await both.close()
    reached = await throughput(targets, CALIBRATION_SECONDS)
    controller.stop()
    late = float("nan") if asked is None else asked - begun
    return Measured(sent, demand, late, reached, statistics.median(capacities))


def controller_of(layout: Layout, kubeconfig: Path, prometheus: PrometheusProcess, records: Path) -> ServerProcess:
    """Describe ``wva run`` with its defaults."""
    return layout.process(
        records.name,
        [sys.executable, "-m", "wva", "run", f"--record-dir={records}"],
        environment={
            "KUBECONFIG": str(kubeconfig),
            "POD_NAMESPACE": NAMESPACE,
            "PROMETHEUS_BASE_URL": prometheus.api.url,
            "PROMETHEUS_CA_CERT_PATH": str(layout.authority),
            "METRICS_BIND_ADDRESS": f"{LOOPBACK}:{free_port()}",
            "HEALTH_PROBE_BIND_ADDRESS": f"{LOOPBACK}:{free_port()}",
        },
    )


async def measure(layout: Layout, servers: Sequence[VllmServer], repeats: int) -> list[Measured]:
    """Run all repeats and print each result."""
    prometheus = PrometheusProcess(layout)
    prometheus.configure()
    prometheus.start()
    found = []
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(open_session(token="", connections=2048))
        targets = []
        for at, server in enumerate(servers):
            url = f"http://{server.address}/v1"
            targets.append(LoadTarget(ChatClient(session, url=url, model=MODEL, content_words=PROMPT_WORDS), at))
        for number in range(1, repeats + 1):
            records = layout.directory / f"controller-{number}"
            addresses = [server.address for server in servers]
            await started(servers)
            async with opened(layout, prometheus, addresses, scrape_seconds=SCRAPE_SECONDS) as (cluster, kubeconfig):
                controller = controller_of(layout, kubeconfig, prometheus, records)
                found.append(await repeat(cluster, controller, Recorded(records), servers, targets))
            print(number, found[-1], flush=True)
    return found


def table(found: Sequence[Measured]) -> str:
    """Return the results of all repeats and the medians of their differences, as Markdown.

    Each repeat has a truth of its own, since the machine is not equally busy in all of them. So a difference is that of
    one repeat, and not that of two medians.
    """
    rows = [
        f"| {number} | {one.sent:.1f} | {one.demand:.1f} | {one.demand / one.sent - 1:+.0%} | {one.throughput:.1f} "
        f"| {one.capacity:.1f} | {one.capacity / one.throughput - 1:+.0%} | {one.seconds:.0f} s |"
        for number, one in enumerate(found, 1)
    ]
    demand, capacity, seconds = (
        statistics.median(values)
        for values in (
            [one.demand / one.sent - 1 for one in found],
            [one.capacity / one.throughput - 1 for one in found],
            [one.seconds for one in found],
        )
    )
    heads = ("repeat", "sent, requests/s", "demand", "difference", "a saturated pod", "capacity", "difference")
    lines = (f"| {' | '.join(heads)} | two replicas after |", "|---" * (len(heads) + 1) + "|", *rows)
    return "\n".join((*lines, f"| median | | | {demand:+.0%} | | | {capacity:+.0%} | {seconds:.0f} s |"))


def main() -> int:
    """Install, start, measure, print, stop."""
    parser = argparse.ArgumentParser(prog="bench.vllm", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, choices=range(1, 10), help="(default: 3)")
    parser.add_argument("--environment", type=Path, default=Path(".venv-vllm"), help="where vLLM is or gets installed")
    arguments = parser.parse_args()
    build(PROMETHEUS)
    python = installed(arguments.environment.absolute())
    with tempfile.TemporaryDirectory(prefix="wva-vllm-") as name:
        folder = Path(name)
        layout = Layout.create(folder / "servers")
        model = made_model(folder / MODEL, python)
        try:
            servers = [VllmServer(layout, python, model, core=core) for core in (0, 1)]
            found = asyncio.run(measure(layout, servers, arguments.repeats))
        finally:
            stop_all(layout.directory)
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
