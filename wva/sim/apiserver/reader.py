"""The reading half of the store: objects, versions and subscriptions."""

from __future__ import annotations

from collections.abc import Callable

from wva.api.meta import Key
from wva.sim.apiserver.collection import Collection, ObjectWrite
from wva.sim.apiserver.errors import not_found
from wva.sim.apiserver.journal import Journal, Unsubscribe
from wva.sim.apiserver.kinds import Kind, KindSpec
from wva.sim.apiserver.objects import Object
from wva.sim.apiserver.selectors import select


class ObjectReader:
    """Reads objects of all kinds. Every method raises LookupError for a kind that is not served."""

    def __init__(self, journal: Journal) -> None:
        """Read from ``journal``."""
        self.journal = journal

    @property
    def version(self) -> int:
        """The resourceVersion of the last change of any kind."""
        return self.journal.version

    def last_version(self, kind: Kind) -> int:
        """Return the resourceVersion of the last change of a kind, 0 when it never changed."""
        return self.journal.collection(kind).last_version

    def spec(self, kind: Kind) -> KindSpec:
        """Return the definition of a kind."""
        return self.journal.collection(kind).spec

    def collection(self, kind: Kind) -> Collection:
        """Return the records of a kind, which carry their encoded form and their history."""
        return self.journal.collection(kind)

    def find(self, kind: Kind, key: Key) -> Object | None:
        """Return an object, or None."""
        record = self.journal.collection(kind).get(key)
        return None if record is None else record.object

    def get(self, kind: Kind, key: Key) -> Object:
        """Return an object. Raises ApiError 404."""
        value = self.find(kind, key)
        if value is None:
            raise not_found(self.spec(kind), key.name)
        return value

    def list(self, kind: Kind, *, namespace: str = "", labels: str = "", fields: str = "") -> list[Object]:
        """Return the objects that match the selectors, ordered by key; an empty namespace means all namespaces."""
        collection = self.journal.collection(kind)
        selection = select(collection.spec, namespace=namespace, labels=labels, fields=fields)
        return [record.object for record in collection.records(namespace) if selection.matches(record.object)]

    def subscribe(self, kind: Kind, callback: Callable[[ObjectWrite], None]) -> Unsubscribe:
        """Call ``callback`` with every later change of a kind, in order; return the function that ends it."""
        return self.journal.subscribe(kind, callback)

    def compact(self) -> None:
        """Forget the history: watches from before now are answered with 410."""
        self.journal.compact()
