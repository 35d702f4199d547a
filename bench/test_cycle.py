"""A cycle's decisions: what they cost per model, beside the release before, and how long the event loop waits."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from bench.cycle import INTERVAL_SECONDS, NOW, fleet, seen
from bench.paired import cpu_seconds
from wva import log
from wva.decide.pipeline import decide
from wva.instruments import Instruments
from wva.model.memory import Memory
from wva.model.metrics import EngineCounters, EngineSignals, Sample, SampleState
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import Variant
from wva.optimizer import OptimizerLoop
from wva.publish.ledger import Ledger
from wva.sim.world.clock import VirtualClock
from wva.slices import searched_afterwards

ROOT = Path(__file__).parent.parent
PAIRS = 3
LARGE = ((5000, 2, 10), (10_000, 1, 10))
"""Models, variants of each, replicas of each: ten thousand variants of ten replicas."""

LONGEST_SECONDS = 0.05
LOOK_SECONDS = 0.002


def _seconds(models: int) -> float:
    variants = fleet(models, 2, 3)
    snapshot = seen(variants, 0)
    return min(cpu_seconds(lambda: decide(snapshot, Memory(), Policy(), NOW)) for _ in range(5))


def test_the_cost_of_a_decision_does_not_grow_with_the_fleet() -> None:
    """Ten times the models take at most fifteen times as long."""
    few, many = _seconds(30), _seconds(300)
    print(f"\n30 models: {few * 1e3:.1f} ms, 300 models: {many * 1e3:.1f} ms, ratio {many / few:.1f}")
    assert many / few < 15


def _cycles(release: Path, size: tuple[int, int, int]) -> float:
    """Return the CPU seconds of a usual cycle, decided by the sources in a folder."""
    command = [sys.executable, "-m", "bench.cycle", *map(str, size)]
    sources = {**os.environ, "PYTHONPATH": f"{release}{os.pathsep}{ROOT}"}
    told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=release, env=sources)  # noqa: S603
    return statistics.median(map(float, told.stdout.split()[1:]))


@pytest.mark.timeout(600)
@pytest.mark.skipif("WVA_BEFORE" not in os.environ, reason="WVA_BEFORE names no folder with another release")
@pytest.mark.parametrize("size", LARGE, ids=str)
def test_a_large_fleet_beside_the_release_before(size: tuple[int, int, int]) -> None:
    """``WVA_BEFORE`` is a checkout of 0.6.0. Both decide in turn, each in processes of its own."""
    ratios = []
    for _ in range(PAIRS):
        before, now = _cycles(Path(os.environ["WVA_BEFORE"]), size), _cycles(ROOT, size)
        ratios.append(before / now)
        print(f"\n{size}: {before:.2f} s before, {now:.2f} s now, ratio {before / now:.1f}", end="")
    print(f"\nmedian ratio {statistics.median(ratios):.1f}")
    assert statistics.median(ratios) >= 4


class _Configuration:
    interval_seconds = INTERVAL_SECONDS

    def __init__(self, analyzer: Analyzer) -> None:
        self.changed = asyncio.Event()
        self.policy = Policy(saturation=SaturationPolicy(analyzer_name=analyzer))


def _counted(variants: list[Variant], cycle: int) -> Snapshot:
    """Return what a cycle sees of the variants, with what the engines of each pod have counted."""
    snapshot, done = seen(variants, cycle), 2000.0 + 30.0 * cycle
    pods = []
    for pod in snapshot.replicas:
        at, running = pod.kv_usage.timestamp or NOW, pod.queue_length
        size = Sample(SampleState.FRESH, 400_000.0, at)
        signals = EngineSignals(kv_capacity_tokens=size, kv_usage=pod.kv_usage, waiting=running, running=running)
        numbers = (done, 0.0, 500 * done, done, 200 * done, done, 6 * done, 200 * done)
        pods.append(replace(pod, engine=signals, counters=EngineCounters(at, *numbers), created=NOW - 4100.0))
    return replace(snapshot, replicas=tuple(pods))


SEEN = {Analyzer.PERCENTAGE: seen, Analyzer.DEMAND: _counted}


async def _longest_waits(size: tuple[int, int, int], analyzer: Analyzer) -> list[float]:
    """Return, for each cycle, the longest time in which the process worked and the loop ran no other task."""
    variants, waits, clock = fleet(*size), [0.0], VirtualClock()
    cycles = iter(range(len(waits) + PAIRS))

    async def collect(_now: float) -> Snapshot:
        return await asyncio.to_thread(SEEN[analyzer], variants, next(cycles))

    async def look() -> None:
        last = time.process_time()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.process_time()
            waits[-1], last = max(waits[-1], now - last), now

    optimizer = OptimizerLoop(
        collect=collect,
        known=lambda _: True,
        announce=lambda *_: None,
        configuration=_Configuration(analyzer),
        ledger=Ledger(),
        clock=clock,
        instruments=Instruments(CollectorRegistry()),
    )
    looking = asyncio.create_task(look())
    for _ in range(PAIRS):
        waits.append(0.0)
        with searched_afterwards():
            await optimizer.cycle()
        await asyncio.sleep(5 * LOOK_SECONDS)
        clock.advance_to(clock.elapsed_seconds + INTERVAL_SECONDS)
    looking.cancel()
    return waits[1:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("analyzer", SEEN, ids=lambda analyzer: analyzer.name.lower())
async def test_the_event_loop_serves_others_while_a_large_fleet_is_decided_on(analyzer: Analyzer) -> None:
    """A decision blocks the loop for at most 50 ms of CPU, including garbage collection and the freeing of samples."""
    log.configure(level="error", encoding="json")
    waits = await _longest_waits(LARGE[0], analyzer)
    print(f"\nlongest waits {', '.join(f'{wait * 1e3:.0f} ms' for wait in waits)}")
    assert max(waits) <= LONGEST_SECONDS
