"""Clients take turns, few of one may wait, and who leaves blocks nobody."""

from __future__ import annotations

import asyncio

import pytest

from tests.kube.clocks import settle
from wva.serve.gate import Throttled
from wva.serve.turns import Turns


class WaitingClients:
    """Turns, and the order in which they came."""

    def __init__(self, *, each=4, most=48):
        """Hold the first turn."""
        self.turns = Turns(each=each, most=most)
        self.order = []

    async def ask(self, client):
        """Wait for a turn, note it, and end it."""
        await self.turns.take(client)
        self.order.append(client)
        await asyncio.sleep(0)
        self.turns.done()


async def test_a_client_waits_for_its_own_work_and_not_for_that_of_others():
    """One client asks four times and then another once: it is second."""
    queue = WaitingClients()
    await queue.turns.take("first")
    tasks = [asyncio.create_task(queue.ask(client)) for client in ("a", "a", "a", "a", "b")]
    await settle()
    queue.turns.done()
    await asyncio.gather(*tasks)
    assert queue.order == ["a", "b", "a", "a", "a"]


async def test_only_few_of_one_client_and_of_all_may_wait():
    """The next one is told when to come again, and others still get in."""
    queue = WaitingClients(each=2, most=3)
    await queue.turns.take("a")
    waiting = [asyncio.create_task(queue.ask("a")) for _ in range(2)]
    await settle()
    with pytest.raises(Throttled):
        await queue.turns.take("a")
    waiting.append(asyncio.create_task(queue.ask("b")))
    await settle()
    with pytest.raises(Throttled):
        await queue.turns.take("c")
    queue.turns.done()
    await asyncio.gather(*waiting)
    await asyncio.wait_for(queue.turns.take("c"), 1.0)


async def test_who_leaves_has_no_turn():
    """Neither one who still waits nor one who leaves at the moment of its turn keeps others waiting."""
    queue = WaitingClients()
    await queue.turns.take("a")
    gone, late, last = (asyncio.create_task(queue.ask(client)) for client in ("a", "b", "c"))
    await settle()
    gone.cancel()
    await settle()
    queue.turns.done()  # b's turn comes
    late.cancel()
    await asyncio.wait_for(last, 1.0)
    assert queue.order == ["c"]
    assert gone.cancelled()
    assert late.cancelled()
    await asyncio.wait_for(queue.turns.take("d"), 1.0)
