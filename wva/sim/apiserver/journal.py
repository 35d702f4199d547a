"""The one sequence of changes over all kinds: resourceVersions, collections, subscribers.

Every write takes exactly one new version of one global counter, so "the cache has seen the world's last change" is a
comparison of numbers. Changes reach the subscribers of their kind synchronously and in order, also when a subscriber
writes while it handles a change: the nested change waits for its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from wva.api.meta import Key
from wva.sim.apiserver.collection import Collection, ObjectWrite, Subscriber
from wva.sim.apiserver.kinds import Kind, KindSpec, Registry
from wva.sim.apiserver.objects import JsonObject, metadata_of

Unsubscribe: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Callback:
    """A plain function as subscriber."""

    call: Callable[[ObjectWrite], None]

    def on_change(self, change: ObjectWrite) -> None:
        self.call(change)

    def on_end(self) -> None:
        """Nothing to do: no more changes will come."""


class Journal:
    """All collections and the version counter they share."""

    def __init__(self, specs: Iterable[KindSpec], *, history_limit: int) -> None:
        """Serve ``specs``; keep ``history_limit`` changes per kind."""
        self.kinds = Registry()
        self.version = 1
        self._history_limit = history_limit
        self._collections: dict[str, Collection] = {}
        self._observers: list[Callable[[ObjectWrite], None]] = []
        self._pending: deque[ObjectWrite] = deque()
        self._telling = False
        self._tickets = 0
        for spec in specs:
            self.serve(spec)

    def serve(self, spec: KindSpec) -> None:
        """Serve a kind from now on, or serve it with a new definition; its objects stay."""
        self.kinds.add(spec)
        collection = self._collections.get(spec.name)
        if collection is None:
            self._collections[spec.name] = Collection(spec, history_limit=self._history_limit)
        else:
            collection.redefine(spec)

    def stop_serving(self, spec: KindSpec) -> None:
        """Stop serving a kind; its watches end."""
        self.kinds.remove(spec)
        collection = self._collections.pop(spec.name)
        for subscriber in tuple(collection.subscribers.values()):
            subscriber.on_end()

    def collection(self, kind: Kind) -> Collection:
        """Return the objects of a kind. Raises LookupError when it is not served."""
        name = kind if isinstance(kind, str) else kind.name
        try:
            return self._collections[name]
        except KeyError:
            raise LookupError(f"the kind {name!r} is not served") from None

    def put(self, spec: KindSpec, key: Key, value: JsonObject) -> ObjectWrite:
        """Store a state of an object under a new version, which is written into its metadata."""
        self.version += 1
        metadata_of(value)["resourceVersion"] = str(self.version)
        return self._tell(self.collection(spec).put(key, value, self.version))

    def remove(self, spec: KindSpec, key: Key, last: JsonObject) -> ObjectWrite:
        """Remove an object; ``last`` is the state that its deletion event carries."""
        self.version += 1
        return self._tell(self.collection(spec).remove(key, last, self.version))

    def compact(self) -> None:
        """Forget the history of all kinds."""
        for collection in self._collections.values():
            collection.compact(self.version)

    def observe(self, observer: Callable[[ObjectWrite], None]) -> None:
        """Call ``observer`` on every change of any kind, before the subscribers; it must not write."""
        self._observers.append(observer)

    def subscribe(self, kind: Kind, callback: Callable[[ObjectWrite], None]) -> Unsubscribe:
        """Call ``callback`` on every later change of a kind, until the returned function is called."""
        return self.attach(kind, _Callback(callback))

    def attach(self, kind: Kind, subscriber: Subscriber) -> Unsubscribe:
        """Let ``subscriber`` follow a kind."""
        collection = self.collection(kind)
        self._tickets += 1
        ticket = self._tickets
        collection.subscribers[ticket] = subscriber

        def unsubscribe() -> None:
            collection.subscribers.pop(ticket, None)

        return unsubscribe

    def _tell(self, change: ObjectWrite) -> ObjectWrite:
        for observer in self._observers:
            observer(change)
        self._pending.append(change)
        if self._telling:
            return change
        self._telling = True
        try:
            while self._pending:
                self._hand_out(self._pending.popleft())
        finally:
            self._telling = False
        return change

    def _hand_out(self, change: ObjectWrite) -> None:
        collection = self._collections.get(change.spec.name)
        if collection is None:
            return
        for subscriber in tuple(collection.subscribers.values()):
            subscriber.on_change(change)
        change.lines.clear()
