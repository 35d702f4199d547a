"""The longest piece of work of the event loop with 600 variants, in CPU time: at peace, and under attacks on its ports.

While a piece runs, no probe, scrape or cycle is answered. The controller runs in the process of the benchmark, in the
world of ``tests/attack``; what its servers and clients do there does not count, nor does garbage collection.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.app.gateways import QUEUE
from tests.app.stage import DEPLOYMENTS, until
from tests.attack import test_endpoint, test_push
from tests.attack.harness import Attack
from tests.attack.meter import Meter, as_controller
from tests.attack.world import TENANT, AttackWorld, page
from wva import log
from wva.api.meta import Key
from wva.sim.apiserver.objects import clone

VARIANTS = 600
INTERVAL = "2s"
SETTLING_SECONDS = 20.0
PEACE_SECONDS = 10.0
PUSHED = ("pings", "settings", "empty_data", "resets", "half_open", "zero_window", "unread", "calls", "one_name")


async def _peace(_: AttackWorld) -> None:
    await asyncio.sleep(PEACE_SECONDS)


def _largest_page() -> str:
    """Return a page of a picker as large as is read, in which a model has as many lines as fit."""
    lines, size = [], 0
    for number in itertools.count():
        line = f'{QUEUE}{{target_model_name="org/zero-{number % 9000}",tenant="t-{number}"}} 1\n'
        size += len(line)
        if size > 4_000_000:
            break
        lines.append(line)
    return "".join(lines)


async def _large_picker(world: AttackWorld) -> None:
    page = _largest_page()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=page)

    await world.picker(answer)


ATTACKS = [
    Attack("peace", during=_peace),
    next(each for each in test_endpoint.ATTACKS if str(each).startswith("explanations_on_more")),
    *(test_push.row(each, seconds=PEACE_SECONDS, answer_seconds=60.0) for each in PUSHED),
    Attack("the_largest_page_of_a_picker", before=_large_picker, during=_peace),
]


async def _do(step: Any, world: AttackWorld) -> None:
    done = step(world)
    if inspect.isawaitable(done):
        await done


def _fleet(world: AttackWorld) -> None:
    """Create the variants, two of each model, and their Deployments with a pod each."""
    for number in range(VARIANTS):
        name = f"fleet-{number:03d}"
        spec = clone(world.api.store.get(DEPLOYMENTS, Key(TENANT, "bad"))["spec"])
        spec["selector"]["matchLabels"] = spec["template"]["metadata"]["labels"] = {"app": name}
        world.api.store.create(DEPLOYMENTS, {"metadata": {"name": name, "namespace": TENANT}, "spec": spec})
        model = f"org/fleet-{number // 2}"
        world.variant(name, model=model)
        world.pages[TENANT, name] = lambda _, model=model: page(model)
    world.workload("last")  # this makes the pods of all


async def _scrapes(world: AttackWorld) -> None:
    """Read the page of metrics each second, as Prometheus does."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        while True:
            await asyncio.sleep(1.0)
            if world.app is not None and world.app.metrics_port is not None:
                scheme, headers = ("https", {"Authorization": f"Bearer {world.token}"}) if world.token else ("http", {})
                url = f"{scheme}://127.0.0.1:{world.app.metrics_port}/metrics"
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(url, headers=headers) as answer:
                        await answer.read()


async def _played(folder: Path, attack: Attack) -> list[tuple[float, str]]:
    """Return the longest piece in seconds, and what it was, of the start and then of the attack."""
    found = []
    async with AttackWorld(folder).open() as world, AsyncExitStack() as stack:
        world.victim()
        world.bad()
        await _do(attack.before, world)
        _fleet(world)
        await world.scrape()
        meter = await stack.enter_async_context(Meter().running(lambda: None))
        with as_controller():
            environment = {"PROMETHEUS_BASE_URL": world.url, **attack.environment}
            await stack.enter_async_context(world.controller(interval=INTERVAL, **environment))
        scrapes = asyncio.create_task(_scrapes(world))
        stack.callback(scrapes.cancel)
        await until(lambda: len(world.app.ledger.decisions()) >= VARIANTS, seconds=60)
        await asyncio.sleep(SETTLING_SECONDS)
        found.append((meter.piece, meter.what))
        meter.piece, meter.what = 0.0, ""
        await _do(attack.during, world)
        found.append((meter.piece, meter.what))
    return found


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_longest_piece(tmp_path: Path, attack: Attack) -> None:
    """Print it; what is allowed under attack is in ``tests/attack``."""
    log.configure(level="error", encoding="json")
    (start, at_start), (longest, what) = asyncio.run(_played(tmp_path, attack))
    print(f"\n{attack}: {longest * 1000:.0f} ms ({what}); {start * 1000:.0f} ms at the start ({at_start})")
    assert longest > 0.0
