"""Faults on demand, of an API server and of the network in front of it.

Request faults wait in a list; each request takes the first fault that fits. Stream faults act on the open watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

import msgspec
from aiohttp import web

from wva.sim.apiserver.cached import Cached
from wva.sim.apiserver.errors import ServedError
from wva.sim.apiserver.pages import Pages
from wva.sim.apiserver.requests import RequestInfo
from wva.sim.apiserver.store import ObjectStore
from wva.sim.apiserver.watches import Watches

Match: TypeAlias = Callable[[RequestInfo], bool]


def anything(info: RequestInfo) -> bool:
    """Fit every request."""
    del info
    return True


def matching(*, verb: str = "", resource: str = "", subresource: str | None = None, path: str = "") -> Match:
    """Fit requests by verb, resource name, subresource and beginning of the path; empty texts fit everything."""

    def fits(info: RequestInfo) -> bool:
        return (
            verb in ("", info.verb)
            and resource in ("", info.resource_name)
            and subresource in (None, info.subresource)
            and info.path.startswith(path)
        )

    return fits


@dataclass(slots=True)
class _Fault:
    """One planned fault. ``status`` None lets the request pass, and 0 drops the connection."""

    match: Match
    remaining: int | None
    status: int | None = None
    delay_seconds: float = 0.0
    retry_after_seconds: int | None = None
    text: str | None = None


class ApiServerFaults:
    """The faults of one server. ``times`` None means until ``clear``."""

    def __init__(self, store: ObjectStore, watches: Watches, pages: Pages, cached: Cached) -> None:
        """Disturb this store, these watches, these unfinished lists and this cache."""
        self._cached = cached
        self._store = store
        self._pages = pages
        self._watches = watches
        self._planned: list[_Fault] = []

    # --- requests --------------------------------------------------------------------------------------------------

    def answer(
        self,
        status: int,
        *,
        times: int | None = 1,
        match: Match = anything,
        retry_after_seconds: int | None = None,
        text: str | None = None,
    ) -> None:
        """Answer the next requests with ``status``: a ``Status`` body, or ``text`` as a proxy would send it."""
        fault = _Fault(match, times, status, retry_after_seconds=retry_after_seconds, text=text)
        self._planned.append(fault)

    def delay(self, seconds: float, *, times: int | None = 1, match: Match = anything) -> None:
        """Answer the next requests late, by ``seconds`` of the event loop."""
        self._planned.append(_Fault(match, times, delay_seconds=seconds))

    def drop(self, *, times: int | None = 1, match: Match = anything) -> None:
        """Close the connection of the next requests without an answer."""
        self._planned.append(_Fault(match, times, 0))

    def clear(self) -> None:
        """Remove all planned faults, let stalled streams flow, and let the cache follow."""
        self._planned.clear()
        self._cached.go_on()
        self._watches.resume()

    async def meet(self, info: RequestInfo, request: web.Request) -> web.StreamResponse | None:
        """Apply the first fault that fits a request; return the fault's answer, or None to let the request pass."""
        fault = next((planned for planned in self._planned if planned.match(info)), None)
        if fault is None:
            return None
        if fault.remaining is not None:
            fault.remaining -= 1
            if fault.remaining <= 0:
                self._planned.remove(fault)
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.status is None:
            return None
        if fault.status == 0:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        return _answer(fault, fault.status)

    # --- streams ---------------------------------------------------------------------------------------------------

    def cut_watches(self) -> None:
        """Break the connections of all open watches."""
        self._watches.cut()

    def end_watches(self) -> None:
        """End all open watches in good order, as the server does at their time-out."""
        self._watches.end()

    def expire_watches(self) -> None:
        """Send an ERROR event with status 410 to all open watches and end them."""
        self._watches.expire()

    def stall_watches(self) -> None:
        """Send no more bytes on any watch, open or new, as on a half-open connection."""
        self._watches.stall()

    def resume_watches(self) -> None:
        """Let stalled watches flow again, with everything they missed."""
        self._watches.resume()

    def send_bookmarks(self) -> None:
        """Send a bookmark now to all watches that want bookmarks."""
        self._watches.send_bookmarks()

    def lag(self) -> None:
        """Answer lists from a cache that no longer changes from now on, as a server that lags behind does."""
        self._cached.stop()

    def catch_up(self) -> None:
        """Let the cache follow again."""
        self._cached.go_on()

    def compact(self) -> None:
        """Forget the history of changes: watches and continued lists from before now get 410."""
        self._store.compact()
        self._pages.forget()


def _answer(fault: _Fault, status: int) -> web.Response:
    headers = {}
    if fault.retry_after_seconds is not None:
        headers["Retry-After"] = str(fault.retry_after_seconds)
    if fault.text is not None:
        return web.Response(status=status, text=fault.text, headers=headers)
    phrase = HTTPStatus(status).phrase
    details = {} if fault.retry_after_seconds is None else {"retryAfterSeconds": fault.retry_after_seconds}
    reasons = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
    error = ServedError(status, reasons.get(status, phrase.replace(" ", "")), phrase, details=details)
    return web.Response(
        status=status, body=msgspec.json.encode(error.status()), content_type="application/json", headers=headers
    )
