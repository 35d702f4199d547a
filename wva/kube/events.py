"""Kubernetes Events about objects: recorded without waiting, thinned out, posted by one task in the background.

``event`` is called from anywhere and only takes a note. Notes pass the filters that client-go's correlator has, so that
a fault that repeats every second costs the API server next to nothing:

- the same text about the same object within 10 minutes raises ``count`` of the Event that exists already;
- more than 10 different texts of one reason about one object within 10 minutes become one Event, "(combined from
  similar events)", which shows the newest text;
- about one object at most 25 posts at once and one more every 5 minutes; ``count`` goes on counting meanwhile.

What passed waits in a bounded buffer: when the API server does not answer, new Events are dropped and counted, and
the caller is never delayed. Namespaces take turns, and none has more than a quarter of the buffer. An Event that waits
already only has its count raised, also in a full buffer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from wva import log
from wva.api.core import Event, ObjectReference
from wva.api.meta import Key, format_time
from wva.api.resource import Resource
from wva.clock import Clock
from wva.instruments import Instruments
from wva.kube.backoff import Backoff
from wva.kube.errors import AlreadyExists, ApiError, NotFound, TooManyRequests, Unavailable, Unreachable, WriteRefused

EventType: TypeAlias = Literal["Normal", "Warning"]

WINDOW_SECONDS: Final = 600.0
MAX_SIMILAR: Final = 10
COMBINED_PREFIX: Final = "(combined from similar events): "
BURST: Final = 25
REFILL_SECONDS: Final = 300.0
MAX_REMEMBERED: Final = 4096  # client-go's cache sizes: what is forgotten only starts counting afresh
MAX_WAITING: Final = 1000
MAX_MESSAGE_BYTES: Final = 1024  # the API server refuses longer notes in events.k8s.io, which is the same store
MAX_NAME_CHARACTERS: Final = 253
CLUSTER_NAMESPACE: Final = "default"  # where Events about cluster-scoped objects belong
MAX_ATTEMPTS: Final = 6
RETRY_BASE_SECONDS: Final = 1.0
RETRY_CAP_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 10.0

_log = log.get("kube.events")


class EventClient(Protocol):
    """The part of KubeClient that is used here."""

    async def create(self, resource: Resource[Event], namespace: str, body: Mapping[str, object]) -> Event:
        """Create an Event."""
        ...

    async def patch(self, resource: Resource[Event], key: Key, body: Mapping[str, object]) -> Event:
        """Merge ``body`` into an Event."""
        ...


class Note(NamedTuple):
    """What a caller recorded."""

    ref: ObjectReference
    type: EventType
    reason: str
    message: str


Topic: TypeAlias = tuple[ObjectReference, EventType, str]


@dataclass(slots=True, eq=False)
class Series:
    """One Event as it stands, or shall stand, in the API server. ``first`` and ``last`` are wall-clock seconds."""

    note: Note
    first: float
    last: float
    touched: float
    """The monotonic time of its last note."""
    count: int = 0
    name: str = ""
    """Empty before the first try to create it; kept between tries, so that an unseen success is recognised."""
    created: bool = False


V = TypeVar("V")
KeyT = TypeVar("KeyT")


class _Recent(Generic[KeyT, V]):
    """The values used last, at most ``size`` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: dict[KeyT, V] = {}

    def get(self, key: KeyT, new: Callable[[], V]) -> V:
        """Return the value of ``key``, or keep and return a new one."""
        value = self._values.pop(key) if key in self._values else new()
        self._values[key] = value
        if len(self._values) > self._size:
            del self._values[next(iter(self._values))]
        return value

    def put(self, key: KeyT, value: V) -> V:
        """Replace the value of ``key``."""
        self._values.pop(key, None)
        return self.get(key, lambda: value)


@dataclass(slots=True)
class _Texts:
    """The texts of one topic since it was last quiet for the window."""

    last: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Bucket:
    """Tokens of one object."""

    at: float
    tokens: float = BURST

    def take(self, now: float) -> bool:
        self.tokens = min(BURST, self.tokens + (now - self.at) / REFILL_SECONDS)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Correlator:
    """Which Event a note belongs to, and whether it is worth a request. Pure but for what it remembers."""

    def __init__(self, size: int = MAX_REMEMBERED) -> None:
        """Remember at most ``size`` topics, Events and objects each."""
        self._texts: _Recent[Topic, _Texts] = _Recent(size)
        self._series: _Recent[tuple[Topic, str], Series] = _Recent(size)
        self._buckets: _Recent[ObjectReference, _Bucket] = _Recent(size)

    def see(self, note: Note, *, wall: float, now: float) -> tuple[Series, bool]:
        """Return the Event that stands for ``note``, counted, and whether to post it.

        ``wall`` is the time to show, ``now`` a monotonic one for windows and buckets; both in seconds.
        """
        note, text = self._combine(note, now)
        key = (_topic(note), text)
        series = self._series.get(key, lambda: Series(note, wall, wall, now))
        if now - series.touched > WINDOW_SECONDS:
            series = self._series.put(key, Series(note, wall, wall, now))
        series.note, series.last, series.touched = note, wall, now
        series.count += 1
        return series, self._buckets.get(_identity(note.ref), lambda: _Bucket(now)).take(now)

    def _combine(self, note: Note, now: float) -> tuple[Note, str]:
        """Return the note to show and the text that tells its Event from others of the topic."""
        texts = self._texts.get(_topic(note), lambda: _Texts(now))
        if now - texts.last > WINDOW_SECONDS:
            texts.messages.clear()
        texts.last = now
        if note.message in texts.messages or len(texts.messages) < MAX_SIMILAR:
            texts.messages.add(note.message)
            return note, note.message
        return note._replace(message=_cut(COMBINED_PREFIX + note.message)), COMBINED_PREFIX


@dataclass(slots=True)
class EventRecorder:
    """Records Events in the name of ``component``; ``instance`` is this process (its pod's name).

    ``run`` must run somewhere, otherwise only ``drain`` posts.
    """

    client: EventClient
    _: KW_ONLY
    component: str
    instance: str
    resource: Resource[Event]
    clock: Clock
    instruments: Instruments
    token: Callable[[], str] = lambda: secrets.token_hex(8)

    _correlator: Correlator = field(default_factory=Correlator, init=False)
    _waiting: dict[Series, None] = field(default_factory=dict, init=False)  # oldest first
    _turns: dict[str, int] = field(default_factory=dict, init=False)  # by namespace: when its last Event was taken
    _posting: int = field(default=0, init=False)
    _resting: int = field(default=0, init=False)  # those of _posting that wait for their next try
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def event(self, ref: ObjectReference, type_: EventType, reason: str, message: str) -> None:
        """Note that ``reason`` happened to the object ``ref``; ``message`` is for people. Never waits, never fails."""
        note = Note(ref, type_, reason, _cut(message))
        series, wanted = self._correlator.see(note, wall=self.clock.now(), now=self.clock.monotonic())
        if series in self._waiting:
            self._count("aggregated")
        elif not wanted or self._full_for(ref.namespace):
            self._count("dropped")
        else:
            self._waiting[series] = None
            self._wake()

    def _full_for(self, namespace: str) -> bool:
        """Tell whether there is no room for an Event of a namespace: one alone gets a quarter of the buffer."""
        share = MAX_WAITING // 4
        if len(self._waiting) < share:
            return False
        waiting = sum(series.note.ref.namespace == namespace for series in self._waiting)
        return waiting >= share or len(self._waiting) >= MAX_WAITING

    def _take(self) -> Series:
        """Remove and return the oldest Event of the namespace whose turn it is: the one that has waited longest for it.

        The API server may be slow for one namespace alone.
        """
        present = {series.note.ref.namespace for series in self._waiting}
        self._turns = {namespace: turn for namespace, turn in self._turns.items() if namespace in present}
        series = min(self._waiting, key=lambda one: self._turns.get(one.note.ref.namespace, 0))
        self._turns[series.note.ref.namespace] = 1 + max(self._turns.values(), default=0)
        del self._waiting[series]
        return series

    async def run(self) -> None:
        """Post what was recorded, for ever."""
        while True:
            while self._waiting:
                await self._post_next()
            await self.clock.wait(self._changed, None)

    async def drain(self, timeout_seconds: float) -> None:
        """Post what is still waiting, for at most ``timeout_seconds``; what is left then is dropped and counted."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._waiting or self._posting:
                    if self._waiting:
                        await self._post_next()
                    else:
                        await self._changed.wait()
        except TimeoutError:
            _log.warning("events_dropped", events=len(self._waiting))
        for _ in self._waiting:
            self._count("dropped")
        self._waiting.clear()

    @property
    def idle(self) -> bool:
        """Whether nothing will happen here before the clock moves or a caller records an Event."""
        return self._posting == self._resting and not (self._waiting and not self._resting)

    async def _post_next(self) -> None:
        """Post the Event whose turn it is; when this is cancelled, it goes back to the front of the buffer."""
        series = self._take()
        self._posting += 1
        try:
            await self._post_with_retries(series)
        except asyncio.CancelledError:
            self._waiting = {series: None} | self._waiting
            raise
        finally:
            self._posting -= 1
            self._wake()

    async def _post_with_retries(self, series: Series) -> None:
        backoff = Backoff(base_seconds=RETRY_BASE_SECONDS, cap_seconds=RETRY_CAP_SECONDS)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    result = await self._post(series)
            except (TooManyRequests, Unavailable, Unreachable, TimeoutError) as error:
                if attempt == MAX_ATTEMPTS:
                    self._give_up(series, str(error) or "timed out")
                    return
                retry_after = error.retry_after_seconds if isinstance(error, ApiError) else None
                await self._rest(backoff.next(self.clock.monotonic(), retry_after_seconds=retry_after))
            except WriteRefused:  # the leader tells the same story
                self._count("dropped")
                return
            except ApiError as error:  # the server said no, and would say it again
                self._give_up(series, str(error))
                return
            else:
                self._count(result)
                return

    async def _post(self, series: Series) -> Literal["created", "aggregated"]:
        namespace = series.note.ref.namespace or CLUSTER_NAMESPACE
        if series.created:
            try:
                await self.client.patch(self.resource, Key(namespace, series.name), self._changes(series))
            except NotFound:  # Events live for an hour
                series.created, series.name = False, ""
            else:
                return "aggregated"
        series.name = series.name or _event_name(series.note.ref.name, self.token())
        body = self._body(series, Key(namespace, series.name))
        with suppress(AlreadyExists):  # an earlier try arrived although its answer did not
            await self.client.create(self.resource, namespace, body)
        series.created = True
        return "created"

    def _changes(self, series: Series) -> dict[str, object]:
        return {"count": series.count, "lastTimestamp": format_time(series.last), "message": series.note.message}

    def _body(self, series: Series, key: Key) -> dict[str, object]:
        reference = {name: value for name, value in msgspec.to_builtins(series.note.ref).items() if value}
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": key.name, "namespace": key.namespace},
            "involvedObject": reference,
            "type": series.note.type,
            "reason": series.note.reason,
            "firstTimestamp": format_time(series.first),
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self.instance,
            **self._changes(series),
        }

    def _give_up(self, series: Series, error: str) -> None:
        _log.warning("event_not_posted", object=series.note.ref.name, reason=series.note.reason, error=error)
        self._count("failed")

    def _count(self, result: str) -> None:
        self.instruments.events_recorded.labels(result=result).inc()

    def _wake(self) -> None:
        # Replaced, never cleared: a task that waits on the old one cannot miss it.
        self._changed.set()
        self._changed = asyncio.Event()

    async def _rest(self, seconds: float) -> None:
        self._resting += 1
        try:
            await self.clock.sleep(seconds)
        finally:
            self._resting -= 1


def _identity(ref: ObjectReference) -> ObjectReference:
    """Return ``ref`` without the version: the same object after a change is still the same object."""
    return msgspec.structs.replace(ref, resource_version="")


def _topic(note: Note) -> Topic:
    return (_identity(note.ref), note.type, note.reason)


def _cut(text: str) -> str:
    """Return ``text`` as far as it fits, in one printable line, without half a character at its end."""
    text = log.printable(text[:MAX_MESSAGE_BYTES])
    return text.encode(errors="replace")[:MAX_MESSAGE_BYTES].decode(errors="ignore")


def _event_name(name: str, token: str) -> str:
    return f"{name[: MAX_NAME_CHARACTERS - 1 - len(token)].rstrip('-.')}.{token}"
