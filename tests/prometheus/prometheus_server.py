"""A Prometheus query API on 127.0.0.1 that does what a test tells it to."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web
from aiohttp.test_utils import TestServer


def vector(*series):
    """Return the body of a successful answer; each series is (labels, value text)."""
    result = [{"metric": labels, "value": [1_700_000_000.0, value]} for labels, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


class PrometheusServer:
    """Answers ``/api/v1/query`` with the planned answers in turn; the last one repeats.

    A planned answer is a body, or a function of the request that returns a response. ``peers`` has the serial number of
    the client certificate of each request, None without one.
    """

    def __init__(self, *, ssl_context=None):
        """Answer an empty vector until told otherwise."""
        self.requests = []
        self.peers = []
        self._transports = {}
        self.plan = [vector()]
        self._ssl = ssl_context
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._server = TestServer(app, scheme="https" if ssl_context else "http", host="127.0.0.1")

    async def __aenter__(self):
        """Listen on a free port."""
        await self._server.start_server(ssl=self._ssl)
        return self

    async def __aexit__(self, *_):
        """Stop listening."""
        await self._server.close()

    @property
    def url(self):
        """The base URL."""
        return f"{self._server.scheme}://127.0.0.1:{self._server.port}"

    async def close(self):
        """Stop listening."""
        await self._server.close()

    async def closed(self, peer):
        """Wait until the connection on which a client presented a certificate (its serial number) is closed.

        The time is shorter than aiohttp's for idle connections: those end by themselves.
        """
        async with asyncio.timeout(10):
            while not self._transports[peer].is_closing():  # noqa: ASYNC110 - a transport has no event for it
                await asyncio.sleep(0.005)

    async def _answer(self, request):
        certificate = request.transport.get_extra_info("peercert") if self._ssl else None
        peer = certificate["serialNumber"] if certificate else None
        self.peers.append(peer)
        self._transports[peer] = request.transport
        form = dict(await request.post())
        self.requests.append({"path": request.path, "method": request.method, "headers": request.headers, "form": form})
        self.requests[-1]["parameters"] = list(request.query.items())
        step = self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]
        if callable(step):
            return await step(request)
        return web.Response(text=step, content_type="application/json")


def status(code, body="", **headers):
    """Return a planned answer with a status."""

    async def answer(_):
        return web.Response(status=code, text=body, headers=headers)

    return answer
