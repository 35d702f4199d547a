"""A scripted HTTP server on loopback, and clients that connect to it with a real kubeconfig."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web
from prometheus_client import CollectorRegistry

from wva.instruments import Instruments
from wva.kube.client import KubeClient

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@dataclass
class Received:
    """One request that the server got."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeServer:
    """Answers every request with ``answer``, which a test sets, and remembers the requests."""

    url: str = ""
    answer: Answer | None = None
    received: list[Received] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Record the request and answer it."""
        body = await request.read()
        self.received.append(Received(request.method, request.path, dict(request.query), dict(request.headers), body))
        assert self.answer is not None
        return await self.answer(request)

    def say(self, body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Answer every request with this JSON, or with these bytes."""

        async def answer(_: web.Request) -> web.StreamResponse:
            if isinstance(body, bytes):
                return web.Response(body=body, status=status, headers=headers)
            return web.json_response(body, status=status, headers=headers)

        self.answer = answer

    @property
    def last(self) -> Received:
        """The last request."""
        return self.received[-1]

    @property
    def tokens(self) -> list[str | None]:
        """The Authorization header of each request."""
        return [request.headers.get("Authorization") for request in self.received]


async def _serve(server: FakeServer, ssl_context: ssl.SSLContext | None) -> AsyncIterator[FakeServer]:
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context).start()
    scheme = "https" if ssl_context else "http"
    server.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """Serve plain HTTP."""
    async for running in _serve(FakeServer(), None):
        yield running


@pytest.fixture
def authority() -> trustme.CA:
    """Return a certificate authority of this test."""
    return trustme.CA()


@pytest.fixture
async def tls_server(authority: trustme.CA) -> AsyncIterator[FakeServer]:
    """Serve HTTPS with a certificate for 127.0.0.1."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async for running in _serve(FakeServer(), context):
        yield running


@pytest.fixture
def instruments() -> Instruments:
    """Return metrics of this test."""
    return Instruments(CollectorRegistry())


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Hide this machine's kubeconfig, cluster and proxies."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return monkeypatch


Kubeconfig = Callable[..., Path]


@pytest.fixture
def kubeconfig(clean_environment: pytest.MonkeyPatch, tmp_path: Path) -> Kubeconfig:
    """Return a function that writes a kubeconfig for a URL and points KUBECONFIG at it."""

    def write(url: str, *, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": url, **cluster}}],
            "users": [{"name": "test", "user": user or {}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        clean_environment.setenv("KUBECONFIG", str(path))
        return path

    return write


Connect = Callable[..., AbstractAsyncContextManager[KubeClient]]


@pytest.fixture
def connect(instruments: Instruments) -> Connect:
    """Return ``KubeClient.connect`` with this test's metrics and a short time limit."""

    def open_client(**options: Any) -> AbstractAsyncContextManager[KubeClient]:
        return KubeClient.connect(instruments=instruments, **{"timeout_seconds": 5.0, **options})

    return open_client


@pytest.fixture
async def client(server: FakeServer, kubeconfig: Kubeconfig, connect: Connect) -> AsyncIterator[KubeClient]:
    """Connect to ``server``."""
    kubeconfig(server.url)
    async with connect() as connected:
        yield connected
