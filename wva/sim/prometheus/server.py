"""The embedded Prometheus as a whole: database, scraper and HTTP server on a loopback port."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from aiohttp import web

from wva.sim.prometheus.api import QueryApi
from wva.sim.prometheus.faults import PrometheusFaults
from wva.sim.prometheus.requests import QueryLog
from wva.sim.prometheus.scrape import Scraper, ScrapeTarget
from wva.sim.prometheus.tsdb import RETENTION_SECONDS, Tsdb

_HOST = "127.0.0.1"
_SHUTDOWN_SECONDS = 1.0


class EmbeddedPrometheus:
    """A Prometheus whose time is ``now``: it scrapes when told to and answers over real HTTP.

    ``async with EmbeddedPrometheus(now=clock.now) as prom:`` then ``prom.url``, ``prom.tsdb``, ``prom.scraper``,
    ``prom.requests``, ``prom.faults`` and ``await prom.scrape()``.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        retention_seconds: float = RETENTION_SECONDS,
    ) -> None:
        """Prepare a server.

        ``tls`` is a server context; if its ``verify_mode`` is CERT_REQUIRED, clients must present a certificate.
        ``token``, if given, is demanded as bearer token.
        """
        self.tsdb = Tsdb(retention_seconds=retention_seconds)
        self.scraper = Scraper(self.tsdb)
        self._now = now
        self._tls = tls
        self._api = QueryApi(self.tsdb, now, token)
        self._port = 0
        self._runner: web.AppRunner | None = None

    @property
    def requests(self) -> QueryLog:
        """The log of requests."""
        return self._api.requests

    @property
    def faults(self) -> PrometheusFaults:
        """The switches of faults."""
        return self._api.faults

    @property
    def token(self) -> str | None:
        """The bearer token that is demanded of the next request, None for none."""
        return self._api.token

    @token.setter
    def token(self, token: str | None) -> None:
        self._api.token = token

    @property
    def url(self) -> str:
        """The base address; the port stays the same through ``unreachable``."""
        return f"{'https' if self._tls is not None else 'http'}://{_HOST}:{self._port}"

    async def scrape(self, *, due: Callable[[ScrapeTarget], bool] = lambda _target: True) -> None:
        """Scrape all targets that are ``due`` once, as of the world's time."""
        await self.scraper.scrape(self._now(), due=due)

    async def __aenter__(self) -> Self:
        """Start to listen."""
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the port and all connections."""
        await self._close()

    @asynccontextmanager
    async def unreachable(self) -> AsyncIterator[None]:
        """Refuse connections for the length of a block; open ones are closed."""
        await self._close()
        try:
            yield
        finally:
            await self._listen()

    async def _listen(self) -> None:
        runner = web.AppRunner(
            self._api.application(), access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handler_cancellation=True
        )
        await runner.setup()
        self._runner = runner
        site = web.TCPSite(runner, _HOST, self._port, ssl_context=self._tls, reuse_address=True)
        await site.start()
        self._port = runner.addresses[0][1]

    async def _close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
