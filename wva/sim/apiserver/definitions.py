"""CustomResourceDefinitions at work: posting one makes the server serve its kind, deleting it ends that.

A definition is established at once: its status carries the conditions that clients wait for as soon as the request
that created it is answered.
"""

from __future__ import annotations

from typing import Protocol

from wva.api.meta import Key
from wva.sim.apiserver.builtin import CUSTOM_RESOURCE_DEFINITIONS
from wva.sim.apiserver.collection import ChangeType, ObjectWrite
from wva.sim.apiserver.journal import Journal
from wva.sim.apiserver.kinds import Kind, kind_from_definition
from wva.sim.apiserver.objects import Object, metadata_of


class Verbs(Protocol):
    """The verbs of the store that definitions need."""

    def delete(self, kind: Kind, key: Key) -> Object:
        """Delete an object."""
        ...

    def patch_status(self, kind: Kind, key: Key, status: Object) -> Object:
        """Merge into an object's status."""
        ...


class Definitions:
    """Keeps the served kinds equal to the CustomResourceDefinitions that exist."""

    def __init__(self, journal: Journal, verbs: Verbs) -> None:
        """Act on ``journal`` through ``verbs``."""
        self._journal = journal
        self._verbs = verbs

    def follow(self) -> None:
        """Start to follow the definitions."""
        self._journal.subscribe(CUSTOM_RESOURCE_DEFINITIONS, self._on_change)

    def delete_objects(self, definition: Object) -> None:
        """Delete the objects of a kind before its definition is deleted, so that watchers see these deletions."""
        spec = kind_from_definition(definition)
        for record in tuple(self._journal.collection(spec).records()):
            metadata = metadata_of(record.object)
            key = Key(metadata.get("namespace", ""), metadata["name"])
            if self._journal.collection(spec).get(key) is not None:  # it may have been deleted with its owner
                self._verbs.delete(spec, key)

    def _on_change(self, change: ObjectWrite) -> None:
        if change.type is ChangeType.DELETED:
            self._journal.stop_serving(kind_from_definition(change.object))
        elif change.type is ChangeType.ADDED or _generation(change.object) != _generation(_before(change)):
            self._journal.serve(kind_from_definition(change.object))
            self._establish(change)

    def _establish(self, change: ObjectWrite) -> None:
        spec = change.object["spec"]
        created_at = metadata_of(change.object)["creationTimestamp"]
        conditions = [
            {
                "type": condition_type,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": created_at,
            }
            for condition_type, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ]
        stored_versions = [version["name"] for version in spec["versions"] if version.get("storage")]
        status = {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored_versions}
        self._verbs.patch_status(CUSTOM_RESOURCE_DEFINITIONS, change.key, status)


def _generation(value: Object) -> int:
    return int(metadata_of(value).get("generation", 0))


def _before(change: ObjectWrite) -> Object:
    return {} if change.before is None else change.before.object
