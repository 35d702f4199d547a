"""A local port that leads to a port of a pod, through the API server, as ``kubectl port-forward`` makes one.

Each connection to the local port becomes a WebSocket to ``pods/portforward``. Its frames begin with a channel: 0 has
the bytes of the connection, 1 has the message of the kubelet about a failure. The first frame of each channel is the
number of the port. A client needs the right to ``create`` and to ``get`` ``pods/portforward``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Generic, Self

import aiohttp

from wva.api.meta import Key, T
from wva.api.resource import Resource
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, Unreachable

_DATA: Final = 0
_ERROR: Final = 1
_PIECE_BYTES: Final = 64 * 1024
_MAX_ERROR_CHARACTERS: Final = 500


class PortForward(Generic[T]):
    """The connections through one local port. ``failure`` is the error of the last one that failed."""

    def __init__(self, client: KubeClient, resource: Resource[T], pod: Key, port: int) -> None:
        """Lead to ``port`` of ``pod``, one of ``resource``; nothing is connected yet."""
        self._client = client
        self._resource = resource
        self._pod = pod
        self._port = port
        self._running: set[asyncio.Task[None]] = set()
        self.failure: ApiError | None = None
        self.local_port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Self]:
        """Listen on a free port of 127.0.0.1, ``local_port``, while inside."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.local_port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The task of this call belongs to the server, which logs its cancellation as an error.
        task = asyncio.create_task(self._serve(reader, writer))
        self._running.add(task)
        await asyncio.wait([task])
        self._running.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to its end."""
        try:
            socket = await self._client.forward(self._resource, self._pod, self._port)
            try:
                await self._carry(socket, reader, writer)
            finally:
                await socket.close()
        except ApiError as error:
            self.failure = error
        finally:
            writer.close()

    async def _carry(
        self, socket: aiohttp.ClientWebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry bytes in both directions until one side ends."""

        async def send() -> None:
            while data := await reader.read(_PIECE_BYTES):
                await socket.send_bytes(bytes([_DATA]) + data)
            await socket.close()  # the local client has gone

        sending = asyncio.create_task(send())
        opened: set[int] = set()
        try:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                    continue
                channel, data = message.data[0], message.data[1:]
                if channel not in opened:  # the first frame of a channel names the port
                    opened.add(channel)
                elif channel == _ERROR and data:
                    text = data[:_MAX_ERROR_CHARACTERS].decode("utf-8", "replace")
                    raise Unreachable(0, "PortForward", text, attempted=f"port {self._port} of pod {self._pod}")
                elif channel == _DATA:
                    writer.write(data)
                    await writer.drain()
        except ConnectionError:
            return  # the local client has gone
        finally:
            sending.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await sending
