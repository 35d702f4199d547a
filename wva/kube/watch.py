"""A stream of changes to one collection that never ends, in three storeys of small generators.

``one_request`` reads one watch request and knows event types. ``from_list`` lists, then watches again and again from
where the last request stopped, until the server has forgotten that place (410). ``forever`` starts over. What comes
out is ``Listed`` (replace everything), ``Upserted``, ``Deleted`` and ``Progressed`` (nothing changed up to here).

The rules are those of client-go's reflector, because API servers are built to bear them: lists come from the server's
cache; a lost or throttled stream is resumed and never answered with a new list, which is the dear request; silence for
longer than the idle limit is a dead connection, since bookmarks come about once per minute; every failure waits longer
than the one before. Timers here are the event loop's: a socket lives in real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Final, Generic, Protocol, TypeAlias

import msgspec

from wva import log
from wva.api import wire
from wva.api.meta import Key, ObjectList, T, WatchEvent
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.backoff import Backoff

WATCH_SECONDS: Final = (290, 590)
"""Servers end watches after 30 to 60 minutes on their own; ending them earlier, at random, spreads reconnects."""
_SHORT_SECONDS: Final = 1.0
"""A watch that ends sooner without a single event is a failure, or a broken server would be asked in a hot loop."""
_PAUSE_SECONDS: Final = 0.2
"""Rest after a watch that ended within ``_SHORT_SECONDS`` though it had events: a proxy may cut every stream."""
_SHORT_LIST_SECONDS: Final = 10.0
"""A list whose version expired sooner is a failure, too: lists are dear."""
_EXPIRED_BEFORE_NEWEST: Final = 2
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

    def stream(  # noqa: PLR0913 - the client's signature
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

    def alive(self) -> None:
        """Note a sign of life."""
        self.at = asyncio.get_running_loop().time()
        self.error = None
        self.absent = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Generic[T]):
    """What is watched, with whose help, and the memory of its failures (back-off, last log lines).

    An ``optional`` kind that is not served, or that we may not read, is an empty collection until that changes.
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
            self.gone(error)
            return
        if isinstance(error, errors.Unauthorized | errors.Forbidden):
            event = "watch_denied"
        elif isinstance(error, errors.NotFound):
            event = "resource_not_served"
        self.warn(event, error=str(error))

    def gone(self, error: errors.ApiError) -> None:
        """Note that an optional kind is not there for us; said once, not with every look for it."""
        if self.contact.absent is None:
            _log.info("optional_kind_absent", resource=self.resource.name, namespace=self.namespace, reason=str(error))
        self.contact.absent = str(error)

    def restarted(self, cause: str) -> None:
        """Count the end of a watch request; the causes are fixed in ``instruments``."""
        self.instruments.watch_restarts.labels(resource=self.resource.name, cause=cause).inc()

    async def wait_after(self, error: errors.ApiError) -> None:
        """Report a failure and wait as long as the back-off and the server say."""
        self.contact.error = str(error)
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self.backoff.next(now, retry_after_seconds=error.retry_after_seconds))


async def forever(target: Target[T]) -> AsyncGenerator[Change[T], None]:
    """Yield the changes of a collection; ends only by closing or cancellation.

    Lists may come from the server's cache. Only when a listed version had expired before a single event came, which
    means that the cache is behind, the next list asks for the newest state.
    """
    expired_in_a_row = 0
    while True:
        listed_at = asyncio.get_running_loop().time()
        told = False
        try:
            newest = expired_in_a_row >= _EXPIRED_BEFORE_NEWEST
            async with aclosing(from_list(target, resource_version=None if newest else "0")) as changes:
                async for change in changes:
                    told = told or not isinstance(change, Listed)
                    yield change
        except errors.Gone as error:
            expired_in_a_row = 1 if told else expired_in_a_row + 1
            if asyncio.get_running_loop().time() - listed_at < _SHORT_LIST_SECONDS:
                await target.wait_after(error)
        except errors.ApiError as error:
            if target.optional and isinstance(error, errors.NotFound | errors.Forbidden):
                target.gone(error)
                yield Listed((), "")
            else:
                target.report("list_failed", error)
            await target.wait_after(error)


async def from_list(target: Target[T], *, resource_version: str | None) -> AsyncGenerator[Change[T], None]:
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
                    version = _version(change) or version
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
                await target.wait_after(error)


async def one_request(target: Target[T], *, resource_version: str) -> AsyncGenerator[Change[T], None]:
    """Yield the changes of one watch request; ends when the server ends it.

    Raises ApiError: Gone for an expired version, by status or in the stream; StreamIdle for silence; Unavailable for
    a stream that ended within a second without an event.
    """
    started = asyncio.get_running_loop().time()
    events = 0
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
                    target.contact.alive()
                    yield change
    except errors.StreamIdle:
        target.contact.alive()
        raise
    if not events and asyncio.get_running_loop().time() - started < _SHORT_SECONDS:
        raise errors.Unavailable(0, "ShortWatch", "the watch ended at once", attempted=f"watch {target.resource.name}")
    target.contact.alive()


async def _list(target: Target[T], resource_version: str | None) -> ObjectList[T]:
    """Read the collection; count and log what did not decode. Raises ApiError."""
    listed = await target.client.list(
        target.resource,
        namespace=target.namespace,
        resource_version=resource_version,
        label_selector=target.label_selector,
        field_selector=target.field_selector,
    )
    target.contact.alive()
    target.instruments.lists.labels(resource=target.resource.name).inc()
    if listed.undecodable:
        target.undecodable("in a list", count=listed.undecodable)
    return listed


def _changes(target: Target[T], line: bytes) -> Iterator[Change[T]]:
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
