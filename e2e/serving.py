"""An HTTP server of the standard library, in a thread, for the length of a block; and a request passed on by it."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.05  # seconds after which the thread notices the end of the block at the latest


@contextlib.contextmanager
def serving(server: http.server.HTTPServer) -> Iterator[None]:
    """Serve inside the block; then close the server and wait for its thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": _POLL_SECONDS})
    with server:
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def answering(answer: Callable[[str, bytes, str], tuple[int, bytes]]) -> Iterator[str]:
    """Answer each POST inside the block, in JSON, with the status and content for its path, form and authorization.

    The address is that of this server, on loopback.
    """

    class ServingHandler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name http.server calls
            form = self.rfile.read(int(self.headers["Content-Length"]))
            status, content = answer(self.path, form, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ServingHandler)
    with serving(listener):
        yield f"http://127.0.0.1:{listener.server_port}"


def pass_on(url: str, form: bytes | None, context: ssl.SSLContext | None) -> tuple[int, bytes]:
    """Ask another server, and return its HTTP status and content. OSError without an answer.

    By GET without a form, and in plain HTTP without a context.
    """
    try:
        with urllib.request.urlopen(url, form, timeout=_TIMEOUT_SECONDS, context=context) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
