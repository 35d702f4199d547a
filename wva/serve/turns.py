"""One at a time: clients take turns, so nobody waits behind all that another one asks for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Final

from wva.serve.gate import Throttled

RETRY_SECONDS: Final = 5.0


class Turns:
    """A lock for many clients. A client may have ``each`` requests waiting, and all clients together ``most``."""

    def __init__(self, *, each: int, most: int) -> None:
        """Let the first one in."""
        self._each = each
        self._most = most
        self._busy = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """The waiting requests, by client. The client that is next comes first."""

    async def take(self, client: str) -> None:
        """Wait for the turn of a client; ``done`` must follow. Raises Throttled where too many wait already."""
        if not self._busy:
            self._busy = True
            return
        client_queue = self._waiting.get(client, ())
        if len(client_queue) >= self._each or sum([len(queue) for queue in self._waiting.values()]) >= self._most:
            raise Throttled(RETRY_SECONDS)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn came, and nobody is left to take it
                self.done()
            raise

    def done(self) -> None:
        """End a turn, and begin that of the next client."""
        while self._waiting:
            client, client_queue = next(iter(self._waiting.items()))
            turn = client_queue.popleft()
            if client_queue:
                self._waiting.move_to_end(client)
            else:
                del self._waiting[client]
            if not turn.done():  # who gave up has no turn
                turn.set_result(None)
                return
        self._busy = False
