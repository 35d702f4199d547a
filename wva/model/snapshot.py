"""All inputs of one cycle, immutable and in canonical order.

The code that builds a Snapshot sorts it, and its readers rely on that order. So listing order never matters.
"""

from __future__ import annotations

from dataclasses import dataclass

from wva.model.inventory import Inventory
from wva.model.metrics import MISSING, ReplicaMetrics, Sample
from wva.model.variant import ModelKey, Variant


@dataclass(frozen=True, slots=True)
class CollectionFailure:
    """The metrics of these namespaces could not be read at all; ``message`` says why, for people."""

    namespaces: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class UnreadModel:
    """A model of which an object or a sample could not be taken in; ``message`` says what and why, for people."""

    model: ModelKey
    message: str


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """The requests of one model: ``finished`` within the last ``retention_seconds``, ``in_progress`` now.

    In progress are those that run and those that wait, in the engines and at the gateway. None means not known; then
    ``detail`` says why. ``covered_seconds`` is how much of that time has samples of the model: what finished in the
    rest of it is not known.
    """

    model: ModelKey
    retention_seconds: float
    finished: float | None = None
    in_progress: float | None = None
    detail: str = ""
    covered_seconds: float = 0.0

    @property
    def covered(self) -> bool:
        """Whether the counts are about the whole time."""
        return self.covered_seconds >= self.retention_seconds


@dataclass(frozen=True, slots=True)
class SchedulerQueue:
    """What the endpoint pickers of a model's namespace hold back for it: requests, and the bytes of their bodies.

    A missing sample means that no endpoint picker reports a queue, which is how most models are served.
    """

    model: ModelKey
    size: Sample = MISSING
    size_bytes: Sample = MISSING


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was seen.

    ``variants`` are the accepted ones (target resolved, no conflict) sorted by key; ``replicas`` has one entry for
    every Ready pod of a variant, also when it reports nothing, sorted by variant and pod. ``inventory`` is None when
    it was not asked for or could not be read; then ``inventory_detail`` says why. ``request_counts`` has an entry for
    each model whose requests were counted, sorted by model. ``queues`` has one for each model whose analyzer asks for
    the scheduler's queue, sorted by model. ``unread`` has one for each model that is held because something of it could
    not be taken in, sorted by model.
    """

    variants: tuple[Variant, ...] = ()
    replicas: tuple[ReplicaMetrics, ...] = ()
    failures: tuple[CollectionFailure, ...] = ()
    inventory: Inventory | None = None
    inventory_detail: str = ""
    request_counts: tuple[RequestCounts, ...] = ()
    queues: tuple[SchedulerQueue, ...] = ()
    unread: tuple[UnreadModel, ...] = ()

    @staticmethod
    def of(
        variants: list[Variant], replicas: list[ReplicaMetrics], failures: list[CollectionFailure] | None = None
    ) -> Snapshot:
        """Return a Snapshot in canonical order, for any order of the arguments."""
        return Snapshot(
            tuple(sorted(variants, key=lambda variant: variant.key)),
            tuple(sorted(replicas, key=lambda replica: (replica.variant, replica.pod))),
            tuple(sorted(failures or [], key=lambda failure: (failure.namespaces, failure.message))),
        )
