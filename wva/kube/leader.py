"""Leader election on a Lease: at most one of many processes may write, and soon after it dies another one leads.

The rules are client-go's. A candidate takes the Lease when it has no holder, or when its record has not changed for the
lease duration, measured on the candidate's own clock since it first saw that record: no clocks are compared, so they
may differ by hours as long as they run equally fast. A watch shows it each record when it is written (``observe``).
Every write carries the resourceVersion read before, so of two candidates only one succeeds. The leader renews every
retry period and gives up at the renew deadline, which is shorter. It counts from the *start* of its last successful
renewal, a candidate from when it *saw* that renewal, hence later: the leader stops before another process starts.

A leader that does not run (SIGSTOP, a frozen cgroup, a starved CPU) cannot give up in time. Therefore ``may_write``
compares the deadline with the clock at the moment of each write, and ``transport`` asks it again directly before the
bytes go out; the elector's own renewals ask ``may_claim`` there. Two cases remain: a process that is stopped between
that check and its system call, and a virtual machine whose clocks were frozen with it. For these cases, writes whose
order matters carry a resourceVersion.

WVA departs from client-go twice. The recorded lease duration counts if it is longer than ours, because the holder may
have other settings. A Lease that disappears while another process held it is treated as changed, not as free: its
holder may write until its deadline. Only a process that has never seen the Lease creates it at once.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from random import Random
from typing import Final

import msgspec

from wva import log
from wva.api.core import Lease, LeaseSpec, ObjectReference
from wva.api.meta import Key, ObjectMeta, format_micro_time
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from wva.kube.events import EventRecorder
from wva.kube.leader_times import Durations

RELEASE_SECONDS: Final = 5.0
"""How long a clean exit waits for the release; the manifests grant 10 s of termination grace in all."""
RELEASED_LEASE_SECONDS: Final = 1
"""The duration in a released record, as client-go writes it."""
JITTER: Final = 0.2
"""Candidates poll every retry period plus or minus this part of it, so that they do not march in step."""
MIN_PAUSE_SECONDS: Final = 1.0
"""The shortest pause between two tries of a leader whose renewals fail."""

_log = log.get("kube.leader")


class LeadershipLost(Exception):  # noqa: N818 - called after what happened
    """This process must not write any more; the text tells the reason."""


def boot_seconds() -> float:
    """Return a time in seconds that cannot be set and that passes while the process, or the machine, stands still.

    CLOCK_MONOTONIC runs during SIGSTOP but stops while the machine is suspended; on Linux CLOCK_BOOTTIME does not.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


@dataclass(slots=True)
class LeaderElector:
    """One candidate. ``await acquire()``, then run the writers beside ``hold()``, stop them, then ``release()``.

    ``client`` is guarded by ``may_claim`` and not by ``may_write``, as the first write comes before leading.
    ``identity`` must differ from that of every other process. ``monotonic`` and the event loop must run equally fast.
    ValueError for an empty identity or durations that ``validate`` objects to.
    """

    client: KubeClient
    resource: Resource[Lease]
    key: Key
    identity: str
    durations: Durations
    _: KW_ONLY
    instruments: Instruments
    random: Random | None = None
    recorder: EventRecorder | None = None
    monotonic: Callable[[], float] = boot_seconds
    now: Callable[[], float] = time.time

    _last_record: LeaseSpec | None = field(default=None, init=False)  # the last record; None: no Lease, or never looked
    _seen_at: float = field(default=-math.inf, init=False)  # when that record was first seen
    _wait_seconds: float = field(default=0.0, init=False)  # how long that record must stay unchanged
    _stored: ObjectMeta | None = field(default=None, init=False)  # what the next write replaces; None: it creates
    _looked: bool = field(default=False, init=False)  # whether _stored may be relied on
    _leading: bool = field(default=False, init=False)
    _claimed: bool = field(default=False, init=False)  # a write was sent, so the Lease may be ours
    _deadline: float = field(default=-math.inf, init=False)
    _nudged: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        """Check the identity and the durations."""
        problems = self.durations.validate()
        if not self.identity:
            problems.append("the identity must not be empty: that means that the Lease has no holder")
        if problems:
            raise ValueError("; ".join(problems))
        self.instruments.leader.set(0)

    def may_write(self) -> bool:
        """Whether no other process can lead at this moment. Ask immediately before sending, not earlier."""
        return self._leading and self.monotonic() < self._deadline

    def may_claim(self) -> bool:
        """Whether the Lease itself may be written: not by a leader past its deadline, which has lost it already."""
        return not self._leading or self.monotonic() < self._deadline

    def nudge(self) -> None:
        """Make a waiting candidate read the Lease at once."""
        self._nudged.set()

    def observe(self, lease: Lease | None) -> None:
        """Note the Lease as a watch saw it, None when it was deleted; wake a waiting candidate if it is free.

        The age of a record counts from this call, so a late record makes the candidate wait longer and never shorter.
        Before it writes, a candidate reads the Lease in any case.
        """
        if lease is None or not lease.spec.holder_identity:
            self.nudge()
        elif not self._leading:
            self._note(lease.spec)

    async def acquire(self) -> None:
        """Return when this process leads. Failures are logged and tried again, without limit."""
        random = self.random or Random()  # noqa: S311 - spreads load, guards no secret
        self._leading = False
        while True:
            self._looked = False  # a candidate must read the Lease before it writes
            if await self._attempt() and self.monotonic() < self._deadline:
                break
            pause = self.durations.retry_period_seconds * random.uniform(1 - JITTER, 1 + JITTER)
            # Read the Lease when the record expires rather than up to a retry period later.
            expires_in = self._seen_at + self._wait_seconds - self.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause, expires_in) if expires_in > 0 else pause):
                    await self._nudged.wait()
            self._nudged.clear()
        self._leading = True
        self.instruments.leader.set(1)
        _log.info("leadership_acquired", lease=str(self.key), identity=self.identity)
        self._record("became leader")

    async def hold(self) -> None:
        """Renew until that fails for too long or another process holds the Lease; then raise LeadershipLost.

        Being cancelled changes nothing: until ``release`` or the deadline this process may still write.
        """
        pause = self.durations.retry_period_seconds
        while True:
            await asyncio.sleep(max(0.0, min(pause, self._deadline - self.monotonic())))
            if not self.may_write():
                self._lose(f"not renewed for {self.durations.renew_deadline_seconds:g} s")
            started, pause = self.monotonic(), self.durations.retry_period_seconds
            if not await self._attempt():
                if self.holder not in {"", self.identity}:
                    self._lose(f"the Lease is held by {self.holder}")
                # The less time is left, the sooner the next try.
                pause = min(pause, max((self._deadline - self.monotonic()) / 2, MIN_PAUSE_SECONDS))
            pause -= self.monotonic() - started

    def say_goodbye(self) -> None:
        """Record that this process stops leading, if it may still write; call it before the recorder's last post."""
        if self.may_write():
            self._record("stopped leading")

    async def release(self) -> None:
        """Stop leading and, if the Lease is ours, let it go so that a candidate need not wait for its end.

        Call it when all writers, and ``hold``, have ended. It never raises an ApiError, and takes at most
        RELEASE_SECONDS. Past the deadline another process may lead, so this process reads the Lease before it writes.
        """
        self._leading = False
        self.instruments.leader.set(0)
        if not self._claimed:
            return
        if self.monotonic() >= self._deadline:
            self._looked = False
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                for _ in range(2):  # the second time against a renewal that was still on its way
                    if not self._looked:
                        await self._look()
                    if self._stored is None or self.holder != self.identity:
                        return
                    with suppress(Conflict, NotFound):
                        await self._write(holder="")
                        _log.info("lease_released", lease=str(self.key), identity=self.identity)
                        return
        except (ApiError, TimeoutError) as error:
            _log.warning("lease_not_released", lease=str(self.key), error=str(error) or type(error).__name__)

    @property
    def holder(self) -> str:
        """The identity in the Lease as it was last seen; empty without one."""
        return (self._last_record.holder_identity or "") if self._last_record is not None else ""

    async def _attempt(self) -> bool:
        """Take or renew the Lease; tell whether that succeeded. A failure of the API is logged."""
        try:
            for _ in range(2):  # after a lost race, read again once
                if not self._looked and not await self._look():
                    return False
                started, limit = self.monotonic(), self._limit()
                self._claimed = True
                with suppress(AlreadyExists, Conflict, NotFound):  # another process was faster
                    async with limit:
                        await self._write(holder=self.identity)
                    self._deadline = started + self.durations.renew_deadline_seconds
                    return True
        except (ApiError, TimeoutError) as error:
            problem = str(error) or "timed out"
            _log.warning("lease_request_failed", lease=str(self.key), leading=self._leading, error=problem)
        return False

    async def _look(self) -> bool:
        """Read the Lease; tell whether we may write it."""
        try:
            async with self._limit():
                lease = await self.client.get(self.resource, self.key)
        except NotFound:
            if self._stored is not None:
                self._seen_at = self.monotonic()
                # Even if the Lease was free when last seen, another process may have taken it since, unless this
                # process leads.
                self._wait_seconds = 0.0 if self._leading else self.durations.lease_seconds
            self._stored, self._looked = None, True
        else:
            self._see(lease)
        return self.monotonic() >= self._seen_at + self._wait_seconds

    def _see(self, lease: Lease) -> None:
        self._stored, self._looked = lease.metadata, True
        self._note(lease.spec)

    def _note(self, spec: LeaseSpec) -> None:
        """Remember a record, and since when it has been unchanged."""
        if spec == self._last_record:
            return
        self._last_record, self._seen_at = spec, self.monotonic()
        recorded = spec.lease_duration_seconds or 0
        foreign = self.holder not in {"", self.identity}
        self._wait_seconds = max(self.durations.lease_seconds, recorded) if foreign else 0.0

    def _limit(self) -> asyncio.Timeout:
        """Return the time-out of one request. Raises TimeoutError at once when the deadline has passed."""
        seconds = self.durations.renew_deadline_seconds / 2
        if self._leading:
            seconds = min(seconds, self._deadline - self.monotonic())
            if seconds <= 0:
                raise TimeoutError("the renew deadline has passed")
        return asyncio.timeout(seconds)

    async def _write(self, *, holder: str) -> None:
        """Create the Lease, or replace it as last seen; an empty holder lets it go. Raises ApiError."""
        now, record = format_micro_time(self.now()), self._last_record or LeaseSpec()
        transitions = record.lease_transitions or 0
        ours = record.holder_identity == self.identity
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": math.ceil(self.durations.lease_seconds) if holder else RELEASED_LEASE_SECONDS,
            "acquireTime": (holder and ours and record.acquire_time) or now,
            "renewTime": now,
            "leaseTransitions": transitions if ours or self._last_record is None else transitions + 1,
        }
        self._looked = False  # until the answer is here, whether the write arrived is unknown
        metadata: dict[str, object] = {"name": self.key.name, "namespace": self.key.namespace}
        body = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": metadata, "spec": spec}
        if self._stored is None:
            self._see(await self.client.create(self.resource, self.key.namespace, body))
            return
        metadata["resourceVersion"] = self._stored.resource_version
        metadata["labels"] = self._stored.labels
        metadata["annotations"] = self._stored.annotations
        metadata["ownerReferences"] = msgspec.to_builtins(self._stored.owner_references)
        self._see(await self.client.update(self.resource, self.key, body))

    def _lose(self, reason: str) -> None:
        self._leading = False
        self.instruments.leader.set(0)
        _log.error("leadership_lost", lease=str(self.key), identity=self.identity, why=reason)
        raise LeadershipLost(f"{self.key}: {reason}")

    def _record(self, event: str) -> None:
        if self.recorder is not None:
            uid = self._stored.uid if self._stored is not None else ""
            ref = ObjectReference(self.resource.api_version, self.resource.kind, self.key.name, self.key.namespace, uid)
            self.recorder.event(ref, "Normal", "LeaderElection", f"{self.identity} {event}")
