"""A loopback proxy in front of the real Prometheus that counts the queries of each cycle, and may demand a token.

All queries of a cycle ask for the same instant, so the parameter ``time`` says which cycle a query belongs to. The
proxy counts only the queries that it passes on.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from e2e.serving import answering, pass_on


class CountingProxy:
    """The address of the proxy, and the queries that it has passed on."""

    def __init__(self, url: str) -> None:
        """Take the proxy's own ``url``, not the server's."""
        self.url = url
        self.tokens: frozenset[str] | None = None
        """The bearer tokens that are accepted now; None demands none."""
        self.refused = 0
        """How many requests had no accepted token."""
        self._lock = threading.Lock()
        self._counts: Counter[float] = Counter()

    def accepts(self, authorization: str) -> bool:
        """Tell whether a request with this header is passed on."""
        if self.tokens is None or authorization in {f"Bearer {token}" for token in self.tokens}:
            return True
        with self._lock:
            self.refused += 1
        return False

    def count(self, form: bytes) -> None:
        """Count a query by its form, if it asks for an instant; what a start asks of the past is in no cycle."""
        for instant in urllib.parse.parse_qs(form.decode()).get("time", ()):
            with self._lock:
                self._counts[float(instant)] += 1

    def queries_by_cycle(self) -> list[int]:
        """Return how many queries each cycle sent, the oldest first. The last cycle may not be over."""
        with self._lock:
            return [self._counts[instant] for instant in sorted(self._counts)]


@contextlib.contextmanager
def counting(server: str, *, authority: Path) -> Iterator[CountingProxy]:
    """Pass queries on to ``server`` (https) inside the block, and count them."""
    context = ssl.create_default_context(cafile=str(authority))

    def answer(path: str, form: bytes, authorization: str) -> tuple[int, bytes]:
        if not proxy.accepts(authorization):
            return HTTPStatus.UNAUTHORIZED, b"Unauthorized\n"
        proxy.count(form)
        return pass_on(f"{server}{path}", form, context)

    with answering(answer) as url:
        proxy = CountingProxy(url)
        yield proxy
