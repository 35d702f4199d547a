"""The objects of one kind as the API server last told: what every decision reads instead of asking the server.

In come lists and changes from ``watch``; out go objects by key, by index, and calls to handlers with the state before
and after. A list *replaces* the content, but handlers see only the difference: what came, what changed, what went while
the watch was interrupted. Every change happens in one go in the event loop's thread, so a reader never sees half of
one. Only the first list, which nothing reads before it is complete, comes in step by step.
"""

from __future__ import annotations

import asyncio
import builtins
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeAlias

from wva import log
from wva.api.meta import Key, T, is_older
from wva.slices import Steps, at_once

Handler: TypeAlias = Callable[[T | None, T | None], None]
"""Called with (old, new): (None, new) for an addition, (old, None) for a deletion."""
Indexer: TypeAlias = Callable[[T], Iterable[str]]

_log = log.get("kube.cache")


class _Index(Generic[T]):
    """From a value to the keys of the objects that have it."""

    def __init__(self, values_of: Indexer[T]) -> None:
        self._values_of = values_of
        self._keys: dict[str, list[Key]] = {}  # in order
        self._values: dict[Key, frozenset[str]] = {}

    def put(self, key: Key, obj: T | None) -> None:
        """Make ``obj`` what the index knows of ``key``; None forgets the key. Raises what the indexer raises."""
        for value in self._values.pop(key, ()):
            keys = self._keys[value]
            del keys[bisect_left(keys, key)]
            if not keys:
                del self._keys[value]
        if obj is None:
            return
        values = frozenset(self._values_of(obj))
        if values:
            self._values[key] = values
        for value in values:
            insort(self._keys.setdefault(value, []), key)

    def keys(self, value: str) -> Sequence[Key]:
        """Return the keys that have ``value``, in order. The caller must not keep them."""
        return self._keys.get(value, ())


class Store(Generic[T]):
    """Objects by key, with indexes and handlers.

    Two states of an object are the same when their resourceVersions are equal. A change that is known to be older than
    what is here changes nothing.
    ``synced`` is set by the first ``replace`` and stays set. ``failures`` counts handlers and indexers that raised:
    they are logged and disturb neither the store nor one another.
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
        """Return all keys, in order."""
        return list(self._ordered())

    def list(self, namespace: str | None = None) -> builtins.list[T]:
        """Return all objects, or those of one namespace, in the order of their keys."""
        ordered = self._ordered()
        if namespace is not None:
            # Keys sort by namespace first; no namespace name sorts between "x" and "x\0".
            ordered = ordered[
                bisect_left(ordered, Key(namespace, "")) : bisect_left(ordered, Key(f"{namespace}\0", ""))
            ]
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
        return [self._objects[key] for key in self._indexes[index_name].keys(value)]

    def count_by_index(self, index_name: str, value: str) -> int:
        """Return how many objects have ``value`` in the index; as quick for many as for few."""
        return len(self._indexes[index_name].keys(value))

    def first_by_index(self, index_name: str, value: str, most: int) -> builtins.list[Key]:
        """Return the keys of at most so many of the objects that have ``value`` in the index, in order."""
        return list(self._indexes[index_name].keys(value)[:most])

    def subscribe(self, handler: Handler[T]) -> None:
        """Call ``handler(old, new)`` on each change from now on; objects already here are not replayed.

        Handlers run inside the change, after the store and its indexes have it. They must be quick and must not
        change the store.
        """
        self._handlers.append(handler)

    def replace(self, items: Iterable[T], resource_version: str) -> None:
        """Make ``items`` the whole content. Handlers see the difference, once the whole new content is in place.

        An object that is already known in a newer state than its item keeps it, unless all of the content goes back.
        """
        at_once(self.replacing(items, resource_version))

    def replacing(self, items: Iterable[T], resource_version: str) -> Steps[None]:
        """Do what ``replace`` does, with a step for each object, so that other tasks can run between them.

        The first content comes in step by step: nothing reads it before ``synced``. Of a later one the steps find what
        differs, and that is taken in one go.
        """
        back, fresh, differing = is_older(resource_version, self.resource_version), {}, []
        for obj in items:
            fresh[obj.metadata.key] = obj
            yield
        for key, obj in fresh.items():
            if self._is_news(key, obj, back=back):
                differing.append(key)
            yield
        gone = sorted(key for key in self._objects if key not in fresh)
        changes: builtins.list[tuple[T | None, T | None]] = [(self._store(key, None), None) for key in gone]
        for key in differing:
            if self._is_news(key, fresh[key], back=back):
                changes.append((self._objects.get(key), self._kept(fresh[key])))
                self._store(key, changes[-1][1])
            if not self.synced.is_set():
                yield
        self.resource_version = resource_version
        for old, new in changes:
            self._notify(old, new)
            if not self.synced.is_set():
                yield
        self.synced.set()

    def _is_news(self, key: Key, obj: T, *, back: bool) -> bool:
        old = self._objects.get(key)
        return old is None or (not _same(old, obj) and (back or not _newer(old, obj)))

    def upsert(self, obj: T) -> None:
        """Add or change one object. The same version again calls no handler, and neither does an older one."""
        old = self._objects.get(obj.metadata.key)
        self.progress(obj.metadata.resource_version)
        if old is not None and (_same(old, obj) or _newer(old, obj)):
            return
        new = self._kept(obj)
        self._store(obj.metadata.key, new)
        self._notify(old, new)

    def learn(self, answer: T, *, replaces: T) -> None:
        """Take the answer to a write, unless the watch was faster; handlers hear of it as of any other change.

        A version need not be a number, so this is for writes that the server did only to the version of ``replaces``:
        while that one is still here, the answer is its successor. Other objects may be behind, so this is no
        ``progress``.
        """
        here = self._objects.get(replaces.metadata.key)
        if here is None or not _same(here, replaces) or _same(here, answer):
            return
        new = self._kept(answer)
        self._store(replaces.metadata.key, new)
        self._notify(here, new)

    def delete(self, obj_or_key: T | Key) -> None:
        """Remove one object; handlers get its last stored state. Removing an absent object calls none.

        A deletion that is older than what is here was that of a predecessor with the same name.
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
            self._notify(self._store(key, None), None)

    def progress(self, resource_version: str) -> None:
        """Note that the content is current as of this version, though nothing changed (a bookmark)."""
        if resource_version and not is_older(resource_version, self.resource_version):
            self.resource_version = resource_version

    def _ordered(self) -> builtins.list[Key]:
        if self._sorted is None:
            self._sorted = sorted(self._objects)
        return self._sorted

    def _kept(self, obj: T) -> T:
        """Return what is stored of an object: all of it, if the transformation fails."""
        if self._transform is None:
            return obj
        try:
            return self._transform(obj)
        except Exception:  # noqa: BLE001 - one object must not end the watch
            self.failures += 1
            _log.exception("transform_failed", cache=self._name, object=str(obj.metadata.key))
            return obj

    def _store(self, key: Key, obj: T | None) -> T | None:
        """Set or remove one object and its index entries; return what was there."""
        old = self._objects.get(key)
        if obj is None:
            del self._objects[key]
        else:
            self._objects[key] = obj
        if (old is None) != (obj is None):
            self._sorted = None
        for name, index in self._indexes.items():
            self._put(name, index, key, obj)
        return old

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
            except Exception:  # noqa: BLE001 - foreign code; the other handlers must still hear of it
                self.failures += 1
                seen = new or old
                _log.exception("handler_failed", cache=self._name, object=str(seen.metadata.key) if seen else "")


def _newer(old: T, new: T) -> bool:
    return is_older(new.metadata.resource_version, old.metadata.resource_version)


def _same(old: T, new: T) -> bool:
    """Whether both are the same state; objects without a version (never from a server) always differ."""
    return bool(new.metadata.resource_version) and (
        old.metadata.resource_version == new.metadata.resource_version and old.metadata.uid == new.metadata.uid
    )
