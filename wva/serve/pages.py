"""The pages of the servers: the probes, the metrics, and pages of JSON behind the same gate as the metrics.

``/healthz`` fails when a loop of the process hangs. Then the kubelet restarts the container. ``/readyz`` names all that
is not ready. Both give one reason per line, because ``kubectl describe pod`` shows the lines. Neither depends on
leadership, because a standby is ready to lead.
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
"""Returns what is wrong, one line per reason."""
JsonPage: TypeAlias = Callable[[], object]
_Page: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.Response]]

METRICS_PATH: Final = "/metrics"
_READ: Final = frozenset({"GET", "HEAD"})
_GZIP_LEVEL: Final = 1
"""The page repeats itself. For 1,000 variants, 454 kB become 21 kB in 0.7 ms, or 17 kB in five times as long."""
_WORTH_COMPRESSING_BYTES: Final = 4096
_SAMPLES_PER_VARIANT: Final = 30
"""As many take about as long to render as one decision takes."""
_PIECES_PER_SAMPLE: Final = 20
"""As many pieces of ready text take about as long to join and compress as one sample takes to render."""
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
    """Return the handler of ``/metrics`` and ``pages`` (path to a function whose result is sent as JSON).

    Without ``gate`` all clients get in. ``series`` has the text of the families about variants; without it, they are
    rendered like the others.
    """
    known: dict[str, _Page] = {METRICS_PATH: partial(_exposition, registry, series)}

    async def send_json(page: JsonPage, _: web.BaseRequest) -> web.Response:
        return web.Response(body=msgspec.json.encode(page()), content_type="application/json")

    known |= {path: partial(send_json, page) for path, page in (pages or {}).items()}
    return _serve(known, gate)


def probes_handler(not_ready: ProbeCheck, *, unhealthy: ProbeCheck = list) -> Handler:
    """Return the handler of ``/healthz`` and ``/readyz``, which answers all clients."""

    async def probe(check: ProbeCheck, state: str, _: web.BaseRequest) -> web.Response:
        reasons = check()
        if reasons:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(f"{state}: {reason}" for reason in reasons))
        return plain(HTTPStatus.OK, "ok")

    pages = {"/healthz": partial(probe, unhealthy, "unhealthy"), "/readyz": partial(probe, not_ready, "not ready")}
    return _serve(pages, None)


def _serve(pages: Mapping[str, _Page], gate: Gate | None) -> Handler:
    """Return a handler that asks the gate first, and then looks for the page by the same path."""

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
    """Collected families, in the form that the library renders."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


async def _exposition(registry: CollectorRegistry, series: SeriesText | None, request: web.BaseRequest) -> web.Response:
    """Return the page in the format and encoding that the scraper asks for."""
    # The library accepts any text as a version, so formats in unknown versions are left out.
    accept = request.headers.get("Accept", "").split(",")
    known = ",".join(entry for entry in accept if set(_VERSION.findall(entry)) <= _VERSIONS)
    encode, content_type = choose_encoder(known)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    zipped = gzip_accepted(request.headers.get("Accept-Encoding", ""))
    left_out = frozenset(head.name for head in series.heads) if series is not None else frozenset()
    # Other tasks may run between two families, because one takes a while for thousands of variants.
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
    """Return the lines above the series of a family."""
    return encode(_Collected([Metric(head.name, head.help, head.type)])).removesuffix(_END)
