"""What the servers answer: the probes, the metrics, and pages of JSON beside them behind the same gate.

``/healthz`` answers as long as the event loop runs, and fails when a loop of the process does not come back: then the
kubelet restarts the container. ``/readyz`` names everything that is not ready. Both give one reason per line, so that
``kubectl describe pod`` shows them; neither depends on leadership, because a standby is ready to lead.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted

from wva.publish.leader_collector import Head
from wva.publish.series import SeriesText
from wva.serve.gate import Gate, plain
from wva.serve.http import Handler
from wva.slices import Slices, beside

ProbeCheck: TypeAlias = Callable[[], list[str]]
"""Returns what is wrong, one line per reason; empty when nothing is."""
JsonPage: TypeAlias = Callable[[], object]
_Page: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.Response]]
_Refusal: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.Response | None]]

METRICS_PATH: Final = "/metrics"
_READ: Final = frozenset({"GET", "HEAD"})
_GZIP_LEVEL: Final = 1
"""The page repeats itself: for 1,000 variants 454 kB become 21 in 0.7 ms, and 17 in five times that."""
_WORTH_COMPRESSING_BYTES: Final = 4096
_SAMPLES_PER_VARIANT: Final = 30
"""That cost about as much to render as a decision."""

_PIECES_PER_SAMPLE: Final = 20
"""Pieces of text that are ready: to join and compress them takes so many times less than to render a sample."""

_END: Final = b"# EOF\n"
"""The last line of OpenMetrics."""

_VERSION: Final = re.compile(r"version=([^;]*)")
_VERSIONS: Final = frozenset({"0.0.1", "0.0.4", "1.0.0"})


def metrics_handler(
    registry: CollectorRegistry,
    *,
    gate: Gate | None,
    pages: Mapping[str, JsonPage] | None = None,
    series: SeriesText | None = None,
) -> Handler:
    """Return what serves ``/metrics`` and ``pages`` (path to a function whose result is sent as JSON).

    ``gate`` None lets all clients in. ``series`` has the text of the families about variants. Without it they are
    rendered like all others.
    """
    known: dict[str, _Page] = {path: _json(page) for path, page in (pages or {}).items()}
    known[METRICS_PATH] = partial(_exposition, registry, series)
    if gate is None:
        return _serve(known, _all_pass)
    return _serve(known, lambda request: gate.refusal(request, pages=known))


def probes_handler(not_ready: ProbeCheck, *, unhealthy: ProbeCheck = list) -> Handler:
    """Return what serves ``/healthz`` and ``/readyz`` to all clients."""
    pages = {"/healthz": _probe(unhealthy, "unhealthy"), "/readyz": _probe(not_ready, "not ready")}
    return _serve(pages, _all_pass)


def _probe(check: ProbeCheck, state: str) -> _Page:
    async def respond(_: web.BaseRequest) -> web.Response:
        reasons = check()
        if reasons:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(f"{state}: {reason}" for reason in reasons))
        return plain(HTTPStatus.OK, "ok")

    return respond


def _serve(pages: Mapping[str, _Page], refusal: _Refusal) -> Handler:
    """Return a handler that asks the gate first and looks for the page then, by the same path."""

    async def handle(request: web.BaseRequest) -> web.Response:
        refused = await refusal(request)
        if refused is not None:
            return refused
        page = pages.get(request.path)
        if page is None:
            return plain(HTTPStatus.NOT_FOUND, "not found")
        if request.method not in _READ:
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", Allow="GET, HEAD")
        return await page(request)

    return handle


async def _all_pass(_: web.BaseRequest) -> web.Response | None:
    return None


def _json(page: JsonPage) -> _Page:
    async def respond(_: web.BaseRequest) -> web.Response:
        return web.Response(body=msgspec.json.encode(page()), content_type="application/json")

    return respond


def _known_versions(accept: str) -> str:
    """Return an Accept header without the formats in unknown versions: the library takes any text for one."""
    ranges = [entry for entry in accept.split(",") if set(_VERSION.findall(entry)) <= _VERSIONS]
    return ",".join(ranges)


class _Collected:
    """Families that have been collected, in the form that the library renders."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


async def _collect(registry: CollectorRegistry, *, left_out: frozenset[str]) -> list[Metric]:
    """Return the families, and let other tasks run between them: for thousands of variants each takes a while."""
    slices, families = Slices(), []
    for family in registry.collect():
        if family.name not in left_out:
            families.append(family)
        await slices.rest()
    return families


async def _exposition(registry: CollectorRegistry, series: SeriesText | None, request: web.BaseRequest) -> web.Response:
    """Return the page in the format and encoding that the scraper asks for."""
    encode, content_type = choose_encoder(_known_versions(request.headers.get("Accept", "")))
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    zipped = gzip_accepted(request.headers.get("Accept-Encoding", ""))
    left_out = frozenset(head.name for head in series.heads) if series is not None else frozenset()
    families = await _collect(registry, left_out=left_out)
    about_variants = [] if series is None else await series.page(partial(_heading, encode))

    def render() -> tuple[bytes, bool]:
        own: bytes = encode(_Collected(families))
        end = _END if own.endswith(_END) else b""
        body = b"".join((own.removesuffix(end), *about_variants, end))
        if zipped and len(body) >= _WORTH_COMPRESSING_BYTES:
            return gzip.compress(body, _GZIP_LEVEL, mtime=0), True
        return body, False

    size = sum(len(family.samples) for family in families) + len(about_variants) // _PIECES_PER_SAMPLE
    body, compressed = await beside(size // _SAMPLES_PER_VARIANT, render)
    if compressed:
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, headers=headers)


def _heading(encode: Callable[[_Collected], bytes], head: Head) -> bytes:
    """Return what stands above the series of a family."""
    return encode(_Collected([Metric(head.name, head.help, head.type)])).removesuffix(_END)
