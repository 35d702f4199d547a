"""The objects of one kind and the history of their changes.

A ``Record`` is one stored state of an object, encoded at most once, however many lists and watches carry it. An
``ObjectWrite`` is one write with exactly one resourceVersion. A watcher whose selector the object enters or leaves sees
it as an addition or a deletion. The history is bounded: a client that asks for older changes gets ``Expired`` and has
to list again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from typing import Final, Protocol

import msgspec

from wva.api.meta import Key
from wva.sim.apiserver.errors import expired
from wva.sim.apiserver.kinds import KindSpec
from wva.sim.apiserver.objects import Object, replaced
from wva.sim.apiserver.selectors import Selection

_encode: Final = msgspec.json.Encoder().encode


class ChangeType(StrEnum):
    """The type of a change, as watch events name it."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Record:
    """One state of one object."""

    __slots__ = ("_body", "object", "version")

    def __init__(self, value: Object, version: int) -> None:
        """Hold ``value``, which must not change any more."""
        self.object = value
        self.version = version
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        """The object as JSON, without ``kind`` and ``apiVersion``, as lists of built-in kinds carry it."""
        if self._body is None:
            self._body = _encode({name: part for name, part in self.object.items() if name not in _TYPE_META})
        return self._body


_TYPE_META: Final = frozenset({"apiVersion", "kind"})


@dataclass(frozen=True, slots=True, eq=False)
class ObjectWrite:
    """One write. When it deletes the object, ``after`` is None and ``final`` the last state, with the new version."""

    spec: KindSpec
    key: Key
    version: int
    before: Record | None
    after: Record | None
    final: Record | None
    lines: dict[ChangeType, bytes] = field(default_factory=dict)
    """Encoded watch events, shared by all watchers while the change is handed out."""

    @property
    def type(self) -> ChangeType:
        """The type of the change for a watcher without a selector."""
        if self.after is None:
            return ChangeType.DELETED
        return ChangeType.ADDED if self.before is None else ChangeType.MODIFIED

    @property
    def object(self) -> Object:
        """The new state, or the last one of a deleted object."""
        record = self.after or self.final
        return {} if record is None else record.object


class Subscriber(Protocol):
    """A follower of a kind."""

    def on_change(self, change: ObjectWrite) -> None:
        """Take one change. Must not block."""
        ...

    def on_end(self) -> None:
        """Learn that the kind is no longer served."""
        ...


class Collection:
    """All objects of one kind, in the order of their keys."""

    def __init__(self, spec: KindSpec, *, history_limit: int) -> None:
        """Start empty; keep the last ``history_limit`` changes for watches."""
        self.spec = spec
        self.last_version = 0
        self.subscribers: dict[int, Subscriber] = {}
        self._records: dict[Key, Record] = {}
        self._order: list[Key] = []
        self._history: deque[ObjectWrite] = deque()
        self._history_limit = history_limit
        self._floor = 0
        self._type_meta = spec.type_meta

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._records)

    def redefine(self, spec: KindSpec) -> None:
        """Serve the same objects by a new definition."""
        self.spec = spec
        self._type_meta = spec.type_meta

    def get(self, key: Key) -> Record | None:
        """Return the current state of an object."""
        return self._records.get(key)

    def records(self, namespace: str = "") -> Iterator[Record]:
        """Iterate over the objects of a namespace, or over all of them, ordered by key."""
        if not namespace:
            return (self._records[key] for key in self._order)
        start = bisect_left(self._order, Key(namespace, ""))
        keys = takewhile(lambda key: key.namespace == namespace, self._order[start:])
        return (self._records[key] for key in keys)

    def put(self, key: Key, value: Object, version: int) -> ObjectWrite:
        """Store a new state of an object."""
        before = self._records.get(key)
        record = Record(value, version)
        self._records[key] = record
        if before is None:
            insort(self._order, key)
        return self._remember(ObjectWrite(self.spec, key, version, before, record, None))

    def remove(self, key: Key, last: Object, version: int) -> ObjectWrite:
        """Remove an object; ``last`` is its last state. The deletion has a version of its own."""
        before = self._records.pop(key)
        del self._order[bisect_left(self._order, key)]
        final = Record(_at_version(last, version), version)
        return self._remember(ObjectWrite(self.spec, key, version, before, None, final))

    def _remember(self, change: ObjectWrite) -> ObjectWrite:
        self._history.append(change)
        self.last_version = change.version
        if len(self._history) > self._history_limit:
            self._floor = self._history.popleft().version
        return change

    def compact(self, version: int) -> None:
        """Forget the history up to ``version``: watches from before it are answered with 410."""
        self._history.clear()
        self._floor = version

    def since(self, version: int) -> list[ObjectWrite]:
        """Return the changes after ``version``. Raises ApiError 410 when the history does not reach that far back."""
        if version < self._floor:
            raise expired(f"too old resource version: {version} ({self._floor})")
        return list(takewhile(lambda change: change.version > version, reversed(self._history)))[::-1]

    # --- what goes over the wire -----------------------------------------------------------------------------------

    def typed_body(self, record: Record) -> bytes:
        """Return an object as JSON with ``kind`` and ``apiVersion``."""
        return self._type_meta + record.body[1:]

    def item_body(self, record: Record) -> bytes:
        """Return an object as an item of a list: items of built-in kinds do not repeat their kind."""
        return record.body if self.spec.built_in else self.typed_body(record)

    def event(self, kind: ChangeType, record: Record) -> bytes:
        """Return the line of a watch event."""
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), self.typed_body(record))

    def line(self, change: ObjectWrite, selection: Selection) -> bytes | None:
        """Return how a watcher with this selection sees a change, or None when it does not see it.

        An object that leaves the selection looks deleted, one that enters it looks added.
        """
        was_selected = change.before is not None and selection.matches(change.before.object)
        is_selected = change.after is not None and selection.matches(change.after.object)
        if not was_selected and not is_selected:
            return None
        kind = ChangeType.DELETED if not is_selected else ChangeType.MODIFIED if was_selected else ChangeType.ADDED
        if kind not in change.lines:
            record = change.after if is_selected else _departed(change)
            change.lines[kind] = self.event(kind, record) if record is not None else b""
        return change.lines[kind]


def _departed(change: ObjectWrite) -> Record | None:
    """Return the last state that a watcher saw, with the version of the change that hides the object from it."""
    if change.after is None:
        return change.final
    if change.before is None:
        return None
    return Record(_at_version(change.before.object, change.version), change.version)


def _at_version(value: Object, version: int) -> Object:
    return replaced(value, ("metadata", "resourceVersion"), str(version))
