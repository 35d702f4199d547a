"""One cycle's inputs: caches and Prometheus in, one immutable Snapshot out.

Namespaces in use are queried in chunks, side by side, unless the cache has answers that may be used again. A chunk
counts as answered only if all of its essential queries are: a value without the other signal or without its time cannot
be judged. A chunk without an answer becomes a CollectionFailure that names its namespaces, and the others go on.
Engines and schedulers' queues are asked about only where an analyzer needs them. Without that answer their samples are
missing, and the other analyzers decide all the same.

Only cancellation raises. A cycle with failures still has variants; the decision stages judge what a failure means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from wva import log
from wva.collect.activations import Activations
from wva.collect.answer_cache import AnswerCache, Answers, CacheSettings, Pods
from wva.collect.answers import InstantVector, PrometheusError, Querier
from wva.collect.claims import Claims
from wva.collect.faults import Faults
from wva.collect.joins import Joins
from wva.collect.promql import validate_namespace
from wva.collect.queries import Query, chunk_queries, chunks, engine_queries
from wva.collect.request_counts import count_requests
from wva.collect.stores import CollectStores
from wva.collect.variants import AcceptedVariant, accepted_in_slices
from wva.instruments import Instruments
from wva.model.failures import cause_of
from wva.model.inventory import Inventory
from wva.model.metrics import Freshness, ReplicaMetrics
from wva.model.snapshot import CollectionFailure, RequestCounts, Snapshot
from wva.model.variant import ModelKey, VariantKey
from wva.slices import beside

_log = log.get("collect")

_CONCURRENT_QUERIES: Final = 8


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """How to collect.

    ``claims`` says which VAs. ``freshness`` is asked in each cycle, since the age limits may change
    while the process runs, and so is ``cache``. ``deadline_seconds`` bounds all queries of a cycle together.
    ``activations`` are starts from zero that the caches may not show yet. ``engines_of`` tells whether the analyzer of
    a model wants to know more than the two signals of its replicas. ``retention_of`` returns the seconds without a
    request after which a model may go to zero, None for one that may not. ``inventory`` returns the GPUs of the
    cluster, or None and why they are not known; None instead of both when no model needs them.
    """

    claims: Claims = Claims()  # noqa: RUF009 - frozen
    freshness: Callable[[], Freshness] = Freshness
    cache: Callable[[], CacheSettings] = CacheSettings
    deadline_seconds: float = 20.0
    activations: Activations | None = None
    engines_of: Callable[[ModelKey], bool] = lambda _: False
    retention_of: Callable[[ModelKey], float | None] = lambda _: None
    inventory: Callable[[], tuple[Inventory | None, str] | None] = lambda: None


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
        self._cache = AnswerCache(settings=settings.cache, freshness=settings.freshness, instruments=instruments)
        self._round = asyncio.Lock()
        """Cycle and background do not ask the same at the same time: who comes second finds the answer of the first."""
        self._status: str | None = None
        self._throttle = log.Throttle()
        self._covered: set[VariantKey] = set()

    def prometheus_status(self) -> str | None:
        """Return why the last round of queries was not answered completely; None when it was, or none was needed."""
        return self._status

    async def collect(self, now: float) -> Snapshot:
        """Return what is seen at ``now`` (seconds since the epoch); takes at most the deadline of the settings."""
        settings = self._settings
        faults = Faults(now, throttle=self._throttle)
        accepted = await accepted_in_slices(
            self._stores, claims=settings.claims, now=now, activations=settings.activations, faults=faults
        )
        size, asked = _size(accepted), self._asked(accepted, faults)
        joins = await beside(
            size, lambda: Joins.of(accepted, instruments=self._instruments, asked=asked, faults=faults)
        )
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(self._count_requests(accepted, now, faults))
            failures = await self._gather(accepted, joins, now, asked)
        freshness = settings.freshness()
        replicas, queues = await beside(size, lambda: joins.result(now=now, freshness=freshness))
        self._publish_coverage(replicas)
        snapshot = await beside(size, lambda: Snapshot.of([entry.variant for entry in accepted], replicas, failures))
        inventory, detail = self._inventory()
        return replace(
            snapshot,
            queues=tuple(sorted(queues, key=lambda queue: queue.model)),
            request_counts=counting.result(),
            inventory=inventory,
            inventory_detail=detail,
            unread=faults.unread(),
        )

    def _inventory(self) -> tuple[Inventory | None, str]:
        """Count the GPUs. An error leaves their number unknown, which concerns all models: none of them is to blame."""
        try:
            return self._settings.inventory() or (None, "")
        except Exception as error:  # noqa: BLE001 - decisions go on without the number of GPUs
            _log.exception("inventory_failed")
            return None, f"counting GPUs failed: {cause_of(error)}"

    def _asked(self, accepted: list[AcceptedVariant], faults: Faults) -> Callable[[ModelKey], bool]:
        """Return what tells whether more is to be known of the engines of a model, asked once for each."""
        read = self._settings.engines_of
        known = {
            model: faults.attempt(model, "reading its policy", lambda model=model: read(model), default=False)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            for model in {entry.variant.model for entry in accepted}
        }
        return known.__getitem__

    async def refresh(self, now: float) -> None:
        """Fetch kept answers again that the last cycle used, as far as they are due. A failure leaves the kept ones."""
        async with self._round:
            accepted = await accepted_in_slices(self._stores, claims=self._settings.claims)
            asked_about = self._asked(accepted, Faults(now, throttle=self._throttle))
            wanted = await beside(_size(accepted), lambda: _chunks(accepted, asked_about))
            asked = [chunk for chunk in wanted if self._cache.due(chunk.queries, now=now)]
            if asked:
                self._conclude(list((await self._ask(asked, now)).values()))

    async def _count_requests(
        self, accepted: list[AcceptedVariant], now: float, faults: Faults
    ) -> tuple[RequestCounts, ...]:
        """Count the requests of the models that run and may go to zero."""
        running = {entry.variant.model for entry in accepted if entry.variant.active}
        known = {model for model in running if _refuse(model.namespace) is None}
        read = self._settings.retention_of
        retentions = {
            model: faults.attempt(model, "reading its policy", lambda model=model: read(model), default=None)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            for model in sorted(known)
        }
        models = {model: retention for model, retention in retentions.items() if retention is not None}
        deadline = asyncio.get_running_loop().time() + self._settings.deadline_seconds
        return await count_requests(models, self._answer, now=now, deadline=deadline)

    async def _gather(
        self, accepted: list[AcceptedVariant], joins: Joins, now: float, asked_about: Callable[[ModelKey], bool]
    ) -> list[CollectionFailure]:
        """Bring the answers about the namespaces of active variants into the joins; return what failed."""
        wanted = await beside(_size(accepted), lambda: _chunks(accepted, asked_about))
        answers: dict[_Chunk, Answers | CollectionFailure] = {}
        async with self._round:
            for chunk in wanted:
                kept = self._cache.find(chunk.queries, chunk.pods, now=now)
                if kept is not None:
                    answers[chunk] = kept
            asked = await self._ask([chunk for chunk in wanted if chunk not in answers], now)
        if asked or not wanted:
            self._conclude(list(asked.values()))
        self._cache.clean(now=now)
        for chunk, found in (answers | asked).items():
            if not isinstance(found, CollectionFailure):
                await beside(_series(found), partial(joins.add, chunk.namespaces, found))
        failed = [found for found in asked.values() if isinstance(found, CollectionFailure)]
        return [*_refusals(accepted), *failed]

    def _conclude(self, round_: list[Answers | CollectionFailure]) -> None:
        """Tell whether the last round of queries was answered completely; without one there is no complaint."""
        failures = [found for found in round_ if isinstance(found, CollectionFailure)]
        if round_:
            self._instruments.prometheus_up.set(0 if failures else 1)
        self._status = failures[0].message if failures else None

    async def _ask(self, asked: list[_Chunk], now: float) -> dict[_Chunk, Answers | CollectionFailure]:
        """Ask about chunks side by side; what was answered completely is kept."""
        deadline = asyncio.get_running_loop().time() + self._settings.deadline_seconds
        async with asyncio.TaskGroup() as group:
            tasks = {chunk: group.create_task(self._ask_chunk(chunk, now, deadline)) for chunk in asked}
        return {chunk: task.result() for chunk, task in tasks.items()}

    async def _ask_chunk(self, chunk: _Chunk, now: float, deadline: float) -> Answers | CollectionFailure:
        """Ask the queries of one chunk; without all of the essential ones the answer is none."""
        try:
            async with asyncio.timeout_at(deadline), asyncio.TaskGroup() as group:
                tasks = {query: group.create_task(self._answer(query, now)) for query in chunk.queries}
        except TimeoutError:
            message = f"Prometheus did not answer within {self._settings.deadline_seconds:g} s"
            return _failed(chunk.namespaces, message, kind="deadline")
        answers: dict[str, InstantVector] = {}
        for query, task in tasks.items():
            answer = task.result()
            if isinstance(answer, PrometheusError) and query.essential:
                return _failed(chunk.namespaces, f"query {query.name}: {answer.message}", kind=answer.kind)
            if isinstance(answer, PrometheusError):
                answer = InstantVector(warnings=(answer.message,))
            if answer.warnings:
                _log.warning("query_warned", query=query.name, warning=answer.warnings[0])
            answers[query.name] = answer
        self._cache.keep(chunk.queries, chunk.pods, answers, now=now)
        return answers

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


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What is asked together: up to a hundred namespaces, their queries, and the Ready pods that they concern."""

    namespaces: tuple[str, ...]
    queries: tuple[Query, ...]
    pods: Pods


_PODS_PER_VARIANT: Final = 10
_SERIES_PER_VARIANT: Final = 50
"""That cost about as much as a variant does."""


def _size(accepted: list[AcceptedVariant]) -> int:
    """Return how much work variants are, for ``beside``."""
    return len(accepted) + sum(len(entry.pods) for entry in accepted) // _PODS_PER_VARIANT


def _series(answers: Answers) -> int:
    return sum(len(vector.series) for vector in answers.values()) // _SERIES_PER_VARIANT


def _chunks(accepted: list[AcceptedVariant], engines_of: Callable[[ModelKey], bool]) -> list[_Chunk]:
    """Return what to ask about the active variants."""
    pods: dict[str, set[tuple[str, str]]] = {}
    more: set[str] = set()
    for entry in accepted:
        if entry.variant.active and _refuse(entry.variant.key.namespace) is None:
            ready = ((pod.metadata.namespace, pod.metadata.name) for pod in entry.pods if pod.ready)
            pods.setdefault(entry.variant.key.namespace, set()).update(ready)
            if engines_of(entry.variant.model):
                more.add(entry.variant.key.namespace)
    return [
        _Chunk(
            namespaces,
            _queries(namespaces, more),
            frozenset[tuple[str, str]]().union(*(pods[namespace] for namespace in namespaces)),
        )
        for namespaces in chunks(pods)
    ]


def _queries(namespaces: tuple[str, ...], more: set[str]) -> tuple[Query, ...]:
    """Return the queries of a chunk; about some of its namespaces ``more`` is asked."""
    some = [namespace for namespace in namespaces if namespace in more]
    return (*chunk_queries(namespaces), *(engine_queries(some) if some else ()))


def _refusals(accepted: list[AcceptedVariant]) -> list[CollectionFailure]:
    """Return a failure for each name of an active variant's namespace that is none."""
    names = sorted({entry.variant.key.namespace for entry in accepted if entry.variant.active})
    return [failure for failure in map(_refuse, names) if failure is not None]


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
