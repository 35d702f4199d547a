"""Fetchers of ``/metrics`` pages: a function of the simulated world, or a real endpoint over HTTP(S)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp

_ACCEPT = "text/plain;version=0.0.4;q=1,*/*;q=0.1"
_OK = 200


class ScrapeError(Exception):
    """The target gave no page; the message has the reason."""


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A fetched page; the duration becomes ``scrape_duration_seconds``."""

    text: str
    duration_seconds: float = 0.0


class Fetcher(Protocol):
    """Gets one page; raises ScrapeError if there is none."""

    async def fetch(self) -> FetchedPage:
        """Return the current page of the target."""
        ...


@dataclass(frozen=True, slots=True)
class InProcess:
    """A target of the simulated world: a plain function that renders the page, or raises ScrapeError.

    The fetch takes no time, because simulated time passes only when the world says so.
    """

    render: Callable[[], str]

    async def fetch(self) -> FetchedPage:
        """Render the page."""
        return FetchedPage(self.render())


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A real endpoint, such as the controller's own HTTPS ``/metrics``.

    ``verify`` is an SSL context, or False for self-signed certificates. The connection lives for one scrape
    only: there is one such target, and nothing is left to close. Sockets live in real time, so the time-out and the
    measured duration use the event loop's clock and not the world's.
    """

    url: str
    verify: ssl.SSLContext | bool = True
    bearer_token: str | None = field(default=None, repr=False)
    timeout_seconds: float = 10.0

    async def fetch(self) -> FetchedPage:
        """GET the page; any answer but 200, and any failure of the network, is a ScrapeError."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        headers = {"Accept": _ACCEPT}
        if self.bearer_token is not None:
            headers["Authorization"] = f"Bearer {self.bearer_token}"
        try:
            async with (
                asyncio.timeout(self.timeout_seconds),
                aiohttp.ClientSession(headers=headers) as session,
                session.get(self.url, ssl=self.verify) as response,
            ):
                if response.status != _OK:
                    raise ScrapeError(f"GET {self.url}: server returned HTTP status {response.status}")
                text = await response.text()
        except TimeoutError as e:
            raise ScrapeError(f"GET {self.url}: no answer in {self.timeout_seconds} s") from e
        except (aiohttp.ClientError, OSError, UnicodeDecodeError) as e:
            raise ScrapeError(f"GET {self.url}: {e}") from e
        return FetchedPage(text, loop.time() - started)
