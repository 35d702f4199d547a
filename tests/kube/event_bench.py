"""An EventRecorder with an API server that keeps Events and fails on request."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from tests.kube.clocks import ManualClock, settle
from wva.api.core import Event, ObjectReference
from wva.api.meta import Key
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube.errors import AlreadyExists, NotFound
from wva.kube.events import EventRecorder

EVENTS = Resource("", "v1", "events", "Event", Event)
VARIANT = ObjectReference("llmd.ai/v1alpha1", "VariantAutoscaling", "llama", "models", "uid-1", "7")


class EventServer:
    """Keeps Events by key. Each request raises one of ``failures``, and ``gate`` blocks requests."""

    def __init__(self):
        """Start without Events and without failures."""
        self.events = {}
        self.requests = []
        self.failures = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, _resource, namespace, body):
        """Create an Event."""
        key = Key(namespace, body["metadata"]["name"])
        await self._receive("create")
        if key in self.events:
            raise AlreadyExists(409, "AlreadyExists", "exists")
        self.events[key] = dict(body)
        return Event()

    async def patch(self, _resource, key, body):
        """Merge into an Event."""
        await self._receive("patch")
        if key not in self.events:
            raise NotFound(404, "NotFound", "expired")
        self.events[key] |= body
        return Event()

    async def _receive(self, verb):
        self.requests.append(verb)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)

    @property
    def shown(self):
        """Message and count of every Event, in the order of creation."""
        return [(event["message"], event["count"]) for event in self.events.values()]


class EventBench:
    """A recorder with its server and its clock."""

    def __init__(self):
        """Build the recorder. ``running`` starts it."""
        self.clock = ManualClock()
        self.server = EventServer()
        self.registry = CollectorRegistry()
        tokens = itertools.count(1)
        self.recorder = EventRecorder(
            self.server,
            component="wva",
            instance="wva-0",
            resource=EVENTS,
            clock=self.clock,
            instruments=Instruments(self.registry),
            token=lambda: f"{next(tokens):x}",
            urgent={"Changed"},
        )

    def record(self, message="said", *, ref=VARIANT, type_="Normal", reason="Reason"):
        """Record an Event."""
        self.recorder.event(ref, type_, reason, message)

    def count(self, result):
        """Return how many Events had this result."""
        return self.registry.get_sample_value("wva_events_recorded_total", {"result": result}) or 0

    @asynccontextmanager
    async def running(self):
        """Run the recorder during the body."""
        run = asyncio.ensure_future(self.recorder.run())
        await settle()
        try:
            yield self
        finally:
            run.cancel()
            await asyncio.wait([run])
