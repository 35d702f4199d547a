"""A small world for leader election: one Lease, a network that misbehaves, processes that can be stopped and killed.

Each process has its own event loop, whose time is the process's own monotonic clock: an offset and a rate of its own.
A stopped process (SIGSTOP) is one whose loop is not turned, while its clock goes on. Nothing here waits for real.
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
    """The API server as far as Leases are concerned: optimistic concurrency, and nothing is cached."""

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
        """Read."""
        if key not in self.leases:
            raise NotFound(404, "NotFound", "no lease")
        return self.leases[key]

    def create(self, body, key=KEY):
        """Create unless it exists."""
        if key in self.leases:
            raise AlreadyExists(409, "AlreadyExists", "exists")
        return self._store(body, key)

    def update(self, body, key=KEY):
        """Replace if the version is the current one."""
        version = body["metadata"].get("resourceVersion")
        if self.get(key).metadata.resource_version != version:
            raise Conflict(409, "Conflict", "changed")
        return self._store(body, key)

    def delete(self):
        """Delete, as an administrator does."""
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
    """A request on its way."""

    process: Candidate
    execute: object
    answer: asyncio.Future
    outcome: object = None
    executed: bool = False

    def deliver(self):
        """Let the server execute the request, even if its client has stopped waiting; the answer is on its way then."""
        if not self.executed:
            self.executed = True
            try:
                self.outcome = self.execute()
            except (AlreadyExists, Conflict, NotFound) as error:
                self.outcome = error

    def finish(self, outcome):
        """Give the caller an answer, if it still waits for one."""
        if not self.answer.done() and not self.process.loop.is_closed():
            if isinstance(outcome, Exception):
                self.answer.set_exception(outcome)
            else:
                self.answer.set_result(outcome)


@dataclass
class LeaseClient:
    """What the elector talks to. ``mode`` says what becomes of requests."""

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
    """An event loop that lives in the time of its process and is turned by hand."""

    def __init__(self, clock):
        """Read the time from ``clock``."""
        self._own_clock = clock
        super().__init__()

    def time(self):
        """Return the process's time."""
        return self._own_clock()

    def settle(self):
        """Run until everything waits for time or for an answer."""
        for _ in range(1000):
            if not self._ready and not (self._scheduled and self._scheduled[0].when() <= self.time()):
                return
            self.call_soon(self.stop)
            self.run_forever()
        raise AssertionError("a task runs in circles without waiting")

    @property
    def next_timer(self):
        """The process's time at which something is to happen, or None."""
        return min((timer.when() for timer in self._scheduled if not timer.cancelled()), default=None)


class Candidate:
    """A candidate with clocks of its own, whose life is acquire, hold, and the end."""

    def __init__(self, world, identity, *, offset, rate, key):
        """Create it; ``start`` makes it run."""
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
        """The true time of this process's next timer, or None."""
        timer = None if self.stopped or self.loop.is_closed() else self.loop.next_timer
        return None if timer is None else (timer - self.offset) / self.rate

    @property
    def may_write(self):
        """What the process would be told if it asked now; a dead process asks nothing."""
        return not self.loop.is_closed() and self.elector.may_write()

    def turn(self):
        """Let it run as far as it gets."""
        if not self.stopped and not self.loop.is_closed():
            self.loop.settle()
            if self.task.done() and not self.ended:
                self.ended = self.task.result()

    def leave(self):
        """Exit cleanly: stop holding, then release."""
        self.task.cancel()
        self.loop.settle()
        self.task = self.loop.create_task(self._release())

    def let_go(self):
        """Release after leadership was lost, as the process does before it exits."""
        self.client.mode = "works"
        self.task = self.loop.create_task(self.elector.release())
        self.loop.settle()

    def kill(self):
        """End without any clean-up, as SIGKILL does; requests under way stay under way."""
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
    """True time, the server and the processes."""

    def __init__(self, durations=DURATIONS):
        """Start empty at time 0; ``durations`` are those of all processes."""
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
        """Let every process run, checking after each."""
        for process in self.processes:
            process.turn()
            self.after_each_step()

    def advance(self, seconds):
        """Let true time pass, from timer to timer."""
        end = self.time + seconds
        self.turn()
        while due := [when for process in self.processes if (when := process.wakes_at) is not None and when <= end]:
            # A nanosecond more, or rounding between the clocks would put a timer just out of reach.
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
        """Clean up."""
        for process in self.processes:
            process.kill()
