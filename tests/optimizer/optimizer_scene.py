"""An optimizer whose inputs a test sets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from tests.builders import policy, replica, variant
from tests.tasks import running
from wva.instruments import Instruments
from wva.model.snapshot import Snapshot
from wva.model.variant import VariantKey
from wva.optimizer import OptimizerLoop
from wva.publish.ledger import Ledger
from wva.sim.world.clock import VirtualClock

INTERVAL = 60.0
KEY = VariantKey("ns", "a")


class FakePolicySource:
    """A policy and an interval that a test can change."""

    def __init__(self):
        """Start with an interval of a minute."""
        self.changed = asyncio.Event()
        self.policy = policy()
        self.interval_seconds = INTERVAL


class OptimizerScene:
    """An optimizer with a snapshot that the test sets, and a virtual clock."""

    def __init__(self):
        """Start with one busy replica of one known variant."""
        self.clock = VirtualClock()
        self.configuration = FakePolicySource()
        self.shadows = set()
        self.ledger = Ledger(asked_for_shadow=lambda key: key in self.shadows)
        self.instruments = Instruments(CollectorRegistry())
        self.starts = []
        self.recordings = []
        self.events = []
        self.gone = set()
        self.snapshot = Snapshot.of([variant("a", replicas=1, desired=1)], [replica("a-0", kv=0.95, queue=9)])
        self.error = None
        self.duration = 0.0
        self.optimizer = OptimizerLoop(
            collect=self.collect,
            known=lambda key: key not in self.gone,
            announce=lambda *event: self.events.append(event),
            keep=self.keep,
            configuration=self.configuration,
            ledger=self.ledger,
            clock=self.clock,
            instruments=self.instruments,
        )

    async def keep(self, cycle):
        """Append the recording of a cycle to ``recordings``."""
        self.recordings.append(cycle.recording)

    async def collect(self, now):
        """Record the start, wait for ``duration``, and return the snapshot or raise ``error``."""
        assert now == self.clock.now()
        self.starts.append(self.clock.elapsed_seconds)
        if self.duration:
            await self.clock.sleep(self.duration)
        if self.error is not None:
            raise self.error
        return self.snapshot

    @asynccontextmanager
    async def running(self):
        """Run the loop around the body."""
        async with running(self.optimizer.run()) as task:
            await self.settle()
            yield task

    async def settle(self):
        """Run all tasks until each of them waits for time."""
        for _ in range(20):
            await asyncio.sleep(0)
        assert self.clock.waking == 0

    async def advance(self, *times):
        """Advance the virtual clock to each of these times."""
        for time in times:
            self.clock.advance_to(time)
            await self.settle()

    def count(self, result):
        """Return how many cycles had this result."""
        return self.instruments.registry.get_sample_value("wva_cycles_total", {"result": result}) or 0

    def gauge(self, name):
        """Return the value of a metric without labels."""
        return self.instruments.registry.get_sample_value(name)
