"""An HTTP server of the standard library, in a thread, for the length of a block."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

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
