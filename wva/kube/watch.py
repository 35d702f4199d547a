"""An endless stream of changes to one collection, made by three generators, each of which uses the one before.

``one_request`` reads one watch request and knows event types. ``from_list`` lists, then watches again and again from
where the last request stopped, until the server has forgotten that version (410). ``forever`` starts over.

The rules are those of client-go's reflector, because API servers are built to bear them: lists come from the server's
cache where that is new enough (``Versions``); after a lost or throttled stream the watch is resumed without a new list,
which is expensive; silence for longer than the idle limit means a dead connection, since bookmarks come about once per
minute; the wait after each failure is longer than the one before. Timers are the event loop's: a socket lives in real
time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from random import Random
from typing import Final, Generic, TypeAlias

import msgspec

from wva import log
from wva.api import wire
from wva.api.meta import Key, T, WatchEvent, format_time, is_older
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.backoff import Backoff
from wva.kube.client import KubeClient
from wva.slices import Slices

WATCH_SECONDS: Final = (290, 590)
"""Servers end watches after 30 to 60 minutes on their own; ending them earlier, at random, spreads reconnects."""
_SHORT_SECONDS: Final = 1.0
"""A watch that ends sooner without an event counts as a failure, so that WVA does not ask a broken server in a hot
loop."""
_PAUSE_SECONDS: Final = 0.2
"""Pause after a watch with events that ended within ``_SHORT_SECONDS``: a proxy may cut every stream."""
_SHORT_LIST_SECONDS: Final = 10.0
"""A list whose version expired sooner is a failure, too: lists are expensive."""
KEPT_SECONDS: Final = 300.0
KEPT_LOOKS: Final = 3
"""An optional kind is gone when it has been refused for this long and this often."""
_LOG_SECONDS: Final = 60.0
_IN_A_ROW: Final = 2
_CANNOT_READ: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_CAUSES: Final[tuple[tuple[type[errors.ApiError], str], ...]] = (
    (errors.StreamIdle, "idle"),
    (errors.Gone, "expired"),
    (errors.TooManyRequests, "throttled"),
    (errors.Unavailable, "unavailable"),
    (errors.Unreachable, "unreachable"),
    (errors.Unauthorized, "denied"),
    (errors.Forbidden, "denied"),
)
"""The label under which a failed watch counts, by error class, the narrower class first."""

_log = log.get("kube.watch")
_event_decoder = msgspec.json.Decoder(WatchEvent)


class _BareMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Bare(msgspec.Struct):
    """The fields that WVA needs of an object that does not decode; a bookmark has no others."""

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
    """The server has sent all changes up to ``resource_version``."""

    resource_version: str


Change: TypeAlias = Listed[T] | Upserted[T] | Deleted[T] | Progressed


class Versions:
    """Which resourceVersion a list has to ask for, so that a collection never goes back in time.

    The first list of a process may come from a server's cache ("0"). Each later list asks for at least the newest
    version that WVA has seen, since another API server, or one that has just started, may be behind. If the server
    refuses the version twice, or lists expire before any change came, the next list asks for the newest state (None),
    which a server must read consistently. WVA uses an older list only if the newest state is older twice in a row, for
    example because the store was restored from a backup.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self.newest = ""
        self._consistent = False
        self._refused = self._expired = self._older = 0

    @property
    def to_ask(self) -> str | None:
        """The version that the next list asks for: "0" for any state, None for the newest."""
        return None if self._consistent else self.newest or "0"

    def note_list(self, version: str) -> bool:
        """Note the version of a list; tell whether it goes back in time. Raises WentBack when it must not be used."""
        back = is_older(version, self.newest)
        if back:
            self._older += self._consistent
            if self._older < _IN_A_ROW:
                self._consistent = True
                raise errors.WentBack(0, "WentBack", f"version {version}, but {self.newest} was known before")
        self.newest = version
        self._consistent, self._refused, self._older = False, 0, 0
        return back

    def note_change(self, version: str) -> None:
        """Note the version of the collection after a change; empty if the change has none."""
        if version and not is_older(version, self.newest):
            self.newest = version

    def note_refusal(self, error: errors.ApiError) -> None:
        """Note that a list failed."""
        if isinstance(error, errors.VersionTooLarge):
            self._refused += 1
        if self._refused >= _IN_A_ROW or error.status in _CANNOT_READ:
            self._consistent = True

    def note_expiry(self, *, changed: bool) -> None:
        """Note that the server has forgotten our version; ``changed``: a change has come since the list."""
        self._expired = 1 if changed else self._expired + 1
        self._consistent = self._consistent or self._expired >= _IN_A_ROW


@dataclass(slots=True, eq=False)
class WatchTarget(Generic[T]):
    """A watched collection, and the state of its watch: contact, version, failures, log lines.

    This state outlives ``forever``, which may be started again after an error of this program. An ``optional`` kind
    that is not served, or that WVA may not read, is an empty collection until that changes. If WVA could read the kind
    before, the collection becomes empty only after lasting refusals: a single one may come from an API server that has
    just started, or from a role that is being replaced. Times are the event loop's.
    """

    client: KubeClient
    resource: Resource[T]
    _: KW_ONLY
    instruments: Instruments
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    idle_seconds: float = 70.0
    optional: bool = False
    random: Random = field(default_factory=Random)
    backoff: Backoff = field(default_factory=Backoff)

    reached_at: float | None = None
    """The last sign of life of the API server; None before the first."""
    error: str | None = None
    """Why the last request failed; None after a success."""
    absent: str | None = None
    """Why an optional kind cannot be watched: not served, or not allowed; None when it can, and for any other kind."""
    refused: str | None = None
    """Why the server refuses an optional kind, which is kept as of ``reached_at``; None if it is watched or absent."""
    refused_at: float = 0.0
    """Since when it has been refused."""
    looks: int = 0
    """How often it has been refused."""
    known_at: str = ""
    """``reached_at`` as people read it, for as long as it is kept."""
    versions: Versions = field(default_factory=Versions, init=False)
    _logged: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def kept_too_long(self) -> bool:
        """Whether the old content of a refused optional kind must not be used any more."""
        seconds = asyncio.get_running_loop().time() - self.refused_at
        return self.reached_at is None or (self.looks >= KEPT_LOOKS and seconds >= KEPT_SECONDS)

    def warn(self, event: str, **values: object) -> None:
        """Log, but each event at most once per minute."""
        now = asyncio.get_running_loop().time()
        last = self._logged.get(event)
        if last is None or now - last >= _LOG_SECONDS:
            self._logged[event] = now
            _log.warning(event, resource=self.resource.name, namespace=self.namespace, **values)

    def undecodable(self, problem: str, *, count: int = 1) -> None:
        """Count and log objects that were left out. ``problem`` names a path in the object, not its content."""
        self.instruments.undecodable_objects.labels(resource=self.resource.name).inc(count)
        self.warn("object_undecodable", problem=problem, count=count)

    def report(self, event: str, error: errors.ApiError) -> None:
        """Log a failure."""
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
        if self.refused is not None:
            self._keep(None)
            _log.info("optional_kind_back", resource=self.resource.name, namespace=self.namespace)
        self.reached_at = asyncio.get_running_loop().time()
        self.error = self.absent = None
        self.looks = 0

    def refuse(self, error: errors.ApiError) -> None:
        """Note that an optional kind is refused; log this when it begins, and not at every try."""
        if self.absent is not None or self.reached_at is None:
            return
        self.looks += 1
        if self.refused is None:
            self.refused_at = asyncio.get_running_loop().time()
            age_seconds = self.refused_at - self.reached_at
            self.known_at = format_time(time.time() - age_seconds)
            self.warn("optional_kind_refused", reason=str(error), in_force=f"as known {age_seconds:.0f} s ago")
        self._keep(str(error))

    def gone(self, error: errors.ApiError) -> None:
        """Note that an optional kind is absent; log this once, and not at every try."""
        if self.absent is None:
            _log.info("optional_kind_absent", resource=self.resource.name, namespace=self.namespace, reason=str(error))
        self._keep(None)
        self.absent = str(error)

    def _keep(self, reason: str | None) -> None:
        """Note why the collection is kept although it is refused; None if it is not refused."""
        change = (reason is not None) - (self.refused is not None)
        self.refused = reason
        if change:
            self.instruments.caches_kept.labels(resource=self.resource.name).inc(change)

    async def wait_after(self, error: errors.ApiError) -> None:
        """Note a failure, and wait as long as the back-off and the server demand."""
        self.error = str(error)
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(self.backoff.next(now, retry_after_seconds=error.retry_after_seconds))


async def forever(target: WatchTarget[T]) -> AsyncGenerator[Change[T], None]:
    """Yield the changes of a collection; ends only by closing or cancellation.

    No list is older than an earlier change or list, unless the newest state of the server is.
    """
    versions = target.versions
    while True:
        listed_at = asyncio.get_running_loop().time()
        listed = changed = False
        try:
            async with aclosing(from_list(target, resource_version=versions.to_ask)) as changes:
                async for change in changes:
                    if isinstance(change, Listed):
                        listed = True
                        if versions.note_list(change.resource_version):
                            _log.warning(
                                "collection_went_back",
                                resource=target.resource.name,
                                resource_version=change.resource_version,
                                in_force="the state that the server has now",
                            )
                    else:
                        changed = True
                        versions.note_change(_version(change))
                    yield change
        except errors.Gone as error:
            versions.note_expiry(changed=changed)
            if asyncio.get_running_loop().time() - listed_at < _SHORT_LIST_SECONDS:
                await target.wait_after(error)
        except errors.ApiError as error:
            if target.optional and isinstance(error, errors.NotFound | errors.Forbidden):
                target.refuse(error)
                # After a refused watch, the next list must confirm the refusal.
                if not listed and target.kept_too_long:
                    target.gone(error)
                    yield Listed((), "")
            else:
                versions.note_refusal(error)
                target.report("list_failed", error)
            await target.wait_after(error)


async def from_list(target: WatchTarget[T], *, resource_version: str | None) -> AsyncGenerator[Change[T], None]:
    """List, then watch from there, resuming after every failure that does not call for a new list.

    Raises Gone when the server has forgotten our version, and another ApiError when the list fails or a watch is
    refused for a reason that resuming will not cure (a version that the server cannot read, a kind that is gone).
    """
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
    yield Listed(listed.items, listed.resource_version)
    version = listed.resource_version
    while True:
        started = asyncio.get_running_loop().time()
        try:
            async with aclosing(one_request(target, resource_version=version)) as changes:
                async for change in changes:
                    change_version = _version(change)
                    version = version if is_older(change_version, version) else change_version or version
                    yield change
            target.instruments.watch_restarts.labels(resource=target.resource.name, cause="ended").inc()
            if asyncio.get_running_loop().time() - started < _SHORT_SECONDS:
                await asyncio.sleep(_PAUSE_SECONDS)
        except errors.ApiError as error:
            cause = next((cause for kind, cause in _CAUSES if isinstance(error, kind)), "failed")
            target.instruments.watch_restarts.labels(resource=target.resource.name, cause=cause).inc()
            if cause == "expired":
                _log.info("watch_expired", resource=target.resource.name, namespace=target.namespace)
            if cause in {"expired", "failed"}:
                raise
            if cause != "idle":
                target.report("watch_failed", error)
                if target.refused is not None and target.kept_too_long:
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


def _changes(target: WatchTarget[T], line: bytes) -> Iterator[Change[T]]:
    """Decode one line into at most one change; of an object that does not decode, use the readable parts.

    Raises the ApiError that an ERROR event means.
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
    # From the bare metadata WVA still learns that the object is gone, and the version of the collection.
    try:
        metadata = wire.decode(_bare_decoder, event.object).metadata
    except msgspec.DecodeError:
        return
    if kind == "deleted" and metadata.name:
        yield Deleted(Key(metadata.namespace, metadata.name))
    if metadata.resource_version:
        yield Progressed(metadata.resource_version)


def _version(change: Change[T]) -> str:
    """Return the version of the collection after a change; empty if the change has none."""
    if isinstance(change, Listed | Progressed):
        return change.resource_version
    return "" if isinstance(change.obj, Key) else change.obj.metadata.resource_version
