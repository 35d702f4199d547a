"""An HTTP server of the standard library, in a thread, for the length of a block; and a request passed on by it."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.05  # how late the thread notices that the block is over


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
