"""A stream of changes to one collection that never ends, in three storeys of small generators.

``one_request`` reads one watch request and knows event types. ``from_list`` lists, then watches again and again from
where the last request stopped, until the server has forgotten that place (410). ``forever`` starts over. What comes
out is ``Listed`` (replace everything), ``Upserted``, ``Deleted`` and ``Progressed`` (nothing changed up to here).

The rules are those of client-go's reflector, because API servers are built to bear them: lists come from the server's
cache where that is new enough (``versions``); a lost or throttled stream is resumed and never answered with a new list,
which is the dear request; silence for longer than the idle limit is a dead connection, since bookmarks come about once
per minute; every failure waits longer than the one before. Timers here are the event loop's: a socket lives in real
time.

An optional kind that was there and is refused (403, 404) stays as it was last known until that has lasted: one refusal
may come from an API server that has just started, or from a role that is being replaced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Final, Generic, Protocol, TypeAlias

import msgspec

from wva import log
from wva.api import wire
from wva.api.meta import Key, ObjectList, T, WatchEvent, format_time, is_older
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.backoff import Backoff
from wva.kube.versions import Versions
from wva.slices import Slices

WATCH_SECONDS: Final = (290, 590)
"""Servers end watches after 30 to 60 minutes on their own; ending them earlier, at random, spreads reconnects."""
_SHORT_SECONDS: Final = 1.0
"""A watch that ends sooner without a single event is a failure, or a broken server would be asked in a hot loop."""
_PAUSE_SECONDS: Final = 0.2
"""Rest after a watch that ended within ``_SHORT_SECONDS`` though it had events: a proxy may cut every stream."""
_SHORT_LIST_SECONDS: Final = 10.0
"""A list whose version expired sooner is a failure, too: lists are dear."""
KEPT_SECONDS: Final = 300.0
KEPT_LOOKS: Final = 3
"""An optional kind is gone when it has been refused for so long, and as often."""
_LOG_SECONDS: Final = 60.0
_CAUSES: Final[tuple[tuple[type[errors.ApiError], str], ...]] = (
    (errors.StreamIdle, "idle"),
    (errors.Gone, "expired"),
    (errors.TooManyRequests, "throttled"),
    (errors.Unavailable, "unavailable"),
    (errors.Unreachable, "unreachable"),
    (errors.Unauthorized, "denied"),
    (errors.Forbidden, "denied"),
)
"""What a failed watch is counted as, the narrower class first."""

_log = log.get("kube.watch")
_event_decoder = msgspec.json.Decoder(WatchEvent)


class _BareMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Bare(msgspec.Struct):
    """The least that is needed of an object that does not decode; also all that a bookmark has."""

    metadata: _BareMetadata


_bare_decoder = msgspec.json.Decoder(_Bare)


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """The whole collection as of ``resource_version``."""

    items: tuple[T, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Upserted(Generic[T]):
    """An object was added or changed, or became visible to the selectors."""

    obj: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """An object is gone, or no longer visible to the selectors; its last state, or its key if that did not decode."""

    obj: T | Key


@dataclass(frozen=True, slots=True)
class Progressed:
    """All changes up to ``resource_version`` have been told."""

    resource_version: str


Change: TypeAlias = Listed[T] | Upserted[T] | Deleted[T] | Progressed


class Lister(Protocol):
    """What is needed of a client; see ``KubeClient`` for the meaning."""

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        resource_version: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList[T]:
        """Read the collection."""
        ...

    def stream(
        self,
        resource: Resource[T],
        *,
        resource_version: str,
        timeout_seconds: int,
        idle_seconds: float,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of one watch request."""
        ...


@dataclass(slots=True)
class Contact:
    """Whether the API server answers: kept by the watch, read by ``/readyz``."""

    at: float | None = None
    """The last sign of life in the event loop's time; None before the first."""
    error: str | None = None
    """Why the last request failed; None after a success."""
    absent: str | None = None
    """Why an optional kind cannot be watched: not served, or not allowed; None when it can, and for any other kind."""
    refused: str | None = None
    """Why an optional kind is not told any more and kept as it was at ``at``; None when it is told, or absent."""
    known_at: str = ""
    """``at`` as people read it, for as long as it is kept."""
    refused_at: float = 0.0
    looks: int = 0
    """Since when it has been refused, and how often."""

    @property
    def kept_too_long(self) -> bool:
        """Whether what was known of an optional kind must not be used any more."""
        now = asyncio.get_running_loop().time()
        return self.at is None or (self.looks >= KEPT_LOOKS and now - self.refused_at >= KEPT_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTarget(Generic[T]):
    """What is watched, with whose help, and what is remembered of it: its version, its failures, the last log lines.

    The memory outlives ``forever``, which may be started again after an error of this program.

    An ``optional`` kind that is not served, or that we may not read, is an empty collection until that changes. If it
    was there before, it becomes empty when that has lasted.
    """

    client: Lister
    resource: Resource[T]
    instruments: Instruments
    contact: Contact = field(default_factory=Contact)
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    idle_seconds: float = 70.0
    optional: bool = False
    random: Random = field(default_factory=Random)
    backoff: Backoff = field(default_factory=Backoff)
    versions: Versions = field(default_factory=Versions)
    logged: dict[str, float] = field(default_factory=dict)

    def warn(self, event: str, **values: object) -> None:
        """Log, but each event at most once per minute."""
        now = asyncio.get_running_loop().time()
        last = self.logged.get(event)
        if last is None or now - last >= _LOG_SECONDS:
            self.logged[event] = now
            _log.warning(event, resource=self.resource.name, namespace=self.namespace, **values)

    def undecodable(self, problem: str, *, count: int = 1) -> None:
        """Count and log objects that were left out. ``problem`` names a path in the object, not its content."""
        self.instruments.undecodable_objects.labels(resource=self.resource.name).inc(count)
        self.warn("object_undecodable", problem=problem, count=count)

    def report(self, event: str, error: errors.ApiError) -> None:
        """Log a failure, by its meaning where there is one."""
        if self.optional and isinstance(error, errors.Forbidden):
            self.refuse(error)
            return
        if isinstance(error, errors.Unauthorized | errors.Forbidden):
            event = "watch_denied"
        elif isinstance(error, errors.NotFound):
            event = "resource_not_served"
        self.warn(event, error=str(error))

    def alive(self) -> None:
        """Note a sign of life."""
        contact = self.contact
        if contact.refused is not None:
            self._keep(None)
            _log.info("optional_kind_back", resource=self.resource.name, namespace=self.namespace)
        contact.at = asyncio.get_running_loop().time()
        contact.error = contact.absent = None
        contact.looks = 0

    def refuse(self, error: errors.ApiError) -> None:
        """Note that an optional kind is refused. The log says so when this begins, not with every look for it."""
        contact, now = self.contact, asyncio.get_running_loop().time()
        if contact.absent is not None or contact.at is None:
            return
        contact.looks += 1
        if contact.refused is None:
            age_seconds = now - contact.at
            contact.refused_at, contact.known_at = now, format_time(time.time() - age_seconds)
            self.warn("optional_kind_refused", reason=str(error), in_force=f"as known {age_seconds:.0f} s ago")
        self._keep(str(error))

    def gone(self, error: errors.ApiError) -> None:
        """Note that an optional kind is not there for us; said once, not with every look for it."""
        if self.contact.absent is None:
            _log.info("optional_kind_absent", resource=self.resource.name, namespace=self.namespace, reason=str(error))
        self._keep(None)
        self.contact.absent = str(error)

    def _keep(self, reason: str | None) -> None:
        """Say whether the collection is kept though it is refused, and why."""
        change = (reason is not None) - (self.contact.refused is not None)
        self.contact.refused = reason
        if change:
            self.instruments.caches_kept.labels(resource=self.resource.name).inc(change)

    def restarted(self, cause: str) -> None:
        """Count the end of a watch request; the causes are fixed in ``instruments``."""
        self.instruments.watch_restarts.labels(resource=self.resource.name, cause=cause).inc()

    async def wait_after(self, error: errors.ApiError) -> None:
        """Report a failure and wait as long as the back-off and the server say."""
        self.contact.error = str(error)
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self.backoff.next(now, retry_after_seconds=error.retry_after_seconds))


async def forever(target: WatchTarget[T]) -> AsyncGenerator[Change[T], None]:
    """Yield the changes of a collection; ends only by closing or cancellation.

    No list that comes out is older than anything that came out before it, unless the newest state of the server is.
    """
    versions = target.versions
    while True:
        listed_at = asyncio.get_running_loop().time()
        listed = told = False
        try:
            async with aclosing(from_list(target, resource_version=versions.to_ask)) as changes:
                async for change in changes:
                    if isinstance(change, Listed):
                        listed = True
                        if versions.listed(change.resource_version):
                            _log.warning("collection_went_back", resource=target.resource.name, **_to(change))
                    else:
                        told = True
                        versions.told(_version(change))
                    yield change
        except errors.Gone as error:
            versions.expired(told=told)
            if asyncio.get_running_loop().time() - listed_at < _SHORT_LIST_SECONDS:
                await target.wait_after(error)
        except errors.ApiError as error:
            if target.optional and isinstance(error, errors.NotFound | errors.Forbidden):
                target.refuse(error)
                if (
                    not listed and target.contact.kept_too_long
                ):  # the refusal of a watch is for the next list to confirm
                    target.gone(error)
                    yield Listed((), "")
            else:
                versions.refused(error)
                target.report("list_failed", error)
            await target.wait_after(error)


def _to(change: Listed[T]) -> dict[str, str]:
    return {"resource_version": change.resource_version, "in_force": "the state that the server has now"}


async def from_list(target: WatchTarget[T], *, resource_version: str | None) -> AsyncGenerator[Change[T], None]:
    """List, then watch from there, resuming after every failure that does not call for a new list.

    Raises Gone when the server has forgotten our version, and another ApiError when the list fails or a watch is
    refused for a reason that resuming will not cure (a version that the server cannot read, a kind that is gone).
    """
    listed = await _list(target, resource_version)
    yield Listed(listed.items, listed.resource_version)
    version = listed.resource_version
    while True:
        started = asyncio.get_running_loop().time()
        try:
            async with aclosing(one_request(target, resource_version=version)) as changes:
                async for change in changes:
                    told = _version(change)
                    version = version if is_older(told, version) else told or version
                    yield change
            target.restarted("ended")
            if asyncio.get_running_loop().time() - started < _SHORT_SECONDS:
                await asyncio.sleep(_PAUSE_SECONDS)
        except errors.ApiError as error:
            cause = _cause(error)
            target.restarted(cause)
            if cause == "expired":
                _log.info("watch_expired", resource=target.resource.name, namespace=target.namespace)
            if cause in {"expired", "failed"}:
                raise
            if cause != "idle":
                target.report("watch_failed", error)
                if target.contact.refused is not None and target.contact.kept_too_long:
                    raise
                await target.wait_after(error)


async def one_request(target: WatchTarget[T], *, resource_version: str) -> AsyncGenerator[Change[T], None]:
    """Yield the changes of one watch request; ends when the server ends it.

    Raises ApiError: Gone for an expired version, by status or in the stream; StreamIdle for silence; Unavailable for
    a stream that ended within a second without an event.
    """
    started = asyncio.get_running_loop().time()
    events, slices = 0, Slices()
    lines = target.client.stream(
        target.resource,
        namespace=target.namespace,
        resource_version=resource_version,
        timeout_seconds=target.random.randint(*WATCH_SECONDS),
        idle_seconds=target.idle_seconds,
        label_selector=target.label_selector,
        field_selector=target.field_selector,
    )
    try:
        async with aclosing(lines):
            async for line in lines:
                for change in _changes(target, line):
                    events += 1
                    target.alive()
                    yield change
                await slices.rest()
    except errors.StreamIdle:
        target.alive()
        raise
    if not events and asyncio.get_running_loop().time() - started < _SHORT_SECONDS:
        raise errors.Unavailable(0, "ShortWatch", "the watch ended at once", attempted=f"watch {target.resource.name}")
    target.alive()


async def _list(target: WatchTarget[T], resource_version: str | None) -> ObjectList[T]:
    """Read the collection; count and log what did not decode. Raises ApiError."""
    listed = await target.client.list(
        target.resource,
        namespace=target.namespace,
        resource_version=resource_version,
        label_selector=target.label_selector,
        field_selector=target.field_selector,
    )
    target.alive()
    target.instruments.lists.labels(resource=target.resource.name).inc()
    if listed.undecodable:
        target.undecodable("in a list", count=listed.undecodable)
    return listed


def _changes(target: WatchTarget[T], line: bytes) -> Iterator[Change[T]]:
    """Decode one line: none or one change, and for an object that does not decode, its readable parts.

    Raises the ApiError that an ERROR event tells.
    """
    try:
        event = wire.decode(_event_decoder, line)
    except msgspec.DecodeError as error:
        target.undecodable(str(error))
        return
    kind = event.type.lower()
    known = kind in {"added", "modified", "deleted", "bookmark", "error"}
    target.instruments.watch_events.labels(resource=target.resource.name, type=kind if known else "unknown").inc()
    if kind == "error":
        raise errors.from_status(0, event.object, attempted=f"watch {target.resource.name}")
    if kind in {"added", "modified", "deleted"}:
        try:
            obj = target.resource.decode(event.object)
        except msgspec.DecodeError as error:
            target.undecodable(str(error))
        else:
            yield Deleted(obj) if kind == "deleted" else Upserted(obj)
            return
    elif not known:
        target.warn("watch_event_unknown", type=event.type)
    yield from _known_of(event.object, deleted=kind == "deleted")


def _known_of(raw: msgspec.Raw, *, deleted: bool) -> Iterator[Deleted[T] | Progressed]:
    """Yield what the bare metadata of an object tells: that it is gone, and how far we are."""
    try:
        metadata = wire.decode(_bare_decoder, raw).metadata
    except msgspec.DecodeError:
        return
    if deleted and metadata.name:
        yield Deleted(Key(metadata.namespace, metadata.name))
    if metadata.resource_version:
        yield Progressed(metadata.resource_version)


def _version(change: Change[T]) -> str:
    """Return the version that a change brings us to; empty when it does not tell."""
    if isinstance(change, Listed | Progressed):
        return change.resource_version
    return "" if isinstance(change.obj, Key) else change.obj.metadata.resource_version


def _cause(error: errors.ApiError) -> str:
    """Return the label of ``instruments.watch_restarts``."""
    return next((cause for kind, cause in _CAUSES if isinstance(error, kind)), "failed")
