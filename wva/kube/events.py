"""Kubernetes Events about objects: recorded without waiting, thinned out, posted by one task in the background.

``event`` may be called from anywhere, and only keeps a note. Notes pass the same filters as in client-go's correlator,
so that a fault that repeats every second costs the API server almost nothing:

- the same text about the same object within 10 minutes raises ``count`` of the Event that exists already;
- more than 10 different texts of one reason about one object within 10 minutes become one Event, "(combined from
  similar events)", which shows the newest text;
- about one object at most 25 posts at once and one more every 5 minutes; ``count`` goes on counting meanwhile.

Events that pass wait in a bounded buffer. Namespaces take turns in it, and each has at most a quarter. When the API
server does not answer, the recorder drops and counts new Events, and never delays the caller. *Urgent* reasons have a
buffer of their own, which is posted first. It has room for the Events of a large fleet and no limits per namespace or
object; from the eleventh text on, one Event is changed again and again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from wva import log
from wva.api.core import Event, ObjectReference
from wva.api.meta import Key, format_time
from wva.api.resource import Resource
from wva.clock import Clock
from wva.instruments import Instruments
from wva.kube.backoff import Backoff
from wva.kube.client import KubeClient
from wva.kube.errors import AlreadyExists, ApiError, NotFound, TooManyRequests, Unavailable, Unreachable, WriteRefused

EventType: TypeAlias = Literal["Normal", "Warning"]

WINDOW_SECONDS: Final = 600.0
MAX_SIMILAR: Final = 10
COMBINED_PREFIX: Final = "(combined from similar events): "
BURST: Final = 25
REFILL_SECONDS: Final = 300.0
MAX_REMEMBERED: Final = 4096  # client-go's cache sizes: a forgotten entry only starts counting afresh
MAX_WAITING: Final = 1000
MAX_URGENT: Final = 20_000
"""Twice as many as a fleet of 10,000 variants has in one cycle. Each takes a kilobyte or two."""
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


class Note(NamedTuple):
    """One call of ``EventRecorder.event``."""

    ref: ObjectReference
    type: EventType
    reason: str
    message: str


Topic: TypeAlias = tuple[ObjectReference, EventType, str]
V = TypeVar("V")
KeyT = TypeVar("KeyT")


@dataclass(slots=True, eq=False)
class EventSeries:
    """One Event as the API server has it, or will have it. ``first`` and ``last`` are wall-clock seconds."""

    note: Note
    first: float
    last: float
    touched: float
    """The monotonic time of its last note."""
    count: int = 0
    name: str = ""
    """Empty before the first try to create the Event; kept between tries, to recognise a success whose answer was
    lost."""
    created: bool = False


@dataclass(slots=True)
class _Texts:
    """The texts of one topic since the last window without any."""

    last: float
    messages: set[int] = field(default_factory=set)
    """Hashes: thousands of topics have ten texts of a kilobyte each."""


@dataclass(slots=True)
class _Bucket:
    """Tokens of one object."""

    at: float
    tokens: float = BURST


class Correlator:
    """Decides which Event a note belongs to, and whether to post it. Does no I/O."""

    def __init__(self, size: int = MAX_REMEMBERED) -> None:
        """Remember the last ``size`` topics, Events and objects each."""
        self._size = size
        self._texts: dict[Topic, _Texts] = {}
        self._series: dict[tuple[Topic, str], EventSeries] = {}
        self._buckets: dict[ObjectReference, _Bucket] = {}

    def see(self, note: Note, *, wall: float, now: float) -> tuple[EventSeries, bool]:
        """Return the Event that stands for ``note``, counted, and whether to post it.

        ``wall`` is the time to show, ``now`` a monotonic one for windows and buckets; both in seconds.
        """
        # The same object after a change is still the same object.
        identity = msgspec.structs.replace(note.ref, resource_version="")
        topic = (identity, note.type, note.reason)

        # Each text has an Event of its own, unless the topic has too many texts.
        texts = self._use(self._texts, topic, self._texts.get(topic) or _Texts(now))
        if now - texts.last > WINDOW_SECONDS:
            texts.messages.clear()
        texts.last = now
        text, text_hash = note.message, hash(note.message)
        if text_hash in texts.messages or len(texts.messages) < MAX_SIMILAR:
            texts.messages.add(text_hash)
        else:
            text, note = COMBINED_PREFIX, note._replace(message=_cut(COMBINED_PREFIX + note.message))

        series = self._series.get((topic, text))
        if series is None or now - series.touched > WINDOW_SECONDS:
            series = EventSeries(note, wall, wall, now)
        self._use(self._series, (topic, text), series)
        series.note, series.last, series.touched = note, wall, now
        series.count += 1

        bucket = self._use(self._buckets, identity, self._buckets.get(identity) or _Bucket(now))
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        to_post = bucket.tokens >= 1
        bucket.tokens -= to_post
        return series, to_post

    def _use(self, table: dict[KeyT, V], key: KeyT, value: V) -> V:
        """Put the entry last, and forget the first entry, which was not used for longest, if there are too many."""
        table.pop(key, None)
        table[key] = value
        if len(table) > self._size:
            del table[next(iter(table))]
        return value


class _Buffer:
    """Events that wait to be posted, in the order in which they came. Namespaces take turns."""

    def __init__(self, size: int, share: int) -> None:
        """Have room for ``size`` Events; once ``share`` of them wait, no namespace has more than that."""
        self._size = size
        self._share = share
        self._length = 0
        self._namespaces: dict[str, dict[EventSeries, None]] = {}  # the one whose turn it is first

    def __len__(self) -> int:
        return self._length

    def __contains__(self, series: EventSeries) -> bool:
        return series in self._namespaces.get(series.note.ref.namespace, ())

    def full_for(self, namespace: str) -> bool:
        """Tell whether there is no room for an Event of a namespace."""
        waiting = len(self._namespaces.get(namespace, ()))
        return self._length >= self._size or waiting >= self._share

    def add(self, series: EventSeries) -> None:
        self._namespaces.setdefault(series.note.ref.namespace, {})[series] = None
        self._length += 1

    def put_back(self, series: EventSeries) -> None:
        """Put an Event back to the front."""
        namespace = series.note.ref.namespace
        others = self._namespaces.pop(namespace, {})
        self._length += series not in others
        self._namespaces = {namespace: {series: None} | others} | self._namespaces

    def take(self) -> EventSeries:
        """Remove and return the oldest Event of the next namespace."""
        namespace = next(iter(self._namespaces))
        waiting = self._namespaces.pop(namespace)
        series = next(iter(waiting))
        del waiting[series]
        if waiting:
            self._namespaces[namespace] = waiting
        self._length -= 1
        return series


@dataclass(slots=True)
class EventRecorder:
    """Records Events as ``component``; ``instance`` is this process (its pod's name).

    Events with an ``urgent`` reason are posted first and without limits. While ``gives_way`` is true, more important
    requests wait, so the recorder posts one Event per second. Only ``run`` and ``drain`` post.
    """

    client: KubeClient
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
        """Record that ``reason`` happened to the object ``ref``; ``message`` is for people. Never waits or fails."""
        note = Note(ref, type_, reason, _cut(message))
        series, to_post = self._correlator.see(note, wall=self.clock.now(), now=self.clock.monotonic())
        buffer = self._buffer_of(series)
        if series in buffer:
            self._count("aggregated")
        elif buffer.full_for(ref.namespace) or not (to_post or reason in self.urgent):
            self._count("dropped")
        else:
            buffer.add(series)
            self._wake()

    def _buffer_of(self, series: EventSeries) -> _Buffer:
        return self._first if series.note.reason in self.urgent else self._others

    @property
    def _waiting(self) -> int:
        return len(self._first) + len(self._others)

    async def run(self) -> None:
        """Post the recorded Events until cancelled."""
        while True:
            while self._waiting:
                # Leave the API server to other requests, but not for long, since there may always be some.
                latest = self.clock.monotonic() + GIVE_WAY_SECONDS
                self._posting += 1
                try:
                    while self.gives_way() and self.clock.monotonic() < latest:
                        await self._rest(GIVE_WAY_SECONDS / 4)
                finally:
                    self._posting -= 1
                    self._wake()
                if self._waiting:  # ``drain`` may have posted it meanwhile
                    await self._post_next()
            await self.clock.wait(self._changed, None)

    async def drain(self, timeout_seconds: float) -> None:
        """Post the waiting Events for at most ``timeout_seconds``; then drop and count the others."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._waiting or self._posting:
                    if self._waiting:
                        await self._post_next()
                    else:
                        await self._changed.wait()
        except TimeoutError:
            _log.warning("events_dropped", events=self._waiting)
        while self._waiting:
            (self._first or self._others).take()
            self._count("dropped")

    @property
    def idle(self) -> bool:
        """Whether the recorder does nothing more until the clock moves or a caller records an Event."""
        return self._posting == self._resting and not (self._waiting and not self._resting)

    async def _post_next(self) -> None:
        """Post the next Event; when this is cancelled, the Event goes back to the front of the buffer."""
        series = (self._first or self._others).take()
        self._posting += 1
        backoff = Backoff(base_seconds=RETRY_BASE_SECONDS, cap_seconds=RETRY_CAP_SECONDS)
        failure = None
        try:
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    async with asyncio.timeout(REQUEST_SECONDS):
                        self._count(await self._post(series))
                    break
                except (TooManyRequests, Unavailable, Unreachable, TimeoutError) as error:
                    if attempt == MAX_ATTEMPTS:
                        failure = str(error) or "timed out"
                        break
                    retry_after = error.retry_after_seconds if isinstance(error, ApiError) else None
                    await self._rest(backoff.next(self.clock.monotonic(), retry_after_seconds=retry_after))
                except WriteRefused:  # the leader posts the same Event
                    self._count("dropped")
                    break
                except ApiError as error:  # the server would refuse it again
                    failure = str(error)
                    break
            if failure is not None:
                _log.warning("event_not_posted", object=series.note.ref.name, reason=series.note.reason, error=failure)
                self._count("failed")
        except asyncio.CancelledError:
            self._buffer_of(series).put_back(series)
            raise
        finally:
            self._posting -= 1
            self._wake()

    async def _post(self, series: EventSeries) -> Literal["created", "aggregated"]:
        """Change the Event if it exists, or create it. Raises ApiError."""
        note = series.note
        namespace = note.ref.namespace or CLUSTER_NAMESPACE
        changes = {"count": series.count, "lastTimestamp": format_time(series.last), "message": note.message}
        if series.created:
            try:
                await self.client.patch(self.resource, Key(namespace, series.name), changes)
            except NotFound:  # Events live for an hour
                series.created, series.name = False, ""
            else:
                return "aggregated"
        if not series.name:
            token = self.token()
            series.name = f"{note.ref.name[: MAX_NAME_CHARACTERS - 1 - len(token)].rstrip('-.')}.{token}"
        body = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": series.name, "namespace": namespace},
            "involvedObject": {name: value for name, value in msgspec.to_builtins(note.ref).items() if value},
            "type": note.type,
            "reason": note.reason,
            "firstTimestamp": format_time(series.first),
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self.instance,
            **changes,
        }
        with suppress(AlreadyExists):  # an earlier try arrived although its answer did not
            await self.client.create(self.resource, namespace, body)
        series.created = True
        return "created"

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


def _cut(text: str) -> str:
    """Return ``text`` as far as it fits, in one printable line, without half a character at its end."""
    text = log.printable(text[:MAX_MESSAGE_BYTES])
    return text.encode(errors="replace")[:MAX_MESSAGE_BYTES].decode(errors="ignore")
