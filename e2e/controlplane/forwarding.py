"""The kubelet's port-forward: connects a WebSocket of the API server to a port of this machine.

A real kubelet connects to the network of the pod. Here a pod is a process on loopback, so the address of the pod is
asked for, and where that is none of loopback, 127.0.0.1 stands for it.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from e2e.controlplane.certs import Authority

_PROTOCOL: Final = "v4.channel.k8s.io"
_DATA: Final = b"\x00"
_ERROR: Final = b"\x01"
_LOOPBACK: Final = "127.0.0.1"
_PIECE_BYTES: Final = 65_536


@asynccontextmanager
async def forwarding(address_of: Callable[[str, str], str]) -> AsyncIterator[int]:
    """Serve port-forward over TLS while inside; yields the port. ``address_of`` tells the address of a pod."""

    async def forward(request: web.Request) -> web.WebSocketResponse:
        port = int(request.query["port"])
        socket = web.WebSocketResponse(protocols=(_PROTOCOL,))
        await socket.prepare(request)
        for channel in (_DATA, _ERROR):
            await socket.send_bytes(channel + port.to_bytes(2, "little"))
        address = address_of(request.match_info["namespace"], request.match_info["pod"])
        host = address if address and IPv4Address(address).is_loopback else _LOOPBACK
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            await socket.send_bytes(_ERROR + f"cannot connect to port {port}: {error.strerror}".encode())
            await socket.close()
            return socket
        sending = asyncio.create_task(_send(reader, socket))
        try:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == _DATA:
                    writer.write(message.data[1:])
                    await writer.drain()
        finally:
            sending.cancel()
            writer.close()
            with suppress(asyncio.CancelledError, ConnectionError):
                await sending
        return socket

    application = web.Application()
    application.router.add_get("/portForward/{namespace}/{pod}", forward)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, _LOOPBACK, 0, ssl_context=_tls())
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _send(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    while data := await reader.read(_PIECE_BYTES):
        await socket.send_bytes(_DATA + data)
    await socket.close()


def _tls() -> ssl.SSLContext:
    """Return a context with a certificate of its own; the API server does not check it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        pair = Authority(Path(folder), "kubelet-authority").issue("kubelet", hosts=[_LOOPBACK])
        context.load_cert_chain(pair.certificate, pair.key)
    return context
