"""Accepts the connections of a server within a limit, and holds each from its handshake to its end.

When all places are taken, a new connection replaces the idlest one that may go. Connections that were never of use go
first, so a client that only holds connections open keeps nobody out.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from wva import log
from wva.instruments import Instruments
from wva.serve.addresses import Address

TlsSource: TypeAlias = Callable[[], ssl.SSLContext]

_ACCEPT_PAUSE_SECONDS: Final = 1.0

_throttle = log.Throttle()
"""A client may cause any number of failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """How many connections there may be, and how long their handshakes and their ends may take.

    ``eviction_seconds`` pass after one connection has made room for another. Otherwise clients that connect again at
    once would replace a newcomer before it can say anything.
    """

    connections: int = 128
    handshake_seconds: float = 10.0
    goodbye_seconds: float = 1.0
    eviction_seconds: float = 0.0


class ServedConnection(ABC, asyncio.Protocol):
    """A connection that a listener holds: ``last_used_at`` is in seconds of the event loop's clock."""

    busy: bool = False
    """Whether it must stay, because a request is being answered."""
    useful: bool = False
    """Whether it had an answer that was of use."""
    last_used_at: float = 0.0

    @abstractmethod
    async def hold(self) -> None:
        """Return when the connection has ended."""

    @abstractmethod
    def abort(self, cause: str = "") -> None:
        """Close at once, and count ``cause`` if there is one. What was not sent yet is lost."""


ServedT = TypeVar("ServedT", bound=ServedConnection)


class Listener(Generic[ServedT]):
    """Listens at an address; use as ``async with``."""

    def __init__(
        self,
        connect: Callable[[], ServedT],
        address: Address,
        *,
        name: str,
        instruments: Instruments,
        tls: TlsSource | None,
        limits: ListenerLimits,
    ) -> None:
        """Prepare; nothing listens before ``__aenter__``.

        ``connect`` makes the protocol of an accepted connection. ``tls`` is called for each connection.
        """
        self._connect = connect
        self._address = address
        self._name = name
        self._tls = tls
        self._limits = limits
        self._logger = log.get("serve")
        self._ends = instruments.endpoint_connections_closed
        self._connections: dict[ServedT, asyncio.Task[None]] = {}
        self._stack = AsyncExitStack()
        self.port = address.port
        instruments.endpoint_connections.labels(server=name).set_function(lambda: len(self._connections))

    async def __aenter__(self) -> Self:
        """Listen. Raises AddressError when the address is taken or not ours."""
        sockets = await self._address.bind(self._name, backlog=self._limits.connections)
        async with AsyncExitStack() as stack:
            for listening in sockets:
                stack.callback(listening.close)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            self._group = group
            self._tasks = [group.create_task(self._accept(listening, group)) for listening in sockets]
            self._stack = stack.pop_all()
        self.port = int(sockets[0].getsockname()[1])
        self._logger.info("server_started", server=self._name, port=self.port, tls=self._tls is not None)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop accepting, and end all connections."""
        self.stop()
        for task in list(self._connections.values()):
            task.cancel()
        await self._stack.aclose()

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` until the listener stops."""
        self._tasks.append(self._group.create_task(work))

    def stop(self) -> None:
        """Accept no more connections."""
        for task in self._tasks:
            task.cancel()

    @property
    def open_connections(self) -> int:
        """How many connections there are, with those in their handshake."""
        return len(self._connections)

    def closed(self, cause: str) -> None:
        """Count a connection that this side ended."""
        self._ends.labels(server=self._name, cause=cause).inc()

    async def _accept(self, listening: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except ConnectionAbortedError:  # the client has gone before it was accepted
                continue
            except OSError as error:  # no file descriptors are left; clients wait in the kernel
                self._logger.warning("accept_failed", server=self._name, error=error.strerror)
                await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            full = len(self._connections) >= self._limits.connections
            if full and not self._evict():
                self.closed("refused")
                accepted.close()
                continue
            connection = self._connect()
            connection.last_used_at = loop.time()
            serving = self._connections[connection] = group.create_task(self._serve(connection, accepted))
            # A task that is cancelled before its first step runs none of its code.
            serving.add_done_callback(partial(_close, accepted))
            # Clients that wait are accepted in a turn of the loop each, because their handshakes take milliseconds.
            await asyncio.sleep(self._limits.eviction_seconds if full else 0)

    def _evict(self) -> bool:
        """End the connection that is missed least, to make room. Busy ones stay; return False if all are busy."""
        waiting = [connection for connection in self._connections if not connection.busy]
        if not waiting:
            return False
        self.closed("evicted")
        victim = min(waiting, key=lambda connection: (connection.useful, connection.last_used_at))
        self._connections.pop(victim).cancel()
        return True

    async def _serve(self, connection: ServedT, accepted: socket.socket) -> None:
        """Hold one connection from its handshake to its end."""
        limits = self._limits
        seconds = {"ssl_handshake_timeout": limits.handshake_seconds, "ssl_shutdown_timeout": limits.goodbye_seconds}
        try:
            try:
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=self._tls() if self._tls else None,
                    **(seconds if self._tls else {}),
                )
            except OSError:  # anything that a client sends instead of TLS
                self.closed("handshake")
                return
            await connection.hold()
        except Exception as error:
            if _throttle.permits(self._name, type(error).__name__, time.monotonic()):
                self._logger.exception("connection_failed", server=self._name)  # only this connection ends
        finally:
            connection.abort()
            self._connections.pop(connection, None)


def _close(accepted: socket.socket, _: asyncio.Task[None]) -> None:
    accepted.close()
