"""One kind, kept in a store for as long as the process lives: ``watch`` feeding ``cache``, and whether that works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final, Generic

from wva.api.meta import T
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube.cache import Store
from wva.kube.watch import Contact, Deleted, Listed, Lister, Progressed, Upserted, WatchTarget, forever
from wva.slices import in_slices

SILENCE_LIMIT_SECONDS: Final = 180.0
"""A healthy watch shows signs of life at least every idle limit (70 s); more than two of them missing is an outage."""


TOLD_AFTER_SECONDS: Final = 60.0


class Informer(Generic[T]):
    """Keeps ``store`` equal to a collection of the API server. Start ``run`` in a task group and wait for the store."""

    def __init__(
        self,
        client: Lister,
        resource: Resource[T],
        *,
        instruments: Instruments,
        namespace: str = "",
        idle_seconds: float = 70.0,
        label_selector: str = "",
        field_selector: str = "",
        transform: Callable[[T], T] | None = None,
        optional: bool = False,
    ) -> None:
        """Watch nothing yet. An empty ``namespace`` means all of them. ``transform`` is the store's.

        An ``optional`` kind need not be served, nor be ours to read: until it is, the store is empty, synced and ready,
        and ``absent`` says why. It is looked for again and again, so that what appears later needs no restart. If it
        was there and is refused, the store stays as it is for five minutes, and ``kept`` says why and since when.
        """
        self.resource = resource
        self.store: Store[T] = Store(name=resource.name, transform=transform)
        self._contact = Contact()
        self._counted = 0
        self._target = WatchTarget(
            client=client,
            resource=resource,
            instruments=instruments,
            contact=self._contact,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            idle_seconds=idle_seconds,
            optional=optional,
        )

    @property
    def last_contact_monotonic(self) -> float | None:
        """When the API server last gave a sign of life, in the event loop's time; None: never."""
        return self._contact.at

    @property
    def absent(self) -> str | None:
        """Why an optional kind cannot be watched now; None when it can."""
        return self._contact.absent

    @property
    def kept(self) -> str | None:
        """Why an optional kind is refused, and how old the content of the store is; None while it is told or absent.

        A refusal of less than a minute is not told, as it may be over before a person reads of it.
        """
        contact = self._contact
        refused_seconds = asyncio.get_running_loop().time() - contact.refused_at
        if contact.refused is None or refused_seconds < TOLD_AFTER_SECONDS:
            return None
        return f"{contact.refused}; in force: {self.resource.name} as known at {contact.known_at}"

    async def run(self) -> None:
        """Follow the collection; ends only by cancellation."""
        async with aclosing(forever(self._target)) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    await in_slices(self.store.replacing(change.items, change.resource_version))
                else:
                    self._apply(change)
                self._count()

    def status(self) -> str | None:
        """Return why the store may not be trusted, for ``/readyz``; None when it may. Holds no secrets.

        A failure that does not last is not reported: the store is then as good as it was.
        """
        name = self.resource.name
        cause = f": {self._contact.error}" if self._contact.error else ""
        if not self.store.synced.is_set():
            return f"{name} not synced{cause}"
        if self._contact.at is None or self._contact.absent is not None or self._contact.refused is not None:
            return None
        silence_seconds = asyncio.get_running_loop().time() - self._contact.at
        return (
            f"{name} without contact for {silence_seconds:.0f} s{cause}"
            if silence_seconds > SILENCE_LIMIT_SECONDS
            else None
        )

    def _apply(self, change: Upserted[T] | Deleted[T] | Progressed) -> None:
        match change:
            case Upserted():
                self.store.upsert(change.obj)
            case Deleted():
                self.store.delete(change.obj)
            case _:
                self.store.progress(change.resource_version)

    def _count(self) -> None:
        # Added up, not set: two namespaces of the same kind share the series.
        gauge = self._target.instruments.cache_objects.labels(resource=self.resource.name)
        gauge.inc(len(self.store) - self._counted)
        self._counted = len(self.store)
