"""A client that answers from a script. It needs no sockets, so the tests of the watch can use simulated time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from wva.api.core import Pod
from wva.api.kinds import PODS
from wva.api.meta import ObjectList, ObjectMeta
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.backoff import Backoff
from wva.kube.watch import Change, WatchTarget, forever


class Highest(Random):
    """A random generator that always returns the upper bound, so that delays can be predicted."""

    def uniform(self, a: float, b: float) -> float:
        """Return the upper bound."""
        del a
        return b


def pod(name: str, version: str, *, namespace: str = "demo", uid: str = "") -> Pod:
    """Return a pod with this version."""
    return Pod(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version=version))


def pods(*items: Pod, version: str = "10", undecodable: int = 0) -> ObjectList[Pod]:
    """Return a list of pods as of ``version``."""
    return ObjectList(items, version, undecodable)


def event(kind: str, name: str, version: str, **metadata: object) -> bytes:
    """Return one line of a watch."""
    meta = {"name": name, "namespace": "demo", "resourceVersion": version, **metadata}
    return json.dumps({"type": kind, "object": {"metadata": meta}}).encode()


def bookmark(version: str) -> bytes:
    """Return a bookmark line."""
    return json.dumps(
        {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version}}}
    ).encode()


def error_event(code: int, reason: str, **status: object) -> bytes:
    """Return an ERROR line."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "scripted", **status}
    return json.dumps({"type": "ERROR", "object": body}).encode()


class Idle:
    """A step of a stream: no data until the idle limit."""


Step = bytes | float | Exception | Idle


@dataclass
class RecordedWatch:
    """One watch request."""

    at: float
    version: str
    timeout_seconds: int
    idle_seconds: float


@dataclass
class ScriptedClient:
    """Answers list and watch requests in order. When a script is used up, the request hangs and ``done`` is set."""

    lists: Sequence[ObjectList[Pod] | Exception]
    streams: Sequence[Sequence[Step]] = ()
    listed: list[tuple[float, str | None]] = field(default_factory=list)
    watched: list[RecordedWatch] = field(default_factory=list)
    selectors: list[tuple[str, str, str]] = field(default_factory=list)
    closed: int = 0
    closed_before_lists: list[int] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def list(
        self,
        resource: Any,
        *,
        namespace: str = "",
        resource_version: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Any:
        """Answer with the next list."""
        assert resource is PODS
        self.selectors.append((namespace, label_selector, field_selector))
        self.closed_before_lists.append(self.closed)
        self.listed.append((asyncio.get_running_loop().time(), resource_version))
        if len(self.listed) > len(self.lists):
            await self._hang()
        answer = self.lists[len(self.listed) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stream(
        self,
        resource: Any,
        *,
        resource_version: str,
        timeout_seconds: int,
        idle_seconds: float,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> Any:
        """Play the next stream."""
        assert resource is PODS
        self.selectors.append((namespace, label_selector, field_selector))
        now = asyncio.get_running_loop().time()
        self.watched.append(RecordedWatch(now, resource_version, timeout_seconds, idle_seconds))
        try:
            if len(self.watched) > len(self.streams):
                await self._hang()
            for step in self.streams[len(self.watched) - 1]:
                match step:
                    case bytes():
                        yield step
                    case Idle():
                        await asyncio.sleep(idle_seconds)
                        raise errors.StreamIdle(0, "Idle", "scripted")
                    case Exception():
                        raise step
                    case _:
                        await asyncio.sleep(step)
        finally:
            self.closed += 1

    async def _hang(self) -> None:
        self.done.set()
        await asyncio.Event().wait()


@dataclass
class Played:
    """The result of a watch over a script."""

    client: ScriptedClient
    changes: list[Change[Pod]]
    target: WatchTarget[Pod]

    @property
    def list_versions(self) -> list[str | None]:
        """The resourceVersion of each list request."""
        return [version for _, version in self.client.listed]

    @property
    def list_times(self) -> list[float]:
        """The time of each list request, in seconds."""
        return [round(at, 3) for at, _ in self.client.listed]

    @property
    def watch_versions(self) -> list[str]:
        """The resourceVersion of each watch request."""
        return [watched.version for watched in self.client.watched]

    @property
    def watch_times(self) -> list[float]:
        """The time of each watch request, in seconds."""
        return [round(watched.at, 3) for watched in self.client.watched]

    def metric(self, name: str, **labels: str) -> float:
        """Return a metric of pods, 0 if it was never set."""
        value = self.target.instruments.registry.get_sample_value(name, {"resource": "pods", **labels})
        return value or 0.0


async def play(client: ScriptedClient, *, backoff: Backoff | None = None, **options: Any) -> Played:
    """Watch until the script is used up. The back-off is predictable: 0.8, 1.6, 3.2 ... seconds."""
    target = WatchTarget(
        client=client,
        resource=PODS,
        instruments=Instruments(CollectorRegistry()),
        backoff=backoff or Backoff(random=Highest()),
        **options,
    )
    changes: list[Change[Pod]] = []

    async def collect() -> None:
        async with aclosing(forever(target)) as stream:
            async for change in stream:
                changes.append(change)  # noqa: PERF401 - the list is read while the stream goes on

    collecting = asyncio.create_task(collect())
    done = asyncio.create_task(client.done.wait())
    await asyncio.wait({collecting, done}, return_when=asyncio.FIRST_COMPLETED)
    done.cancel()
    collecting.cancel()
    with suppress(asyncio.CancelledError):
        await collecting
    return Played(client, changes, target)
