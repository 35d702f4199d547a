"""The picture of the demo in the README: the live view of ``wva demo`` after 45 minutes of virtual time."""

from __future__ import annotations

import asyncio
import io
from typing import Final

from rich.console import Console

from wva import log
from wva.config import Inputs
from wva.sim.commands import demo, view
from wva.sim.world.scenarios import QUICKSTART
from wva.sim.world.world import EmbeddedWorld

AT_SECONDS: Final = 2700.0


def picture():
    """Return the live view of the default scenario as a block of text."""
    log.configure(level="error", encoding="console")
    return asyncio.run(_shown())


async def _shown():
    world = EmbeddedWorld(QUICKSTART, seed=1)

    async def tick() -> None:
        return None

    await demo.play(world, duration_seconds=AT_SECONDS, tick=tick, inputs=Inputs({}, {}, {}))
    console = Console(file=io.StringIO(), width=118, force_terminal=False, color_system=None)
    console.print(view.render(world, world.traffic.duration_seconds, columns=118, lines=40))
    return f"```text\n{console.file.getvalue().rstrip()}\n```"
