"""A local port that leads to a port of a pod, through the API server."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from wva.api.kinds import PODS
from wva.api.meta import Key
from wva.kube.client import FORWARD_PROTOCOL, KubeClient
from wva.kube.errors import Forbidden, Unreachable
from wva.kube.portforward import PortForward

POD, PORT = Key("demo", "manager-0"), 8443


class Kubelet:
    """The other end: echoes what comes, in upper case."""

    def __init__(self) -> None:
        """Echo."""
        self.failure = b""
        self.protocols: tuple[str, ...] = (FORWARD_PROTOCOL,)
        self.closed = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Speak the kubelet's subprotocol."""
        socket = web.WebSocketResponse(protocols=self.protocols)
        await socket.prepare(request)
        port = int(request.query["ports"]).to_bytes(2, "little")
        await socket.send_bytes(b"\x00" + port)
        await socket.send_bytes(b"\x01" + port)
        if self.failure:
            await socket.send_bytes(b"\x01" + self.failure)
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                assert message.data[:1] == b"\x00"
                await socket.send_bytes(b"\x00" + message.data[1:].upper())
        self.closed.set()
        return socket


@pytest.fixture
def kubelet(server: Any) -> Kubelet:
    """Let the server speak for a kubelet."""
    made = Kubelet()
    server.answer = made.answer
    return made


async def exchange(forward: PortForward[Any], text: bytes) -> bytes:
    """Return what comes back for a text through the local port; empty if the connection ends."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        writer.write(text)
        answer = await reader.read(len(text))
        writer.close()
        return answer


async def test_bytes_go_to_the_pod_and_back(server: Any, client: KubeClient, kubelet: Kubelet) -> None:
    """Each connection is a WebSocket to the pod; the frames that name the port are not part of the answer."""
    async with PortForward(client, PODS, POD, PORT).listening() as forward:
        assert await exchange(forward, b"hello") == b"HELLO"
        assert await exchange(forward, b"again") == b"AGAIN"
        await asyncio.wait_for(kubelet.closed.wait(), 10)
    assert server.last.path == "/api/v1/namespaces/demo/pods/manager-0/portforward"
    assert server.last.query == {"ports": "8443"}
    assert forward.failure is None


async def test_what_the_kubelet_says_of_a_failure_is_kept(client: KubeClient, kubelet: Kubelet) -> None:
    """The local connection ends, and the failure has the kubelet's words."""
    kubelet.failure = b"no listener on port 8443"
    async with PortForward(client, PODS, POD, PORT).listening() as forward:
        assert await exchange(forward, b"hello") == b""
        assert isinstance(forward.failure, Unreachable)
        assert "no listener on port 8443" in str(forward.failure)


async def test_a_refusal_of_the_api_server_is_kept(server: Any, client: KubeClient) -> None:
    """Without the right to forward ports there is no connection."""

    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "message": "no"}, status=403)

    server.answer = refuse
    async with PortForward(client, PODS, POD, PORT).listening() as forward:
        assert await exchange(forward, b"hello") == b""
        assert isinstance(forward.failure, Forbidden)


async def test_another_protocol_is_refused(client: KubeClient, kubelet: Kubelet) -> None:
    """A server that does not speak the subprotocol would mix up channels."""
    kubelet.protocols = ()
    async with PortForward(client, PODS, POD, PORT).listening() as forward:
        assert await exchange(forward, b"hello") == b""
        assert isinstance(forward.failure, Unreachable)
        assert "no WebSocket with v4.channel.k8s.io" in str(forward.failure)


async def test_leaving_ends_open_connections(client: KubeClient, kubelet: Kubelet) -> None:
    """A client that holds its connection does not hold up the end."""
    async with asyncio.timeout(10):
        async with PortForward(client, PODS, POD, PORT).listening() as forward:
            reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
            writer.write(b"held")
            assert await reader.read(4) == b"HELD"
        assert await reader.read() == b""
        await kubelet.closed.wait()
        writer.close()
