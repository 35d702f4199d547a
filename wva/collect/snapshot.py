"""One cycle's inputs: caches and Prometheus in, one immutable Snapshot out.

Namespaces in use are queried in chunks, the chunks side by side. A chunk counts as answered only when all four of its
queries are: a value without the other signal or without its time cannot be judged. A chunk without an answer becomes a
CollectionFailure naming its namespaces, and the others go on. Nothing raises but cancellation: a cycle with failures
still has variants, and deciding what that means is not done here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from wva import log
from wva.collect.answers import InstantVector, PrometheusError
from wva.collect.promql import validate_namespace
from wva.collect.queries import Query, chunk_queries, chunks
from wva.collect.replicas import ReplicaJoin
from wva.collect.stores import CollectStores
from wva.collect.variants import AcceptedVariant, accepted_variants
from wva.instruments import Instruments
from wva.model.metrics import Freshness, ReplicaMetrics
from wva.model.snapshot import CollectionFailure, Snapshot
from wva.model.variant import VariantKey

_log = log.get("collect")

_CONCURRENT_QUERIES: Final = 8


class Querier(Protocol):
    """Whoever answers instant queries."""

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:
        """Answer a query at a time (seconds since the epoch). Raises PrometheusError."""
        ...


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """How to collect.

    ``controller_instance`` empty takes every VA. ``freshness`` is asked in each cycle, since the age limits may change
    while the process runs. ``deadline_seconds`` bounds all queries of a cycle together.
    """

    controller_instance: str = ""
    freshness: Callable[[], Freshness] = Freshness
    deadline_seconds: float = 20.0


class Collector:
    """Builds the Snapshot of each cycle, and remembers whether Prometheus answered."""

    def __init__(
        self, stores: CollectStores, *, prometheus: Querier, instruments: Instruments, settings: CollectorSettings
    ) -> None:
        """Take the dependencies; the stores must have their indexes (CollectStores.add_indexes)."""
        self._stores = stores
        self._prometheus = prometheus
        self._instruments = instruments
        self._settings = settings
        self._query_slots = asyncio.Semaphore(_CONCURRENT_QUERIES)
        self._status: str | None = None
        self._covered: set[VariantKey] = set()

    def prometheus_status(self) -> str | None:
        """Return why the last round of queries was not answered completely; None when it was, or none was needed."""
        return self._status

    async def collect(self, now: float) -> Snapshot:
        """Return what is seen at ``now`` (seconds since the epoch); takes at most the deadline of the settings."""
        accepted = accepted_variants(self._stores, controller_instance=self._settings.controller_instance)
        join = ReplicaJoin(accepted, instruments=self._instruments)
        failures = await self._gather(accepted, join, now)
        replicas = join.replicas(now=now, freshness=self._settings.freshness())
        self._publish_coverage(replicas)
        return Snapshot.of([entry.variant for entry in accepted], replicas, failures)

    async def _gather(self, accepted: list[AcceptedVariant], join: ReplicaJoin, now: float) -> list[CollectionFailure]:
        """Query the namespaces of active variants into the join; return what failed."""
        namespaces = {entry.variant.key.namespace for entry in accepted if entry.variant.active}
        if not namespaces:
            self._status = None
            return []
        refused = [failure for failure in map(_refuse, sorted(namespaces)) if failure is not None]
        namespaces -= {namespace for failure in refused for namespace in failure.namespaces}
        deadline = asyncio.get_running_loop().time() + self._settings.deadline_seconds
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._chunk(chunk, join, now, deadline)) for chunk in chunks(namespaces)]
        failures = [failure for task in tasks if (failure := task.result()) is not None]
        self._instruments.prometheus_up.set(0 if failures else 1)
        self._status = failures[0].message if failures else None
        return [*refused, *failures]

    async def _chunk(
        self, namespaces: tuple[str, ...], join: ReplicaJoin, now: float, deadline: float
    ) -> CollectionFailure | None:
        """Ask the four queries of one chunk; its answers join only when all of them came."""
        queries = chunk_queries(namespaces)
        try:
            async with asyncio.timeout_at(deadline), asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._answer(query, now)) for query in queries]
        except TimeoutError:
            message = f"Prometheus did not answer within {self._settings.deadline_seconds:g} s"
            return _failed(namespaces, message, kind="deadline")
        answers = [task.result() for task in tasks]
        for query, answer in zip(queries, answers, strict=True):
            if isinstance(answer, PrometheusError):
                return _failed(namespaces, f"query {query.name}: {answer.message}", kind=answer.kind)
        for query, answer in zip(queries, answers, strict=True):
            if isinstance(answer, InstantVector):
                if answer.warnings:
                    _log.warning("query_warned", query=query.name, warning=answer.warnings[0])
                join.add(query.name, answer)
        return None

    async def _answer(self, query: Query, now: float) -> InstantVector | PrometheusError:
        """Return the error instead of raising it: in a task group it would cancel the other queries."""
        async with self._query_slots:
            try:
                return await self._prometheus.query(query.text, name=query.name, at=now)
            except PrometheusError as error:
                return error

    def _publish_coverage(self, replicas: list[ReplicaMetrics]) -> None:
        """Set the share of replicas that report completely, and remove the series of variants without replicas."""
        expected: dict[VariantKey, int] = {}
        complete: dict[VariantKey, int] = {}
        for replica in replicas:
            expected[replica.variant] = expected.get(replica.variant, 0) + 1
            complete[replica.variant] = complete.get(replica.variant, 0) + replica.complete
        for gone in self._covered - expected.keys():
            self._instruments.coverage.remove(gone.name, gone.namespace)
        for key, count in expected.items():
            self._instruments.coverage.labels(key.name, key.namespace).set(complete[key] / count)
        self._covered = set(expected)


def _refuse(namespace: str) -> CollectionFailure | None:
    try:
        validate_namespace(namespace)
    except ValueError as error:
        return CollectionFailure((namespace,), str(error))
    return None


def _failed(namespaces: tuple[str, ...], message: str, *, kind: str) -> CollectionFailure:
    first, count = namespaces[0], len(namespaces)
    _log.warning("collection_failed", namespaces=count, first_namespace=first, kind=kind, reason=message)
    return CollectionFailure(namespaces, message)
