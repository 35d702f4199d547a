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

from wva.publish.metrics import Family, SeriesText
from wva.serve.gate import Gate, plain
from wva.serve.http import Handler
from wva.slices import Slices, beside

ProbeCheck: TypeAlias = Callable[[], list[str]]
"""Returns what is wrong, one line per reason; empty when nothing is."""
JsonPage: TypeAlias = Callable[[], object]
_Page: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.Response]]

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
    known: dict[str, _Page] = {METRICS_PATH: partial(_exposition, registry, series)}

    async def send_json(page: JsonPage, _: web.BaseRequest) -> web.Response:
        return web.Response(body=msgspec.json.encode(page()), content_type="application/json")

    for path, page in (pages or {}).items():
        known[path] = partial(send_json, page)
    return _serve(known, gate)


def probes_handler(not_ready: ProbeCheck, *, unhealthy: ProbeCheck = list) -> Handler:
    """Return what serves ``/healthz`` and ``/readyz`` to all clients."""

    async def probe(check: ProbeCheck, state: str, _: web.BaseRequest) -> web.Response:
        reasons = check()
        if reasons:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(f"{state}: {reason}" for reason in reasons))
        return plain(HTTPStatus.OK, "ok")

    pages = {"/healthz": partial(probe, unhealthy, "unhealthy"), "/readyz": partial(probe, not_ready, "not ready")}
    return _serve(pages, None)


def _serve(pages: Mapping[str, _Page], gate: Gate | None) -> Handler:
    """Return a handler that asks the gate first and looks for the page then, by the same path."""

    async def handle(request: web.BaseRequest) -> web.Response:
        refused = None if gate is None else await gate.refusal(request, pages=pages)
        if refused is not None:
            return refused
        page = pages.get(request.path)
        if page is None:
            return plain(HTTPStatus.NOT_FOUND, "not found")
        if request.method not in _READ:
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", Allow="GET, HEAD")
        return await page(request)

    return handle


class _Collected:
    """Families that have been collected, in the form that the library renders."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


async def _exposition(registry: CollectorRegistry, series: SeriesText | None, request: web.BaseRequest) -> web.Response:
    """Return the page in the format and encoding that the scraper asks for."""
    # Formats in unknown versions are left out: the library takes any text for one.
    accept = request.headers.get("Accept", "").split(",")
    known = ",".join(entry for entry in accept if set(_VERSION.findall(entry)) <= _VERSIONS)
    encode, content_type = choose_encoder(known)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    zipped = gzip_accepted(request.headers.get("Accept-Encoding", ""))
    left_out = frozenset(head.name for head in series.heads) if series is not None else frozenset()
    # Other tasks run between the families: for thousands of variants each takes a while.
    slices, families = Slices(), []
    for family in registry.collect():
        if family.name not in left_out:
            families.append(family)
        await slices.rest()
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


def _heading(encode: Callable[[_Collected], bytes], head: Family) -> bytes:
    """Return what stands above the series of a family."""
    return encode(_Collected([Metric(head.name, head.help, head.type)])).removesuffix(_END)
