"""Cascading deletion: of dependents by ``ownerReferences``, and of the contents of a namespace.

The real cluster does this in controllers, after the fact; here it happens inside the deletion, in a fixed order, which
keeps the embedded world deterministic. A dependent with another living owner only loses the reference.
"""

from __future__ import annotations

from typing import Protocol

from wva.api.meta import Key
from wva.sim.apiserver.builtin import NAMESPACES
from wva.sim.apiserver.collection import ObjectWrite
from wva.sim.apiserver.journal import Journal
from wva.sim.apiserver.kinds import KindSpec
from wva.sim.apiserver.objects import Object, metadata_of


class Writes(Protocol):
    """The verbs that a cascade needs."""

    def delete(self, kind: KindSpec, key: Key) -> Object:
        """Delete an object and its dependents."""
        ...

    def disown(self, kind: KindSpec, key: Key, uid: str) -> None:
        """Drop the reference to an owner."""
        ...


class Cascade:
    """Knows the dependents of all objects."""

    def __init__(self, journal: Journal) -> None:
        """Follow every change of ``journal``."""
        self._journal = journal
        self._owners: set[str] = set()
        self._dependents: dict[str, dict[tuple[str, Key], KindSpec]] = {}
        journal.observe(self._track)

    def _track(self, change: ObjectWrite) -> None:
        reference = (change.spec.name, change.key)
        old_owners = set() if change.before is None else owner_uids(change.before.object)
        new_owners = set() if change.after is None else owner_uids(change.after.object)
        for uid in old_owners - new_owners:
            self._dependents[uid].pop(reference, None)
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in new_owners - old_owners:
            self._dependents.setdefault(uid, {})[reference] = change.spec
        own_uid = str(metadata_of(change.object).get("uid", ""))
        if change.after is None:
            self._owners.discard(own_uid)
        else:
            self._owners.add(own_uid)

    def dependents(self, uid: str) -> list[tuple[KindSpec, Key]]:
        """Return the objects that name ``uid`` as an owner, in a fixed order."""
        kinds = self._dependents.get(uid, {})
        return [(spec, reference[1]) for reference, spec in sorted(kinds.items(), key=lambda entry: entry[0])]

    def after_removal(self, change: ObjectWrite, writes: Writes) -> None:
        """Delete the dependents of the removed object, and its namespace if that waited for it."""
        uid = str(metadata_of(change.object).get("uid", ""))
        for spec, key in self.dependents(uid):
            record = self._journal.collection(spec).get(key)
            if record is None:
                continue
            if (owner_uids(record.object) - {uid}) & self._owners:
                writes.disown(spec, key, uid)
            else:
                writes.delete(spec, key)

    def orphan(self, uid: str, writes: Writes) -> None:
        """Let the dependents of ``uid`` live on without it."""
        for spec, key in self.dependents(uid):
            writes.disown(spec, key, uid)

    def empty_namespace(self, namespace: str, writes: Writes) -> bool:
        """Delete everything in a namespace; tell whether nothing is left (finalizers may hold objects back)."""
        for spec in self._journal.kinds:
            if spec.namespaced:
                for key in self._keys(spec, namespace):
                    if self._journal.collection(spec).get(key) is not None:
                        writes.delete(spec, key)
        return self.is_empty(namespace)

    def is_empty(self, namespace: str) -> bool:
        """Tell whether a namespace holds no objects."""
        return not any(self._keys(spec, namespace) for spec in self._journal.kinds if spec.namespaced)

    def _keys(self, spec: KindSpec, namespace: str) -> list[Key]:
        records = self._journal.collection(spec).records(namespace)
        return [Key(namespace, str(metadata_of(record.object)["name"])) for record in records]

    def waiting_namespace(self, change: ObjectWrite) -> Key | None:
        """Return the namespace that can go now that this object is gone, or None."""
        namespace = change.key.namespace
        if not namespace:
            return None
        record = self._journal.collection(NAMESPACES).get(Key("", namespace))
        if record is None or "deletionTimestamp" not in metadata_of(record.object):
            return None
        return Key("", namespace) if self.is_empty(namespace) else None


def owner_uids(value: Object) -> set[str]:
    """Return the uids of an object's owners."""
    return {str(owner.get("uid", "")) for owner in metadata_of(value).get("ownerReferences") or ()}
