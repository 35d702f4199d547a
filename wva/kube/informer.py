"""Keeps the objects of one kind in a store: feeds ``cache`` from ``watch``, and tells whether that works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from wva.api.meta import T
from wva.kube.cache import Store
from wva.kube.watch import Deleted, Listed, Upserted, WatchTarget, forever
from wva.slices import in_slices

SILENCE_LIMIT_SECONDS: Final = 180.0
"""A healthy watch shows signs of life at least every idle limit (70 s); more than two of them missing is an outage."""
REPORT_AFTER_SECONDS: Final = 60.0
"""A shorter refusal is not reported, as it may be over before a person reads of it."""


@dataclass(slots=True, eq=False)
class Informer(WatchTarget[T]):
    """Keeps ``store`` equal to a collection of the API server. Start ``run`` in a task group and wait for the store.

    ``transform`` is the store's. Until an ``optional`` kind is served, and WVA may read it, the store is empty, synced
    and ready, and ``absent`` says why. The informer tries again and again, so a kind that is installed later needs no
    restart. If the kind was there and the server refuses it now, the store stays as it is for five minutes, and
    ``staleness`` says why and since when.
    """

    transform: Callable[[T], T] | None = None
    store: Store[T] = field(init=False)
    _counted: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Start with an empty store."""
        self.store = Store(name=self.resource.name, transform=self.transform)

    @property
    def staleness(self) -> str | None:
        """Why an optional kind is refused, and how old the content of the store is; None if it is watched or absent."""
        refused_seconds = asyncio.get_running_loop().time() - self.refused_at
        if self.refused is None or refused_seconds < REPORT_AFTER_SECONDS:
            return None
        return f"{self.refused}; in force: {self.resource.name} as known at {self.known_at}"

    async def run(self) -> None:
        """Follow the collection; ends only by cancellation."""
        async with aclosing(forever(self)) as changes:
            async for change in changes:
                match change:
                    case Listed():
                        await in_slices(self.store.replacing(change.items, change.resource_version))
                    case Upserted():
                        self.store.upsert(change.obj)
                    case Deleted():
                        self.store.delete(change.obj)
                    case _:
                        self.store.progress(change.resource_version)
                # Add, and do not set: two namespaces of the same kind share the series.
                gauge = self.instruments.cache_objects.labels(resource=self.resource.name)
                gauge.inc(len(self.store) - self._counted)
                self._counted = len(self.store)

    def status(self) -> str | None:
        """Return why the store may not be trusted, for ``/readyz``; None when it may. Holds no secrets.

        A failure that does not last is not reported: the store is then as good as it was.
        """
        cause = f": {self.error}" if self.error else ""
        if not self.store.synced.is_set():
            return f"{self.resource.name} not synced{cause}"
        if self.reached_at is None or self.absent is not None or self.refused is not None:
            return None
        silence_seconds = asyncio.get_running_loop().time() - self.reached_at
        if silence_seconds <= SILENCE_LIMIT_SECONDS:
            return None
        return f"{self.resource.name} without contact for {silence_seconds:.0f} s{cause}"
