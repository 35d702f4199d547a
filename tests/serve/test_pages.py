"""The answers of the servers, over real HTTP."""

from __future__ import annotations

import gzip

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from tests.serve.doubles import serving
from wva.serve.pages import metrics_handler, probes_handler

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.fixture
async def session():
    """Return an HTTP client."""
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
def reasons():
    """Return the list of reasons against readiness. Tests add to it."""
    return []


@pytest.fixture
async def probes(reasons):
    """Return the URL of a probe server."""
    async with serving(probes_handler(lambda: reasons)) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
async def metrics():
    """Return the URL of a metrics server with one gauge."""
    registry = CollectorRegistry()
    Gauge("answer", "All of it.", registry=registry).set(42)
    async with serving(metrics_handler(registry, gate=None)) as server:
        yield f"http://127.0.0.1:{server.port}"


async def test_alive_whatever_is_not_ready(session, probes, reasons):
    """Liveness does not depend on readiness: a restart of WVA does not repair Prometheus."""
    reasons.append("prometheus: refused")
    async with session.get(f"{probes}/healthz") as response:
        assert (response.status, await response.text()) == (200, "ok\n")


async def test_a_loop_that_is_away_is_a_reason_for_a_new_process(session):
    """Liveness fails and names the loop. Readiness is not affected."""
    check = probes_handler(list, unhealthy=lambda: ["optimizer: fails for 301 s (ValueError)"])
    async with serving(check) as server:
        async with session.get(f"http://127.0.0.1:{server.port}/healthz") as response:
            told = (response.status, await response.text())
        assert told == (503, "unhealthy: optimizer: fails for 301 s (ValueError)\n")
        async with session.get(f"http://127.0.0.1:{server.port}/readyz") as response:
            assert response.status == 200


async def test_ready(session, probes):
    """Without a reason against it, the process is ready."""
    async with session.get(f"{probes}/readyz") as response:
        assert (response.status, await response.text()) == (200, "ok\n")


async def test_not_ready_names_every_reason(session, probes, reasons):
    """The answer has status 503 and one reason per line."""
    reasons += ["pods not synced: 403", "prometheus: refused"]
    async with session.get(f"{probes}/readyz") as response:
        assert response.status == 503
        text = await response.text()
        assert text == "not ready: pods not synced: 403\nnot ready: prometheus: refused\n"


async def test_readiness_is_asked_each_time(session, probes, reasons):
    """Each request computes readiness again."""
    for reason, status in (("x", 503), (None, 200)):
        reasons[:] = [reason] if reason else []
        async with session.get(f"{probes}/readyz") as response:
            assert response.status == status


async def test_metrics_are_the_text_format(session, metrics):
    """The answer has the content type of the text format."""
    async with session.get(f"{metrics}/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        assert "charset=utf-8" in response.headers["Content-Type"]
        assert "answer 42.0" in await response.text()


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_head_works_on_probes(session, probes, path):
    """The probes answer HEAD requests, which some load balancers send."""
    async with session.head(f"{probes}{path}") as response:
        assert response.status == 200
        assert await response.read() == b""


async def test_head_works_on_metrics(session, metrics):
    """The metrics page answers HEAD requests."""
    async with session.head(f"{metrics}/metrics") as response:
        assert response.status == 200


@pytest.mark.parametrize("path", ["/", "/metrics/", "/debug/pprof", "/..%2fetc/passwd"])
async def test_anything_else_is_not_found(session, metrics, probes, path):
    """Each server has its own paths and no others."""
    for url in (metrics, probes):
        async with session.get(f"{url}{path}") as response:
            assert response.status == 404


async def test_probes_and_metrics_do_not_mix(session, metrics, probes):
    """The probe server has no metrics, and the metrics server has no probes."""
    for url in (f"{probes}/metrics", f"{metrics}/healthz"):
        async with session.get(url) as response:
            assert response.status == 404


async def test_only_reading_is_allowed(session, metrics):
    """A POST gets 405."""
    async with session.post(f"{metrics}/metrics") as response:
        assert response.status == 405


async def test_a_failing_metric_does_not_close_the_server(session):
    """The failing scrape gets 500, and the next one is answered."""
    broken = [True]

    class Sometimes:
        def collect(self):
            if broken[0]:
                raise ValueError("no metrics today")
            return []

        def describe(self):
            return []

    registry = CollectorRegistry()
    registry.register(Sometimes())
    async with serving(metrics_handler(registry, gate=None)) as server:
        url = f"http://127.0.0.1:{server.port}/metrics"
        async with session.get(url) as response:
            assert response.status == 500
            assert "no metrics today" not in await response.text()
        broken[0] = False
        async with session.get(url) as response:
            assert response.status == 200


async def test_an_answer_names_no_versions(session, metrics):
    """The headers name no version, and forbid caching and guessing the content type."""
    async with session.get(f"{metrics}/metrics") as response:
        assert response.headers["Server"] == "wva"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1",
            "application/openmetrics-text; version=1.0.0",
        ),
        ("application/openmetrics-text", "application/openmetrics-text"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=abc", "text/plain; version=0.0.4"),
        (";;;,,,", "text/plain; version=0.0.4"),
    ],
)
async def test_the_format_is_negotiated(session, metrics, accept, expected):
    """A client that asks for OpenMetrics gets it, all others get the text format.

    A malformed header does not matter.
    """
    async with session.get(f"{metrics}/metrics", headers={"Accept": accept}) as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith(expected)
        text = await response.text()
        assert "answer 42.0" in text
        assert text.endswith("# EOF\n") == expected.startswith("application")


@pytest.mark.parametrize(
    ("encoding", "compressed"), [("gzip", True), ("deflate, gzip;q=0.5", True), ("", False), ("br", False)]
)
async def test_a_large_page_is_compressed_for_who_accepts_it(encoding, compressed):
    """A large page is compressed for clients that accept gzip. A small page is never compressed."""
    registry = CollectorRegistry()
    gauge = Gauge("answer", "All of it.", ["number"], registry=registry)
    async with (
        serving(metrics_handler(registry, gate=None)) as server,
        aiohttp.ClientSession(auto_decompress=False) as session,
    ):
        for count, expected in ((1, False), (1000, compressed)):
            for number in range(count):
                gauge.labels(number).set(42)
            url = f"http://127.0.0.1:{server.port}/metrics"
            async with session.get(url, headers={"Accept-Encoding": encoding}) as response:
                body = await response.read()
                assert (response.headers.get("Content-Encoding") == "gzip") == expected
                assert int(response.headers["Content-Length"]) == len(body)
                assert b'answer{number="0"} 42.0' in (gzip.decompress(body) if expected else body)


async def test_pages_of_json_stand_beside_the_metrics(session):
    """A JSON page is computed again for each request."""
    numbers = iter(range(9))
    handler = metrics_handler(CollectorRegistry(), gate=None, pages={"/debug/config": lambda: {"n": next(numbers)}})
    async with serving(handler) as server:
        for expected in (0, 1):
            async with session.get(f"http://127.0.0.1:{server.port}/debug/config") as response:
                assert response.content_type == "application/json"
                assert await response.json() == {"n": expected}
