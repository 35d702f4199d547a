"""Sends the requests of a schedule, each at its time whether or not earlier ones are answered.

Users do the same: a server that slows down must not slow the load down, or the queue it builds would never be seen.
The number of requests on their way is limited all the same; requests beyond the limit are not sent, but counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from wva.clock import Clock
from wva.sim.loadgen.client import ChatClient
from wva.sim.loadgen.report import ResultTally


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run: concurrent requests, and seconds and tokens for each."""

    concurrency: int = 1024
    timeout_seconds: float = 120.0
    max_tokens: int | None = None


async def generate(
    client: ChatClient, at_seconds: Iterable[float], *, limits: RunLimits, clock: Clock, tally: ResultTally
) -> None:
    """Send a request at each of ``at_seconds`` from now, and return when all are answered or given up.

    When it is cancelled, the requests on their way are given up.
    """
    started = clock.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for offset_seconds in at_seconds:
            wait = started + offset_seconds - clock.monotonic()
            if wait > 0:
                await clock.sleep(wait)
            else:
                tally.late_seconds = max(tally.late_seconds, -wait)
                await asyncio.sleep(0)
            if tally.sent - len(tally.results) >= limits.concurrency:
                tally.not_sent += 1
                continue
            tally.sent += 1
            tasks.create_task(_send(client, limits, tally))


async def _send(client: ChatClient, limits: RunLimits, tally: ResultTally) -> None:
    result = await client.send(max_tokens=limits.max_tokens, timeout_seconds=limits.timeout_seconds)
    tally.results.append(result)
