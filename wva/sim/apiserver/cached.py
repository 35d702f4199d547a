"""A server's cache for lists. It holds the present state or, on demand, a state that no longer changes.

One of several API servers may lag behind, or have just started. Such a server answers a list at version "0", or at a
version that its cache has reached, from the cache. It refuses a list at a later version, and answers a list without a
version from the store.
"""

from __future__ import annotations

from collections.abc import Iterable

from wva.sim.apiserver.collection import Collection, Record
from wva.sim.apiserver.errors import too_large_version
from wva.sim.apiserver.journal import Journal


class Cached:
    """The cache of a server."""

    def __init__(self, journal: Journal) -> None:
        """Follow the journal."""
        self._journal = journal
        self._stopped: dict[str, tuple[Record, ...]] | None = None
        self._version = 0

    def stop(self) -> None:
        """Keep the present state until ``go_on``."""
        journal = self._journal
        self._stopped = {spec.name: tuple(journal.collection(spec).records()) for spec in journal.kinds}
        self._version = journal.version

    def go_on(self) -> None:
        """Follow the journal again."""
        self._stopped = None

    def records(self, collection: Collection, namespace: str, *, asked: str) -> tuple[Iterable[Record], int]:
        """Return the records for a list with the query's resourceVersion ``asked``, and the version of their state.

        Raises ApiError 504 for a version that the cache has not reached.
        """
        lagging = self._stopped is not None and asked != ""
        version = self._version if lagging else self._journal.version
        if asked and int(asked) > version:
            raise too_large_version(int(asked), version)
        if self._stopped is None or not lagging:
            return collection.records(namespace), version
        stopped = self._stopped.get(collection.spec.name, ())
        return (record for record in stopped if namespace in ("", record.object["metadata"].get("namespace"))), version
