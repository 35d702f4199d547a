"""The embedded Kubernetes API over HTTP: one aiohttp server on loopback in front of an ``ObjectStore``.

It speaks the protocol well enough for unmodified clients: discovery, REST verbs, watches, ``Status`` bodies. One
handler takes every path, since kinds come and go at run time. Beside the URL the server offers what tests need: the
store itself, faults, and the log of requests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import yaml
from aiohttp import web

from wva.sim.apiserver.access import Access, User
from wva.sim.apiserver.bodies import object_body
from wva.sim.apiserver.builtin import SERVICE_ACCOUNTS
from wva.sim.apiserver.cached import Cached
from wva.sim.apiserver.discovery import document
from wva.sim.apiserver.errors import ServedError, method_not_allowed, nothing_served
from wva.sim.apiserver.faults import ApiServerFaults
from wva.sim.apiserver.kinds import KindSpec
from wva.sim.apiserver.lifecycle import STATUS
from wva.sim.apiserver.options import StoreOptions
from wva.sim.apiserver.pages import Pages
from wva.sim.apiserver.requests import ApiRequestLog, RequestInfo, parse
from wva.sim.apiserver.rest import Rest, json_response, number_of, selection_of, version_of
from wva.sim.apiserver.reviews import REVIEWS, TOKEN, ReviewAnswers
from wva.sim.apiserver.store import SCALE, ObjectStore
from wva.sim.apiserver.watches import Watches, WatchRequest

_HOST: Final = "127.0.0.1"
_BODY_LIMIT_BYTES: Final = 8 * 1024**2
_TRUE: Final = frozenset({"1", "true", "True"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Settings of the HTTP face. ``port`` 0 takes a free one. Times are seconds of the event loop."""

    port: int = 0
    bookmark_seconds: float = 60.0
    watch_timeout_seconds: float = 1800.0
    store: StoreOptions = field(default_factory=StoreOptions)


class EmbeddedApiServer:
    """An API server in this process: ``async with ApiServer(now=...) as api: ... api.url ...``."""

    def __init__(
        self,
        kinds: Iterable[KindSpec] = (),
        *,
        now: Callable[[], float] = time.time,
        options: ServerOptions | None = None,
    ) -> None:
        """Serve the built-in kinds and ``kinds``; ``now`` stamps the objects, in seconds since the epoch."""
        self.options = options or ServerOptions()
        self._now = now
        self.store = ObjectStore(kinds, now=now, options=self.options.store)
        self.access = Access(now)
        self._reviews = ReviewAnswers(self.access, self.store)
        self.requests = ApiRequestLog()
        self.watches = Watches(self.store.journal)
        self._pages = Pages()
        cached = Cached(self.store.journal)
        self.faults = ApiServerFaults(self.store, self.watches, self._pages, cached)
        self._rest = Rest(self.store, self._pages, cached)
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The URL at which the server listens. Raises RuntimeError when it does not."""
        if not self._port:
            raise RuntimeError("the API server is not running")
        return f"http://{_HOST}:{self._port}"

    async def __aenter__(self) -> Self:
        """Start to listen."""
        app = web.Application(client_max_size=_BODY_LIMIT_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.on_response_prepare.append(self._date)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, _HOST, self.options.port)
        await site.start()
        self._runner = runner
        self._port = int(runner.addresses[0][1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all watches and stop."""
        del kind, error, trace
        self.faults.clear()
        self.watches.end()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner, self._port = None, 0

    def kubeconfig(self, path: Path, *, token: str = "") -> Path:
        """Write a kubeconfig file that leads to this server; return its path."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": {"server": self.url}}],
            "users": [{"name": "embedded", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}],
            "current-context": "embedded",
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    # --- one request -----------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        info = parse(request.method, request.rel_url.raw_path, request.query)
        self.requests.add(info)
        fault = await self.faults.meet(info, request)
        if fault is not None:
            return fault
        try:
            user = self.access.admit(info, request.headers.get("Authorization", ""))
            return await self._route(info, request, user)
        except ServedError as error:
            return _refusal(error)

    async def _date(self, _: web.Request, response: web.StreamResponse) -> None:
        """Put the time of this server, by which it stamps the objects, into an answer."""
        response.headers["Date"] = formatdate(self._now(), usegmt=True)

    async def _route(self, info: RequestInfo, request: web.Request, user: User) -> web.StreamResponse:
        if not info.resource:
            return self._discover(info)
        if info.resource in REVIEWS and REVIEWS[info.resource][0] == info.group and info.version == "v1":
            if info.verb != "create":
                raise method_not_allowed()
            answer = self._reviews.answer(info, user, await object_body(request))
            return json_response(answer, status=HTTPStatus.CREATED)
        spec = self.store.journal.kinds.find(info.group, info.version, info.resource)
        if spec is SERVICE_ACCOUNTS and info.subresource == TOKEN:
            if info.method != "POST":
                raise method_not_allowed()
            return json_response(self._reviews.issue(info, await object_body(request)), status=HTTPStatus.CREATED)
        if spec is None or not _serves(spec, info.subresource) or (info.namespace and not spec.namespaced):
            return self._nothing_here(info)
        if info.verb == "watch":
            return await self._watch(spec, info, request)
        return await self._rest.handle(spec, info, request)

    def _discover(self, info: RequestInfo) -> web.Response:
        answer = document(self.store.journal.kinds, info.path)
        if answer is None:
            return self._nothing_here(info)
        return web.Response(text=answer) if isinstance(answer, str) else json_response(answer)

    def _nothing_here(self, info: RequestInfo) -> web.Response:
        """Answer 404: with a Status inside the groups of Kubernetes itself, with a plain text elsewhere."""
        root, group, *_ = (*info.path.strip("/").split("/"), "", "")
        built_in = {spec.group for spec in self.store.journal.kinds if spec.built_in}
        if (root == "api" and group) or (root == "apis" and group in built_in):
            raise nothing_served()
        return web.Response(status=HTTPStatus.NOT_FOUND, text="404 page not found\n")

    async def _watch(self, spec: KindSpec, info: RequestInfo, request: web.Request) -> web.StreamResponse:
        query = request.query
        initial = query.get("sendInitialEvents") in _TRUE
        version = version_of(request)
        watch_request = WatchRequest(
            selection=selection_of(spec, info, request),
            version=None if initial or version == 0 else version,
            bookmarks=query.get("allowWatchBookmarks") in _TRUE,
            timeout_seconds=number_of(request, "timeoutSeconds") or self.options.watch_timeout_seconds,
            bookmark_seconds=self.options.bookmark_seconds,
        )
        watch = self.watches.open(self.store.collection(spec), watch_request, request.transport)
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache"})
        try:
            await response.prepare(request)
            await self.watches.run(watch, response.write)
            await response.write_eof()
        except ConnectionResetError:
            return response  # the client went away in the middle of a write: there is no one to answer
        finally:
            self.watches.close(watch)
        return response


def _serves(spec: KindSpec, subresource: str) -> bool:
    return (
        not subresource or (subresource == STATUS and spec.status) or (subresource == SCALE and spec.scale is not None)
    )


def _refusal(error: ServedError) -> web.Response:
    return json_response(error.status(), status=error.code)
