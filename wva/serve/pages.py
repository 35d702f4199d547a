"""The pages of the servers: the probes, the metrics, and pages of JSON behind the same gate as the metrics.

``/healthz`` fails when a loop of the process hangs. Then the kubelet restarts the container. ``/readyz`` names all that
is not ready. Both give one reason per line, because ``kubectl describe pod`` shows the lines. Neither depends on
leadership, because a standby is ready to lead.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted

from wva.publish.metrics import Family, SeriesText
from wva.serve.gate import UNKNOWN, VERB, Guard, plain
from wva.serve.http import Handler
from wva.serve.reviews import PageRight
from wva.slices import Slices, beside

CONFIG_PAGE: Final = "/debug/config"
"""Every setting with its value and source. The page is served beside the metrics, behind the same gate."""
ProbeCheck: TypeAlias = Callable[[], list[str]]
"""Returns what is wrong, one line per reason."""
JsonPage: TypeAlias = Callable[[], object]
Answer: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Page:
    """What is served at a path, and the right that a client needs for it; ``OPEN`` means that it needs none."""

    right: PageRight | None
    answer: Answer


OPEN: Final = None
"""Instead of a right: every client may have the page."""
Router: TypeAlias = Callable[[web.BaseRequest], Page | None]
"""Returns the page that a request asks for, None if there is none."""

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
    gate: Guard | None,
    pages: Mapping[str, JsonPage] | None = None,
    routers: Sequence[Router] = (),
    series: SeriesText | None = None,
) -> Handler:
    """Return the handler of ``/metrics``, ``pages`` (path to a function whose result is sent as JSON) and ``routers``.

    Without ``gate`` all clients get in. ``series`` has the text of the families about variants; without it, they are
    rendered like the others.
    """

    async def send_json(page: JsonPage, _: web.BaseRequest) -> web.Response:
        return json_answer(page())

    answers: dict[str, Answer] = {METRICS_PATH: partial(_exposition, registry, series)}
    answers |= {path: partial(send_json, page) for path, page in (pages or {}).items()}
    return routed_handler([_by_path(answers), *routers], gate=gate)


def json_answer(document: object, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    """Return a document as JSON."""
    return web.Response(status=status, body=msgspec.json.encode(document), content_type="application/json")


def probes_handler(not_ready: ProbeCheck, *, unhealthy: ProbeCheck = list) -> Handler:
    """Return the handler of ``/healthz`` and ``/readyz``, which answers all clients."""

    async def probe(check: ProbeCheck, state: str, _: web.BaseRequest) -> web.Response:
        reasons = check()
        if reasons:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(f"{state}: {reason}" for reason in reasons))
        return plain(HTTPStatus.OK, "ok")

    pages = {"/healthz": partial(probe, unhealthy, "unhealthy"), "/readyz": partial(probe, not_ready, "not ready")}
    return routed_handler([_by_path(pages)], gate=None)


def routed_handler(routers: Sequence[Router], *, gate: Guard | None) -> Handler:
    """Return the handler of the pages that ``routers`` find.

    It asks ``gate`` for the right of the page, or of an unknown one, before it answers. Without ``gate`` all clients
    may have all pages.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        page = next((page for router in routers if (page := router(request)) is not None), None)
        right = UNKNOWN if page is None else page.right
        if gate is not None and right is not None:
            refused = await gate.refusal(request, right)
            if refused is not None:
                return refused
        if page is None:
            return plain(HTTPStatus.NOT_FOUND, "not found")
        if request.method not in _READ:
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", Allow="GET, HEAD")
        return await page.answer(request)

    return handle


def _by_path(answers: Mapping[str, Answer]) -> Router:
    """Return a router for paths, each with a right of its own."""
    pages = {path: Page(PageRight(VERB, path), answer) for path, answer in answers.items()}
    return lambda request: pages.get(request.path)


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
    accepted = ",".join(entry for entry in accept if set(_VERSION.findall(entry)) <= _VERSIONS)
    encode, content_type = choose_encoder(accepted)
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
        rendered: bytes = encode(_Collected(families))
        end = _END if rendered.endswith(_END) else b""
        body = b"".join((rendered.removesuffix(end), *about_variants, end))
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
