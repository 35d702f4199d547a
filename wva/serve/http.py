"""The servers: probes over HTTP, metrics over HTTPS.

``/healthz`` answers as long as the event loop runs. ``/readyz`` names everything that is not ready, one per line, so
that ``kubectl describe pod`` shows the reason; it does not depend on leadership, because a standby is ready to lead.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from wva import log

ReadinessCheck = Callable[[], list[str]]

_MAX_REQUEST_BYTES: Final = 64 * 1024
_SHUTDOWN_SECONDS: Final = 1.0


class AddressError(Exception):
    """A bind address that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; ``host`` None means every interface."""

    host: str | None
    port: int

    @staticmethod
    def parse(text: str, *, setting: str) -> Address | None:
        """Return the address of ``host:port`` or ``:port``; None for ``0`` or empty, which switch the server off.

        Raises AddressError naming ``setting``.
        """
        if text in {"", "0"}:
            return None
        host, separator, port = text.rpartition(":")
        if not separator or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the highest port
            raise AddressError(f"{setting}={text!r}: expected host:port, :port, or 0 to switch it off")
        return Address(host.strip("[]") or None, int(port))


def metrics_app(registry: CollectorRegistry) -> web.Application:
    """Return the application that serves ``/metrics``."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application(client_max_size=_MAX_REQUEST_BYTES)
    app.router.add_get("/metrics", metrics)
    return app


def probes_app(not_ready: ReadinessCheck) -> web.Application:
    """Return the application that serves ``/healthz`` and ``/readyz``."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reasons = not_ready()
        if reasons:
            return web.Response(status=503, text="".join(f"not ready: {reason}\n" for reason in reasons))
        return web.Response(text="ok\n")

    app = web.Application(client_max_size=_MAX_REQUEST_BYTES)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


class Server:
    """One listening server; use as ``async with``."""

    def __init__(self, app: web.Application, address: Address, *, name: str, tls: ssl.SSLContext | None = None) -> None:
        """Prepare; nothing listens before ``__aenter__``."""
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        self._address = address
        self._name = name
        self._tls = tls
        self.port = address.port

    async def __aenter__(self) -> Self:
        """Listen. Raises AddressError when the address is taken or not ours."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address.host, self._address.port, ssl_context=self._tls)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            where = f"{self._address.host or ''}:{self._address.port}"
            raise AddressError(f"cannot listen on {where} for {self._name}: {error.strerror or error}") from error
        self.port = int(self._runner.addresses[0][1])
        log.get("serve").info("server_started", server=self._name, port=self.port, tls=self._tls is not None)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop accepting, let running requests end, close."""
        await self._runner.cleanup()
