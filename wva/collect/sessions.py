"""HTTP sessions of the Prometheus connection: one for each TLS context, the former closed when it is replaced.

A connection that was opened with an old certificate would stay open, and used, for as long as queries keep it busy. So
the connections of a context go with it: at once, except for those that are just answering a query.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

_CONNECT_TIMEOUT_SECONDS: Final = 4.0


class _Session:
    """The connections of one TLS context (None: plain HTTP), and how many queries use them now."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.users = 0
        self.http = aiohttp.ClientSession(
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
        )


class Sessions:
    """Gives the session of a TLS context. Nothing in it follows proxy variables or keeps cookies."""

    def __init__(self) -> None:
        """Hold nothing; a session begins with its first use."""
        self._current: _Session | None = None
        self._retired: set[_Session] = set()

    @asynccontextmanager
    async def using(self, tls: ssl.SSLContext | None) -> AsyncIterator[aiohttp.ClientSession]:
        """Give the session of ``tls`` for one query; another context than last time closes the connections of that."""
        session = await self._of(tls)
        session.users += 1
        try:
            yield session.http
        finally:
            session.users -= 1
            if session in self._retired and not session.users:
                self._retired.discard(session)
                await session.http.close()

    async def close(self) -> None:
        """Close every connection."""
        sessions = [*self._retired, *([self._current] if self._current else [])]
        self._current = None
        self._retired.clear()
        for session in sessions:
            await session.http.close()

    async def _of(self, tls: ssl.SSLContext | None) -> _Session:
        former = self._current
        if former is not None and former.tls is tls:
            return former
        current = self._current = _Session(tls)
        if former is not None:
            if former.users:
                self._retired.add(former)
            else:
                await former.http.close()
        return current
