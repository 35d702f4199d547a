"""A simulated world for leader election: one Lease, an unreliable network, processes that can be stopped and killed.

Each process has its own event loop, with the time of its own monotonic clock, which has an offset and a rate. The loop
of a stopped process (SIGSTOP) does not run, while its clock goes on. No test waits in real time.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry

from wva.api.core import Lease, LeaseSpec
from wva.api.meta import Key, ObjectMeta
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube.errors import AlreadyExists, Conflict, NotFound, Unreachable
from wva.kube.leader import Durations, LeaderElector, LeadershipLost

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)
KEY = Key("wva-system", "72dd1cf1.llm-d.ai")
DURATIONS = Durations(60.0, 50.0, 10.0)


class LeaseServer:
    """An API server for Leases, with optimistic concurrency."""

    def __init__(self):
        """Start without Leases."""
        self.leases = {}
        self.watchers = []
        self.versions = itertools.count(1)

    @property
    def lease(self):
        """The Lease of the controller without an instance, None when there is none."""
        return self.leases.get(KEY)

    def get(self, key=KEY):
        """Return the Lease."""
        if key not in self.leases:
            raise NotFound(404, "NotFound", "no lease")
        return self.leases[key]

    def create(self, body, key=KEY):
        """Create the Lease, unless it exists."""
        if key in self.leases:
            raise AlreadyExists(409, "AlreadyExists", "exists")
        return self._store(body, key)

    def update(self, body, key=KEY):
        """Replace the Lease if the version is the current one."""
        version = body["metadata"].get("resourceVersion")
        if self.get(key).metadata.resource_version != version:
            raise Conflict(409, "Conflict", "changed")
        return self._store(body, key)

    def delete(self):
        """Delete the Lease, as an administrator does."""
        self.leases.pop(KEY, None)
        self._tell(None)

    def _store(self, body, key):
        metadata = msgspec.convert(body["metadata"], ObjectMeta)
        metadata = msgspec.structs.replace(metadata, resource_version=str(next(self.versions)), uid="uid")
        self.leases[key] = Lease(metadata, msgspec.convert(body["spec"], LeaseSpec))
        self._tell(self.leases[key])
        return self.leases[key]

    def _tell(self, lease):
        for process in self.watchers:
            if not process.loop.is_closed():
                process.elector.observe(lease)


@dataclass
class LeaseRequest:
    """A request that was sent and is not answered yet."""

    process: Candidate
    execute: object
    answer: asyncio.Future
    outcome: object = None
    executed: bool = False

    def deliver(self):
        """Execute the request on the server, even if its client no longer waits. The client gets no answer yet."""
        if not self.executed:
            self.executed = True
            try:
                self.outcome = self.execute()
            except (AlreadyExists, Conflict, NotFound) as error:
                self.outcome = error

    def finish(self, outcome):
        """Answer the client, if it still waits."""
        if not self.answer.done() and not self.process.loop.is_closed():
            if isinstance(outcome, Exception):
                self.answer.set_exception(outcome)
            else:
                self.answer.set_result(outcome)


@dataclass
class LeaseClient:
    """The client of the elector. ``mode`` says what happens to requests."""

    process: Candidate
    server: LeaseServer
    mode: Literal["works", "slow", "cut"] = "works"
    calls: list[LeaseRequest] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    async def get(self, _resource, key):
        """Read the Lease."""
        return await self._send("get", lambda: self.server.get(key))

    async def create(self, _resource, namespace, body):
        """Create the Lease."""
        return await self._send("create", lambda: self.server.create(body, Key(namespace, body["metadata"]["name"])))

    async def update(self, _resource, key, body):
        """Replace the Lease."""
        return await self._send("update", lambda: self.server.update(body, key))

    async def _send(self, verb, execute):
        self.sent.append(verb)
        if self.mode == "cut":
            raise Unreachable(0, "", "connection refused")
        call = LeaseRequest(self.process, execute, asyncio.get_running_loop().create_future())
        if self.mode == "works":
            call.deliver()
            call.finish(call.outcome)
        else:
            self.calls.append(call)
        return await call.answer


class OwnTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with the time of its process. The test makes it run."""

    def __init__(self, clock):
        """Read the time from ``clock``."""
        self._own_clock = clock
        super().__init__()

    def time(self):
        """Return the process's time."""
        return self._own_clock()

    def settle(self):
        """Run until every task waits for time or for an answer."""
        for _ in range(1000):
            if not self._ready and not (self._scheduled and self._scheduled[0].when() <= self.time()):
                return
            self.call_soon(self.stop)
            self.run_forever()
        raise AssertionError("a task runs in circles without waiting")

    @property
    def next_timer(self):
        """The time of the process at which its next timer fires, or None."""
        return min((timer.when() for timer in self._scheduled if not timer.cancelled()), default=None)


class Candidate:
    """A process with its own clock. It acquires the Lease and holds it until it loses it."""

    def __init__(self, world, identity, *, offset, rate, key):
        """Create it and its task."""
        self.world, self.offset, self.rate, self.key = world, offset, rate, key
        self.loop = OwnTimeLoop(self.monotonic)
        self.client = LeaseClient(self, world.server)
        self.stopped = False
        self.ended = ""
        self.elector = LeaderElector(
            self.client,
            LEASES,
            key,
            identity,
            world.durations,
            instruments=world.instruments,
            random=Random(identity),
            monotonic=self.monotonic,
            now=lambda: 1_700_000_000.0 + 7 * offset + world.time,
        )
        self.task = self.loop.create_task(self._live())

    def monotonic(self):
        """Return this process's own clock."""
        return self.offset + self.rate * self.world.time

    @property
    def wakes_at(self):
        """The true time at which the next timer of this process fires, or None."""
        timer = None if self.stopped or self.loop.is_closed() else self.loop.next_timer
        return None if timer is None else (timer - self.offset) / self.rate

    @property
    def may_write(self):
        """Whether the process may write now. A dead process may not."""
        return not self.loop.is_closed() and self.elector.may_write()

    def turn(self):
        """Run until the process waits."""
        if not self.stopped and not self.loop.is_closed():
            self.loop.settle()
            if self.task.done() and not self.ended:
                self.ended = self.task.result()

    def leave(self):
        """Exit cleanly: stop holding, then release the Lease."""
        self.task.cancel()
        self.loop.settle()
        self.task = self.loop.create_task(self._release())

    def let_go(self):
        """Release the Lease after leadership was lost, as the process does before it exits."""
        self.client.mode = "works"
        self.task = self.loop.create_task(self.elector.release())
        self.loop.settle()

    def kill(self):
        """End without any clean-up, as SIGKILL does. Requests that were sent can still arrive."""
        if self.loop.is_closed():
            return
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        mode, self.client.mode = self.client.mode, "cut"
        self.loop.settle()
        self.client.mode = mode
        self.loop.close()
        self.ended = self.ended or "killed"

    async def _live(self):
        await self.elector.acquire()
        try:
            await self.elector.hold()
        except LeadershipLost as lost:
            return str(lost)

    async def _release(self):
        await self.elector.release()
        return "left"


class LeaseWorld:
    """The true time, the server and the processes."""

    def __init__(self, durations=DURATIONS):
        """Start without processes at time 0. All processes have these ``durations``."""
        self.time = 0.0
        self.durations = durations
        self.server = LeaseServer()
        self.instruments = Instruments(CollectorRegistry())
        self.processes = []
        self.after_each_step = lambda: None

    def start(self, *, offset=0.0, rate=1.0, mode="works", key=KEY):
        """Start another process."""
        process = Candidate(self, f"p{len(self.processes)}", offset=offset, rate=rate, key=key)
        process.client.mode = mode
        self.processes.append(process)
        self.turn()
        return process

    def turn(self):
        """Let every process run, and check the world after each of them."""
        for process in self.processes:
            process.turn()
            self.after_each_step()

    def advance(self, seconds):
        """Advance the true time, from timer to timer."""
        end = self.time + seconds
        self.turn()
        while due := [when for process in self.processes if (when := process.wakes_at) is not None and when <= end]:
            # Add a nanosecond. Otherwise a timer might not fire, because of rounding between the clocks.
            self.time = max(self.time, min(due)) + 1e-9
            self.turn()
        self.time = max(self.time, end)
        self.turn()

    @property
    def alive(self):
        """The processes that have not ended."""
        return [process for process in self.processes if not process.ended]

    @property
    def writers(self):
        """The processes that may write now."""
        return [process for process in self.processes if process.may_write]

    def close(self):
        """Kill all processes."""
        for process in self.processes:
            process.kill()
