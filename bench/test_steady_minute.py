"""A minute in which nothing changes: 300 models with 2 variants of 3 replicas each, and what the controller does then.

``WVA_BENCH_BESIDE`` may name the Python of another installation of wva. Both run in the same minutes, each in a world
of its own, so the state of the machine is the same for both.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bench.fleet_world import FleetWorld

SETTLING_SECONDS = 75
MEASURED_SECONDS = 120
SCRAPE_SECONDS = 15


async def _measured(worlds: list[FleetWorld]) -> list[tuple[float, float, int]]:
    """Return for each world, per minute: CPU seconds and queries; and the patches of all minutes."""
    await asyncio.sleep(SETTLING_SECONDS)
    for world in worlds:
        page = await world.scrape()
        assert page.count("\nwva_desired_replicas{") == world.variants, page[:2000]
        world.reset()
    before = [(world.cpu_seconds, world.queries) for world in worlds]
    for _ in range(MEASURED_SECONDS // SCRAPE_SECONDS):
        await asyncio.sleep(SCRAPE_SECONDS)
        for world in worlds:
            await world.scrape()
    minutes = MEASURED_SECONDS / 60
    return [
        ((world.cpu_seconds - cpu) / minutes, (world.queries - queries) / minutes, world.patches)
        for world, (cpu, queries) in zip(worlds, before, strict=True)
    ]


@pytest.mark.parametrize(("analyzer", "most_cpu_seconds", "most_queries"), [("", 1.0, 8), ("demand", 2.0, 12)])
def test_a_minute_without_changes_costs_next_to_nothing(
    tmp_path: Path, analyzer: str, most_cpu_seconds: float, most_queries: int
) -> None:
    """The controller needs little CPU time and a few queries per cycle, and sends no patch."""
    beside = os.environ.get("WVA_BENCH_BESIDE", "")
    names = {"this": sys.executable} | ({"beside": beside} if beside else {})

    async def play() -> list[tuple[float, float, int]]:
        async with AsyncExitStack() as stack:
            worlds = []
            for name, python in names.items():
                (tmp_path / name).mkdir()
                worlds.append(
                    await stack.enter_async_context(FleetWorld(tmp_path / name, python, analyzer=analyzer).open())
                )
            return await _measured(worlds)

    found = dict(zip(names, asyncio.run(play()), strict=True))
    for name, (cpu, queries, patches) in found.items():
        print(f"\n{name}: {cpu:.2f} CPU seconds and {queries:g} queries per minute, {patches} status patches")
    cpu, queries, patches = found["this"]
    assert patches == 0
    assert queries <= most_queries
    assert cpu < most_cpu_seconds
