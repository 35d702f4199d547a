"""Helpers for the tests of the servers: a listening server, an API server that answers reviews, raw requests."""

from __future__ import annotations

import asyncio
from collections import Counter

from aiohttp import web
from prometheus_client import CollectorRegistry

from wva.api.core import (
    SubjectAccessReview,
    SubjectAccessReviewStatus,
    TokenReview,
    TokenReviewStatus,
    UserInfo,
)
from wva.api.kinds import TOKEN_REVIEWS
from wva.instruments import Instruments
from wva.serve.addresses import Address
from wva.serve.gate import Gate
from wva.serve.http import Server
from wva.serve.reviews import Reviews
from wva.sim.world.clock import VirtualClock

PATIENCE_SECONDS = 30.0
AUDIENCE = "wva.llmd.ai/system"


async def ok(_):
    """Answer every request with ok."""
    return web.Response(text="ok")


def serving(handler=ok, *, host="127.0.0.1", port=0, name="metrics", instruments=None, **more):
    """Return a server that listens inside ``async with``."""
    instruments = instruments or Instruments(CollectorRegistry())
    return Server(handler, Address(host, port), name=name, instruments=instruments, **more)


class Reviewer:
    """The API server's side of the reviews: it has users and rights, counts the reviews, and can fail."""

    def __init__(self):
        """Start without users."""
        self.users = {}
        self.audiences = {}
        self.allowed = set()
        self.asked = Counter()
        self.bodies = []
        self.errors = []
        self.turn = None
        self.called = asyncio.Event()

    async def create(self, resource, namespace, body):
        """Answer a review."""
        assert namespace == ""
        self.asked[resource.kind] += 1
        self.called.set()
        self.bodies.append(body)
        if self.turn is not None:
            await self.turn.wait()
        if self.errors:
            raise self.errors.pop(0)
        spec = body["spec"]
        if resource is TOKEN_REVIEWS:
            user = self.users.get(spec["token"])
            asked = spec.get("audiences", ["api"])
            fits = tuple(each for each in asked if each in self.audiences.get(spec["token"], ("api",)))
            known = user is not None and bool(fits)
            return TokenReview(status=TokenReviewStatus(known, user if known else UserInfo(), fits))
        wanted = spec.get("nonResourceAttributes") or spec["resourceAttributes"]
        place = wanted.get("path") or f"{wanted['namespace']}/{wanted['name']}"
        allowed = (spec["user"], wanted["verb"], place) in self.allowed
        return SubjectAccessReview(status=SubjectAccessReviewStatus(allowed))


class Guarded:
    """A gate with everything it depends on."""

    def __init__(self, *, timeout_seconds=PATIENCE_SECONDS):
        """Know one scraper who may read the metrics, and one stranger who may not."""
        self.reviewer = Reviewer()
        self.reviewer.users["good"] = UserInfo("scraper", "u1", ("system:authenticated",))
        self.reviewer.users["stranger"] = UserInfo("stranger")
        self.reviewer.allowed.add(("scraper", "get", "/metrics"))
        self.clock = VirtualClock()
        self.instruments = Instruments(CollectorRegistry())
        reviews = Reviews(
            self.reviewer, audience=AUDIENCE, instruments=self.instruments, timeout_seconds=timeout_seconds
        )
        self.gate = Gate(reviews, monotonic=self.clock.monotonic, now=self.clock.now)

    def metric(self, name, **labels):
        """Return a metric of WVA, 0 if it was never set."""
        return self.instruments.registry.get_sample_value(name, labels) or 0


async def exchange(port, data, *, context=None, name=None):
    """Send bytes, and return all bytes that the server sends before it closes."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
        try:
            writer.write(data)
            return await rest(reader)
        finally:
            writer.close()


async def rest(reader):
    """Return all bytes until the connection ends or is reset."""
    received = b""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while chunk := await reader.read(65536):
                received += chunk
    except ConnectionError:
        pass
    return received


async def until(check):
    """Wait until ``check`` is true. Fails after a time that a working server never needs."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not check():  # noqa: ASYNC110 - sockets set no event when their state changes
            await asyncio.sleep(0.002)
