"""What the controller costs while nothing changes and while everything does, at 300, 900 and 2,700 models.

The cost of a fleet must grow in proportion to its size. The fleets run one after the other, because their API server
is this process and serves one of them at a time quickly enough. What counts is the CPU time of the controller, so the
state of the machine matters little. *Steady*: a minute in which no sample changes, once nothing has been written for a
cycle and the controller has looked at everything that it looks at once after its start. *Changing*: a minute of two
cycles, in each of which the status of every variant changes: first there are no samples, then all of them show that the
replicas are full. The number of one variant of each model grows then.

``WVA_BENCH_MODELS`` may name other sizes (``100,300``), ``WVA_BENCH_ANALYZER`` another analyzer than that of the
ConfigMap as shipped, ``WVA_BENCH_BESIDE`` the Python of another installation. With ``WVA_BENCH_REAL=1`` the API server
is a real one. ``WVA_BENCH_INTERVAL`` are the seconds between cycles.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.fleet_world import INTERVAL_SECONDS, FleetWorld

MODELS = tuple(int(text) for text in os.environ.get("WVA_BENCH_MODELS", "300,900,2700").split(","))
STEADY_SECONDS = 60
SCRAPE_SECONDS = 15
LOOKS_SECONDS = 120
"""After a minute the controller asks for the first time what users got, and soon for the last days. Then it looks at
every variant again, which belongs to the start."""
LONGEST_SECONDS = 400
"""The longest wait for a change. After it the test goes on, since the machine may be busy."""
ANALYZER = os.environ.get("WVA_BENCH_ANALYZER", "")
REAL = os.environ.get("WVA_BENCH_REAL", "") == "1"
MOST_RATIO = 1.3
"""How much more than in proportion a larger fleet may cost. Fixed costs make the growth smaller than proportional."""


@dataclass
class Cost:
    """What one fleet has cost: CPU seconds per minute, and how long the statuses took after the first one."""

    models: int
    start: float = 0.0
    steady: float = 0.0
    changing: float = 0.0
    longest_change_seconds: float = 0.0
    unwritten: int = 0
    dropped: float = 0.0
    memory_bytes: int = 0


async def _current(world: FleetWorld) -> None:
    """Return once the status of every variant has been written since ``reset`` and no more come."""
    limit = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < limit:
        await asyncio.sleep(0.5)
        if len(world.written) >= world.variants and time.monotonic() - world.written[-1] > 1.0:
            return


async def _quiet(world: FleetWorld) -> None:
    """Return once neither a status nor an event has been written for a whole cycle."""
    limit = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < limit:
        before = world.writes
        await asyncio.sleep(INTERVAL_SECONDS + 5)
        if world.writes == before:
            return


async def _scrapes(world: FleetWorld) -> None:
    while True:
        await asyncio.sleep(SCRAPE_SECONDS)
        await world.scrape()


async def _measure(world: FleetWorld, models: int) -> Cost:
    cost, began = Cost(models), time.monotonic()
    await _current(world)
    cost.start = world.cpu_seconds
    scraping = asyncio.create_task(_scrapes(world))
    await _quiet(world)
    await asyncio.sleep(began + LOOKS_SECONDS - time.monotonic())
    before = world.cpu_seconds
    await asyncio.sleep(STEADY_SECONDS)
    cost.steady = (world.cpu_seconds - before) * 60 / STEADY_SECONDS
    before, began = world.cpu_seconds, time.monotonic()
    for usage in (None, 0.95):
        world.reset()
        world.usage = usage
        await _current(world)
        cost.unwritten += max(0, world.variants - len(world.written))
        if world.written:
            cost.longest_change_seconds = max(cost.longest_change_seconds, world.written[-1] - world.written[0])
    extra_seconds = max(0.0, time.monotonic() - began - 2 * INTERVAL_SECONDS)
    cost.changing = world.cpu_seconds - before - cost.steady * extra_seconds / 60
    page = await world.scrape()
    cost.dropped = sum(float(line.split()[-1]) for line in page.splitlines() if 'total{result="dropped"}' in line)
    cost.memory_bytes = world.memory_bytes
    scraping.cancel()
    return cost


def test_the_cost_of_a_fleet_grows_in_proportion(tmp_path: Path) -> None:
    """Three times the models cost at most 3.9 times as much, in rest and in change."""
    beside = os.environ.get("WVA_BENCH_BESIDE", "")
    pythons = {"this": sys.executable} | ({"beside": beside} if beside else {})

    async def play(name: str, models: int) -> Cost:
        folder = tmp_path / f"{name}-{models}"
        folder.mkdir()
        world = FleetWorld(folder, pythons[name], models=models, analyzer=ANALYZER, real=REAL)
        async with world.open():
            return await _measure(world, models)

    found = {name: [asyncio.run(play(name, models)) for models in MODELS] for name in pythons}
    for name, costs in found.items():
        for cost in costs:
            print(
                f"\n{name}, {cost.models} models: start {cost.start:.1f} CPU s, per minute {cost.steady:.2f} steady, "
                f"{cost.changing:.2f} changing; all statuses within {cost.longest_change_seconds:.1f} s, "
                f"{cost.unwritten} not written, {cost.dropped:g} events dropped, {cost.memory_bytes / 2**20:.0f} MiB",
                end="",
            )
    print()
    costs = found["this"]
    for small, large in pairwise(costs):
        times = large.models / small.models * MOST_RATIO
        assert large.steady <= small.steady * times
        assert large.changing <= small.changing * times
