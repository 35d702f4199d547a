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

Some reasons are *urgent*. Their Events have a buffer of their own, which is posted before the other one. It has room
for what a large fleet says at once, no share limits a namespace there, and there is no limit on posts about one object:
from the eleventh text on there is one Event that is changed again and again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping
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
MAX_URGENT: Final = 20_000
"""Twice as many as a fleet of 10,000 variants says in one cycle. Each has a kilobyte or two."""
MAX_MESSAGE_BYTES: Final = 1024  # the API server refuses longer notes in events.k8s.io, which is the same store
MAX_NAME_CHARACTERS: Final = 253
CLUSTER_NAMESPACE: Final = "default"  # where Events about cluster-scoped objects belong
MAX_ATTEMPTS: Final = 6
RETRY_BASE_SECONDS: Final = 1.0
RETRY_CAP_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 10.0
GIVE_WAY_SECONDS: Final = 1.0
"""How long an Event waits at most for more important requests than itself."""

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
    messages: set[int] = field(default_factory=set)
    """Hashes: thousands of topics have ten texts of a kilobyte each."""


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
        said = hash(note.message)
        if said in texts.messages or len(texts.messages) < MAX_SIMILAR:
            texts.messages.add(said)
            return note, note.message
        return note._replace(message=_cut(COMBINED_PREFIX + note.message)), COMBINED_PREFIX


class _Buffer:
    """Events that wait to be posted: in the order in which they came, one namespace after the other."""

    def __init__(self, size: int, share: int) -> None:
        """Have room for ``size`` Events; once ``share`` of them wait, no namespace has more than that."""
        self._size = size
        self._share = share
        self._length = 0
        self._namespaces: dict[str, dict[Series, None]] = {}  # the one whose turn it is first

    def __len__(self) -> int:
        return self._length

    def __contains__(self, series: Series) -> bool:
        return series in self._namespaces.get(series.note.ref.namespace, ())

    def full_for(self, namespace: str) -> bool:
        """Tell whether there is no room for an Event of a namespace."""
        waiting = len(self._namespaces.get(namespace, ()))
        return self._length >= self._size or waiting >= self._share

    def add(self, series: Series) -> None:
        self._namespaces.setdefault(series.note.ref.namespace, {})[series] = None
        self._length += 1

    def put_back(self, series: Series) -> None:
        """Make it the first again."""
        namespace = series.note.ref.namespace
        others = self._namespaces.pop(namespace, {})
        self._length += series not in others
        self._namespaces = {namespace: {series: None} | others} | self._namespaces

    def take(self) -> Series:
        """Remove and return the oldest Event of the namespace whose turn it is: the API server may be slow for one."""
        namespace = next(iter(self._namespaces))
        waiting = self._namespaces.pop(namespace)
        series = next(iter(waiting))
        del waiting[series]
        if waiting:
            self._namespaces[namespace] = waiting
        self._length -= 1
        return series

    def clear(self) -> None:
        self._namespaces.clear()
        self._length = 0


@dataclass(slots=True)
class EventRecorder:
    """Records Events in the name of ``component``; ``instance`` is this process (its pod's name).

    ``urgent`` has the reasons that are posted first and not limited by what was posted before. While ``gives_way``, the
    API server has more important things to do, and an Event is posted once a second. ``run`` must run somewhere,
    otherwise only ``drain`` posts.
    """

    client: EventClient
    _: KW_ONLY
    component: str
    instance: str
    resource: Resource[Event]
    clock: Clock
    instruments: Instruments
    token: Callable[[], str] = lambda: secrets.token_hex(8)
    urgent: Collection[str] = ()
    gives_way: Callable[[], bool] = lambda: False

    _correlator: Correlator = field(default_factory=Correlator, init=False)
    _first: _Buffer = field(default_factory=lambda: _Buffer(MAX_URGENT, MAX_URGENT), init=False)
    _others: _Buffer = field(default_factory=lambda: _Buffer(MAX_WAITING, MAX_WAITING // 4), init=False)
    _posting: int = field(default=0, init=False)
    _resting: int = field(default=0, init=False)  # those of _posting that wait for their next try
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def event(self, ref: ObjectReference, type_: EventType, reason: str, message: str) -> None:
        """Note that ``reason`` happened to the object ``ref``; ``message`` is for people. Never waits, never fails."""
        note = Note(ref, type_, reason, _cut(message))
        series, wanted = self._correlator.see(note, wall=self.clock.now(), now=self.clock.monotonic())
        buffer = self._buffer_of(series)
        if series in buffer:
            self._count("aggregated")
        elif buffer.full_for(ref.namespace) or not (wanted or reason in self.urgent):
            self._count("dropped")
        else:
            buffer.add(series)
            self._wake()

    def _buffer_of(self, series: Series) -> _Buffer:
        return self._first if series.note.reason in self.urgent else self._others

    @property
    def _waiting(self) -> int:
        return len(self._first) + len(self._others)

    async def run(self) -> None:
        """Post what was recorded, for ever."""
        while True:
            while self._waiting:
                await self._give_way()
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
            _log.warning("events_dropped", events=self._waiting)
        for _ in range(self._waiting):
            self._count("dropped")
        self._first.clear()
        self._others.clear()

    @property
    def idle(self) -> bool:
        """Whether nothing will happen here before the clock moves or a caller records an Event."""
        return self._posting == self._resting and not (self._waiting and not self._resting)

    async def _give_way(self) -> None:
        """Wait while others need the API server, but not for long: there may always be others."""
        latest = self.clock.monotonic() + GIVE_WAY_SECONDS
        self._posting += 1
        try:
            while self.gives_way() and self.clock.monotonic() < latest:
                await self._rest(GIVE_WAY_SECONDS / 4)
        finally:
            self._posting -= 1

    async def _post_next(self) -> None:
        """Post the Event whose turn it is; when this is cancelled, it goes back to the front of the buffer."""
        series = (self._first or self._others).take()
        self._posting += 1
        try:
            await self._post_with_retries(series)
        except asyncio.CancelledError:
            self._buffer_of(series).put_back(series)
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
