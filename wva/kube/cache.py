"""A cache of the objects of one kind as the API server last sent them; decisions read it instead of asking the server.

In come lists and changes from ``watch``; out go objects by key, by index, and calls to handlers with the state before
and after. A list *replaces* the content, but handlers see only the difference: objects that were added, changed or
deleted while the watch was interrupted. The event loop's thread makes every change in one go, so a reader never sees
half of one.
"""

from __future__ import annotations

import asyncio
import builtins
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias

from wva import log
from wva.api.meta import Key, T, is_older
from wva.slices import Steps, at_once

Handler: TypeAlias = Callable[[T | None, T | None], None]
"""Called with (old, new): (None, new) for an addition, (old, None) for a deletion."""
Indexer: TypeAlias = Callable[[T], Iterable[str]]

_log = log.get("kube.cache")


class _Index(Generic[T]):
    """The keys of the objects that have a value, by value."""

    def __init__(self, values_of: Indexer[T]) -> None:
        self._values_of = values_of
        self.keys: dict[str, list[Key]] = {}  # in order
        self._values: dict[Key, frozenset[str]] = {}

    def put(self, key: Key, obj: T | None) -> None:
        """Index ``obj`` under ``key``; None removes the key. Raises what the indexer raises."""
        for value in self._values.pop(key, ()):
            keys = self.keys[value]
            del keys[bisect_left(keys, key)]
            if not keys:
                del self.keys[value]
        if obj is None:
            return
        values = frozenset(self._values_of(obj))
        if values:
            self._values[key] = values
        for value in values:
            insort(self.keys.setdefault(value, []), key)


class Store(Generic[T]):
    """Objects by key, with indexes and handlers.

    Two states of an object are the same when their resourceVersions are equal. The store ignores a change that is known
    to be older than its own state of the object. ``synced`` is set by the first ``replace`` and stays set. ``failures``
    counts handlers and indexers that raised: they are logged and disturb neither the store nor one another.
    """

    def __init__(self, *, name: str = "", transform: Callable[[T], T] | None = None) -> None:
        """``name`` is for logs. ``transform`` may drop unused fields; it must keep key, uid and version."""
        self.synced = asyncio.Event()
        self.resource_version = ""
        self.failures = 0
        self._name = name
        self._transform = transform
        self._objects: dict[Key, T] = {}
        self._sorted: builtins.list[Key] | None = []
        self._indexes: dict[str, _Index[T]] = {}
        self._handlers: builtins.list[Handler[T]] = []

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._objects)

    def get(self, key: Key) -> T | None:
        """Return the object, or None when there is none."""
        return self._objects.get(key)

    def keys(self) -> builtins.list[Key]:
        """Return all keys in order."""
        return list(self._ordered())

    def list(self, namespace: str | None = None) -> builtins.list[T]:
        """Return all objects, or those of one namespace, in the order of their keys."""
        ordered = self._ordered()
        if namespace is not None:
            # Keys sort by namespace first; no namespace name sorts between "x" and "x\0".
            first, end = Key(namespace, ""), Key(f"{namespace}\0", "")
            ordered = ordered[bisect_left(ordered, first) : bisect_left(ordered, end)]
        return [self._objects[key] for key in ordered]

    def add_index(self, name: str, indexer: Indexer[T]) -> None:
        """Keep an index of the values that ``indexer`` returns for an object; objects already here are indexed now.

        Raises ValueError when the name is taken.
        """
        if name in self._indexes:
            raise ValueError(f"index {name!r} exists")
        index = self._indexes[name] = _Index(indexer)
        for key, obj in self._objects.items():
            self._put(name, index, key, obj)

    def by_index(self, index_name: str, value: str) -> builtins.list[T]:
        """Return the objects that have ``value`` in the index, in the order of their keys. KeyError: no such index."""
        return [self._objects[key] for key in self._indexes[index_name].keys.get(value, ())]

    def count_by_index(self, index_name: str, value: str) -> int:
        """Return how many objects have ``value`` in the index, in constant time."""
        return len(self._indexes[index_name].keys.get(value, ()))

    def first_by_index(self, index_name: str, value: str, most: int) -> builtins.list[Key]:
        """Return the first ``most`` keys of the objects that have ``value`` in the index."""
        return self._indexes[index_name].keys.get(value, [])[:most]

    def subscribe(self, handler: Handler[T]) -> None:
        """Call ``handler(old, new)`` on each change from now on; objects already here are not replayed.

        Handlers run inside the change, after the store and its indexes have it. They must be quick and must not
        change the store.
        """
        self._handlers.append(handler)

    def replace(self, items: Iterable[T], resource_version: str) -> None:
        """Make ``items`` the whole content, and then call handlers for each difference.

        If the store has a newer state of an object than the item, it keeps that state, unless the whole list is older.
        """
        at_once(self.replacing(items, resource_version))

    def replacing(self, items: Iterable[T], resource_version: str) -> Steps[None]:
        """Do what ``replace`` does, with a step for each object, so that other tasks can run between them.

        The first content is stored step by step, since nothing reads it before ``synced``. For later content the steps
        only find the differences, and then all of them are stored in one go.
        """
        back, fresh, differing = is_older(resource_version, self.resource_version), {}, []
        for obj in items:
            fresh[obj.metadata.key] = obj
            yield

        def news(key: Key, obj: T) -> bool:
            old = self._objects.get(key)
            return old is None or (not _same(old, obj) and (back or not _newer(old, obj)))

        for key, obj in fresh.items():
            if news(key, obj):
                differing.append(key)
            yield
        removed = sorted(key for key in self._objects if key not in fresh)
        changes = [self._change(key, None) for key in removed]
        for key in differing:
            if news(key, fresh[key]):
                changes.append(self._change(key, fresh[key]))
            if not self.synced.is_set():
                yield
        self.resource_version = resource_version
        for old, new in changes:
            self._notify(old, new)
            if not self.synced.is_set():
                yield
        self.synced.set()

    def upsert(self, obj: T) -> None:
        """Add or change one object. The same version, or an older one, changes nothing and calls no handler."""
        old = self._objects.get(obj.metadata.key)
        self.progress(obj.metadata.resource_version)
        if old is not None and (_same(old, obj) or _newer(old, obj)):
            return
        self._notify(*self._change(obj.metadata.key, obj))

    def learn(self, answer: T, *, replaces: T) -> None:
        """Store the answer to a write, unless the watch was faster, and call handlers as for any other change.

        Versions cannot always be compared. So the write must have been conditional on the version of ``replaces``: if
        the store still has that version, the answer is its successor. Other objects may be older, so this does not call
        ``progress``.
        """
        stored = self._objects.get(replaces.metadata.key)
        if stored is not None and _same(stored, replaces) and not _same(stored, answer):
            self._notify(*self._change(replaces.metadata.key, answer))

    def delete(self, obj_or_key: T | Key) -> None:
        """Remove one object; handlers get its last stored state. Removing an absent object calls none.

        A deletion that is older than the stored object concerns a predecessor with the same name, and is ignored.
        """
        if isinstance(obj_or_key, Key):
            key = obj_or_key
        else:
            key = obj_or_key.metadata.key
            self.progress(obj_or_key.metadata.resource_version)
            old = self._objects.get(key)
            if old is not None and _newer(old, obj_or_key):
                return
        if key in self._objects:
            self._notify(*self._change(key, None))

    def progress(self, resource_version: str) -> None:
        """Note that the content is current as of this version, though nothing changed (a bookmark)."""
        if resource_version and not is_older(resource_version, self.resource_version):
            self.resource_version = resource_version

    def _ordered(self) -> builtins.list[Key]:
        if self._sorted is None:
            self._sorted = sorted(self._objects)
        return self._sorted

    def _change(self, key: Key, obj: T | None) -> tuple[T | None, T | None]:
        """Set or remove one object and its index entries; return the old and the new state."""
        old, new = self._objects.get(key), obj
        if obj is not None and self._transform is not None:
            try:
                new = self._transform(obj)
            except Exception:  # noqa: BLE001 - one object must not end the watch; it is stored
                self.failures += 1
                _log.exception("transform_failed", cache=self._name, object=str(key))
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        if (old is None) != (new is None):
            self._sorted = None
        for name, index in self._indexes.items():
            self._put(name, index, key, new)
        return old, new

    def _put(self, name: str, index: _Index[T], key: Key, obj: T | None) -> None:
        try:
            index.put(key, obj)
        except Exception:  # noqa: BLE001 - foreign code; the store must stay whole when it fails
            self.failures += 1
            _log.exception("indexer_failed", cache=self._name, index=name, object=str(key))

    def _notify(self, old: T | None, new: T | None) -> None:
        for handler in tuple(self._handlers):
            try:
                handler(old, new)
            except Exception:  # noqa: BLE001 - foreign code; the other handlers must still run
                self.failures += 1
                obj = new or old
                _log.exception("handler_failed", cache=self._name, object=str(obj.metadata.key) if obj else "")


def _newer(old: T, new: T) -> bool:
    return is_older(new.metadata.resource_version, old.metadata.resource_version)


def _same(old: T, new: T) -> bool:
    """Whether both have the same version; objects without a version (never from a server) always differ."""
    return bool(new.metadata.resource_version) and (
        old.metadata.resource_version == new.metadata.resource_version and old.metadata.uid == new.metadata.uid
    )
