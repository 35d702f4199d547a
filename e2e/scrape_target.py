"""A small target for Prometheus: it serves the text that a test sets as ``/metrics`` on loopback."""

from __future__ import annotations

import contextlib
import http.server
from collections.abc import Iterator

from e2e.serving import serving


class ServedPage:
    """The text of the page, and its address."""

    def __init__(self, address: str) -> None:
        """``address`` is host:port."""
        self.address = address
        self.text = ""


@contextlib.contextmanager
def scrape_target() -> Iterator[ServedPage]:
    """Serve a ``ServedPage`` from a thread inside the block."""

    class ScrapeHandler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name http.server calls
            content = target.text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ScrapeHandler)
    target = ServedPage(f"127.0.0.1:{server.server_port}")
    with serving(server):
        yield target
