"""All inputs of one cycle, immutable and sorted: its readers rely on the order, so listing order never matters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from wva.model.in_time import ServedLately
from wva.model.inventory import Inventory
from wva.model.metrics import MISSING, ReplicaMetrics, Sample
from wva.model.records import replace, split
from wva.model.usual import UsualDemand
from wva.model.variant import ModelKey, Variant, VariantKey


@dataclass(frozen=True, slots=True)
class CollectionFailure:
    """The metrics of these namespaces could not be read at all; ``message`` says why, for people."""

    namespaces: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class UnreadModel:
    """A model of which WVA could not read an object or a sample; ``message`` says which and why, for people."""

    model: ModelKey
    message: str


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """The requests of one model: ``finished`` within the last ``retention_seconds``, ``in_progress`` now.

    In progress are those that run and those that wait, in the engines and at the gateway. None is not known, and
    ``detail`` says why. For ``covered_seconds`` of that time there are samples of the model.
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
    """What endpoint pickers hold back for a model: requests, and the bytes of their bodies.

    A missing sample means that no endpoint picker reports a queue, which is how most models are served.
    """

    model: ModelKey
    size: Sample = MISSING
    size_bytes: Sample = MISSING


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the cluster in one cycle.

    ``variants`` are the accepted ones (target resolved, no conflict), sorted by key. ``replicas`` has one entry for
    every Ready pod of a variant, also when it reports nothing, sorted by variant and pod. ``inventory`` is None when it
    was not asked for or could not be read, and ``inventory_detail`` says why. The others are sorted by model:
    ``request_counts`` of models whose requests were counted, ``queues`` where an analyzer asks for the scheduler's
    queue, ``unread`` models that are held, ``served`` what users got where that is known, and ``usual`` what usually
    comes at this time of day where that is known.

    ``woken``: the fast lane began the cycle before its time. ``urgent`` are the models for which it did so, because
    they had, or would soon have, more requests in progress than their replicas carry. A snapshot of some models names
    no others, so it may be woken without any.
    """

    variants: tuple[Variant, ...] = ()
    replicas: tuple[ReplicaMetrics, ...] = ()
    failures: tuple[CollectionFailure, ...] = ()
    inventory: Inventory | None = None
    inventory_detail: str = ""
    request_counts: tuple[RequestCounts, ...] = ()
    queues: tuple[SchedulerQueue, ...] = ()
    unread: tuple[UnreadModel, ...] = ()
    woken: bool = False
    urgent: tuple[ModelKey, ...] = ()
    served: tuple[ServedLately, ...] = ()
    usual: tuple[UsualDemand, ...] = ()

    @staticmethod
    def of(
        variants: list[Variant], replicas: list[ReplicaMetrics], failures: list[CollectionFailure] | None = None
    ) -> Snapshot:
        """Return a Snapshot in canonical order, for any order of the arguments."""
        # To sort a hundred thousand replicas in one piece would hold the interpreter for longer than the loop should
        # wait.
        own: dict[VariantKey, list[ReplicaMetrics]] = {}
        for replica in replicas:
            own.setdefault(replica.variant, []).append(replica)
        return Snapshot(
            tuple(sorted(variants, key=attrgetter("key"))),
            tuple([replica for key in sorted(own) for replica in sorted(own[key], key=attrgetter("pod"))]),
            tuple(sorted(failures or [], key=lambda failure: (failure.namespaces, failure.message))),
        )

    def grouped(self, groups: Mapping[ModelKey, int], count: int) -> list[Snapshot]:
        """Return ``count`` snapshots, each with the models to which ``groups`` gives its index.

        What belongs to no model is in all of them. Models without an index are in none of them.
        """
        places = {variant.key: groups.get(variant.model) for variant in self.variants}
        variants = split(self.variants, lambda variant: groups.get(variant.model), count)
        replicas = split(self.replicas, lambda replica: places.get(replica.variant), count)
        queues = split(self.queues, lambda queue: groups.get(queue.model), count)
        counted = split(self.request_counts, lambda counts: groups.get(counts.model), count)
        unread = split(self.unread, lambda entry: groups.get(entry.model), count)
        urgent = split(self.urgent, groups.get, count)
        served = split(self.served, lambda entry: groups.get(entry.model), count)
        usual = split(self.usual, lambda entry: groups.get(entry.model), count)
        return [
            replace(
                self,
                variants=variants[index],
                replicas=replicas[index],
                queues=queues[index],
                request_counts=counted[index],
                unread=unread[index],
                urgent=urgent[index],
                served=served[index],
                usual=usual[index],
            )
            for index in range(count)
        ]
