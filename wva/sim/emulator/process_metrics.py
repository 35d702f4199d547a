"""The metrics of a vLLM server beside those of its engines: of Python, of the process, and of its HTTP requests.

The names, labels and buckets are those of the instrumentation of FastAPI that vLLM uses.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    Summary,
    generate_latest,
)

UNCOUNTED: Final = frozenset({"/metrics", "/health", "/load", "/ping", "/version"})
"""Pages whose requests vLLM does not count."""
_FEW_BOUNDS: Final = (0.1, 0.5, 1.0)
_MANY_BOUNDS: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0,
)  # fmt: skip


class ProcessMetrics:
    """The series of one server process."""

    def __init__(self) -> None:
        """Start with no requests."""
        self._process, http = CollectorRegistry(), CollectorRegistry()
        GCCollector(self._process)
        PlatformCollector(self._process)
        ProcessCollector(registry=self._process)
        self._http = http
        self._requests = Counter(
            "http_requests", "Requests by method, status and handler.", ("handler", "method", "status"), registry=http
        )
        self._received = Summary(
            "http_request_size_bytes", "Content length of requests by handler.", ("handler",), registry=http
        )
        self._sent = Summary(
            "http_response_size_bytes", "Content length of answers by handler.", ("handler",), registry=http
        )
        self._fine = Histogram(
            "http_request_duration_highr_seconds", "Latency of all requests.", buckets=_MANY_BOUNDS, registry=http
        )
        self._coarse = Histogram(
            "http_request_duration_seconds",
            "Latency by handler.",
            ("handler", "method"),
            buckets=_FEW_BOUNDS,
            registry=http,
        )

    def count(
        self, handler: str, method: str, *, status: int, received_bytes: int, sent_bytes: int, seconds: float
    ) -> None:
        """Count a request to the route ``handler``; ``none`` stands for a path without one."""
        if handler in UNCOUNTED:
            return
        self._requests.labels(handler, method, f"{status // 100}xx").inc()
        self._received.labels(handler).observe(received_bytes)
        self._sent.labels(handler).observe(sent_bytes)
        self._fine.observe(seconds)
        self._coarse.labels(handler, method).observe(seconds)

    def page(self, engines: str) -> bytes:
        """Return the whole page, with the page of the engines in its place."""
        return generate_latest(self._process) + engines.encode() + generate_latest(self._http)
