"""One cycle's inputs: caches and Prometheus in, one immutable Snapshot out.

Namespaces in use are queried in chunks, side by side, unless the cache has answers that may be used again. A namespace
counts as answered only if all of its essential queries are: a value without the other signal or without its time cannot
be judged. Namespaces without an answer become a CollectionFailure that names them, and the others go on: one that
spoils the answers about its chunk is found (``shared_queries``). Engines and schedulers' queues are asked about only
where an analyzer needs them. Without that answer their samples are missing, and the other analyzers decide all the
same.

Only cancellation raises. A cycle with failures still has variants; the decision stages judge what a failure means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from wva import log
from wva.collect.answer_cache import AnswerCache, Answers, CacheSettings, Pods
from wva.collect.answers import InstantVector, Querier
from wva.collect.claims import Claims
from wva.collect.faults import Faults
from wva.collect.joins import Joins
from wva.collect.promql import validate_namespace
from wva.collect.queries import (
    ANALYZER_QUERIES,
    BY_PODS,
    ENGINE_COUNTERS,
    ENGINE_SIGNALS,
    SCHEDULER_QUEUE,
    Query,
    chunk_queries,
    chunks,
    parts,
)
from wva.collect.request_counts import REQUEST_COUNTS, count_requests
from wva.collect.shared_queries import Failure, Make, Round, Settled, SharedQueries
from wva.collect.stores import CollectStores
from wva.collect.variants import AcceptedVariant, accepted_in_slices
from wva.instruments import Instruments
from wva.model.failures import cause_of
from wva.model.inventory import Inventory
from wva.model.metrics import Freshness
from wva.model.records import replace
from wva.model.snapshot import CollectionFailure, RequestCounts, Snapshot
from wva.model.variant import ModelKey, Variant
from wva.slices import beside

_log = log.get("collect")

_ESSENTIAL: Final = "essential"
_NO_QUERIES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """How to collect.

    ``claims`` says which VAs. ``freshness`` is asked in each cycle, since the age limits may change while the process
    runs, and so is ``cache``. ``deadline_seconds`` bounds all queries of a cycle together. ``as_started`` returns a
    variant with a start from zero that the caches do not show yet. ``engines_of`` tells whether the analyzer of a model
    wants to know more than the two signals of its replicas, ``counters_of`` whether it wants what the engines have
    counted. ``retention_of`` returns the seconds without a request after which a model may go to zero, None for one
    that may not. ``inventory`` returns the GPUs of the cluster, or None and why they are not known; None instead of
    both when no model needs them.
    """

    claims: Claims = Claims()  # noqa: RUF009 - frozen
    freshness: Callable[[], Freshness] = Freshness
    cache: Callable[[], CacheSettings] = CacheSettings
    deadline_seconds: float = 20.0
    as_started: Callable[[Variant, float], Variant] | None = None
    engines_of: Callable[[ModelKey], bool] = lambda _: False
    counters_of: Callable[[ModelKey], bool] = lambda _: False
    retention_of: Callable[[ModelKey], float | None] = lambda _: None
    inventory: Callable[[], tuple[Inventory | None, str] | None] = lambda: None


class Collector:
    """Builds the Snapshot of each cycle, and remembers whether Prometheus answered."""

    def __init__(
        self, stores: CollectStores, *, prometheus: Querier, instruments: Instruments, settings: CollectorSettings
    ) -> None:
        """Take the dependencies; the stores must have their indexes (CollectStores.add_indexes)."""
        self._stores = stores
        self._shared = SharedQueries(prometheus)
        self._instruments = instruments
        self._settings = settings
        self._cache = AnswerCache(settings=settings.cache, freshness=settings.freshness, instruments=instruments)
        self._round = asyncio.Lock()
        """Cycle and background do not ask the same at the same time: who comes second finds the answer of the first."""
        self._status: str | None = None
        self._throttle = log.Throttle()

    def prometheus_status(self) -> str | None:
        """Return why the last round of queries had no answer about any namespace; None when it had, or asked none."""
        return self._status

    async def collect(self, now: float) -> Snapshot:
        """Return what is seen at ``now`` (seconds since the epoch).

        Its queries take at most the deadline of the settings, and so do those of a fetch in the background before them.
        """
        settings = self._settings
        faults = Faults(now, throttle=self._throttle)
        accepted = await accepted_in_slices(
            self._stores, claims=settings.claims, now=now, as_started=settings.as_started, faults=faults
        )
        size, asked = _size(accepted), self._asked(accepted, faults)
        joins = await beside(
            size, lambda: Joins.of(accepted, instruments=self._instruments, asked=asked, faults=faults)
        )
        round_ = Round.of(now, settings.deadline_seconds)
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(self._count_requests(accepted, round_, faults))
            failures = await self._gather(accepted, joins, round_, asked_about=asked, faults=faults)
        freshness = settings.freshness()
        replicas, queues = await beside(size, lambda: joins.result(now=now, freshness=freshness))
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
        """Count the GPUs. An error leaves their number unknown. It concerns all models, so none of them is held."""
        try:
            return self._settings.inventory() or (None, "")
        except Exception as error:  # noqa: BLE001 - decisions go on without the number of GPUs
            _log.exception("inventory_failed")
            return None, f"counting GPUs failed: {cause_of(error)}"

    def _asked(self, accepted: list[AcceptedVariant], faults: Faults) -> Callable[[ModelKey], frozenset[str]]:
        """Return what tells which of the queries that only some analyzers want are for a model, asked once for each."""
        known = {
            model: faults.attempt(model, "reading its policy", partial(self._wanted, model), default=_NO_QUERIES)
            for model in {entry.variant.model for entry in accepted}
        }
        return known.__getitem__

    def _wanted(self, model: ModelKey) -> frozenset[str]:
        wanted = {ENGINE_SIGNALS} if self._settings.engines_of(model) else set[str]()
        wanted |= {ENGINE_COUNTERS} if self._settings.counters_of(model) else set()
        return frozenset(wanted | {SCHEDULER_QUEUE}) if wanted else _NO_QUERIES

    async def refresh(self, now: float) -> None:
        """Fetch kept answers again that the last cycle used, as far as they are due. A failure leaves the kept ones."""
        async with self._round:
            accepted = await accepted_in_slices(self._stores, claims=self._settings.claims)
            faults = Faults(now, throttle=self._throttle)
            asked_about = self._asked(accepted, faults)
            suspected = self._shared.suspected(_ESSENTIAL)
            wanted = await beside(_size(accepted), lambda: _chunks(accepted, asked_about, faults, suspected))
            asked = [chunk for chunk in wanted if self._cache.due(chunk.queries, now=now)]
            if asked:
                self._conclude(await self._ask(asked, Round.of(now, self._settings.deadline_seconds)))

    async def _count_requests(
        self, accepted: list[AcceptedVariant], round_: Round, faults: Faults
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
        return await count_requests(
            models, lambda topic, make, asked: self._shared.settle(topic, {REQUEST_COUNTS: make}, asked, round_)
        )

    async def _gather(
        self,
        accepted: list[AcceptedVariant],
        joins: Joins,
        round_: Round,
        *,
        asked_about: Callable[[ModelKey], frozenset[str]],
        faults: Faults,
    ) -> list[CollectionFailure]:
        """Bring the answers about the namespaces of active variants into the joins; return what failed."""
        suspected = self._shared.suspected(_ESSENTIAL)
        wanted = await beside(_size(accepted), lambda: _chunks(accepted, asked_about, faults, suspected))
        answers: dict[_Chunk, _Found] = {}
        async with self._round:
            round_.begin()
            for chunk in wanted:
                kept = self._cache.find(chunk.queries, chunk.pods, now=round_.now)
                if kept is not None:
                    answers[chunk] = _Found(dict(kept))
            missing = [chunk for chunk in wanted if chunk not in answers]
            asked = await self._ask(missing, round_)
        spoilers = all(namespace in suspected for chunk in asked for namespace in chunk.namespaces)
        if (asked or not wanted) and not (answers and spoilers):
            self._conclude(asked)
        self._cache.clean(now=round_.now)
        failures = _refusals(accepted)
        for chunk, found in (answers | asked).items():
            await beside(_series(found.answers), partial(joins.add, chunk.namespaces, found.answers))
            for name, lacking in found.lacking.items():
                for namespace, failure in lacking.items():
                    joins.fail(name, namespace, failure.message)
            failures += found.failures()
        return failures

    def _conclude(self, round_: dict[_Chunk, _Found]) -> None:
        """Tell whether the last round of queries was answered; without one there is no complaint.

        A namespace that has no answer while others have theirs says nothing about Prometheus.
        """
        failures = [failure for found in round_.values() for failure in found.failures()]
        answered = any(len(found.held) < len(chunk.namespaces) for chunk, found in round_.items())
        if round_:
            self._instruments.prometheus_up.set(1 if answered else 0)
        self._status = failures[0].message if failures and not answered else None

    async def _ask(self, asked: list[_Chunk], round_: Round) -> dict[_Chunk, _Found]:
        """Ask about chunks side by side; what was answered completely is kept."""
        suspected = self._shared.suspected(_ESSENTIAL)
        if all(namespace in suspected for chunk in asked for namespace in chunk.namespaces):
            round_.order.begin()  # there will be no essential query that the others could wait for
        async with asyncio.TaskGroup() as group:
            tasks = {chunk: group.create_task(self._ask_chunk(chunk, round_)) for chunk in asked}
        found = {chunk: task.result() for chunk, task in tasks.items()}
        for failure in (failure for each in found.values() for failure in each.failures()):
            _log.warning(
                "collection_failed",
                namespaces=len(failure.namespaces),
                first_namespace=failure.namespaces[0],
                reason=failure.message,
            )
        return found

    async def _ask_chunk(self, chunk: _Chunk, round_: Round) -> _Found:
        """Ask the queries of one chunk; a namespace without all of the essential ones has no answer."""
        makes = {query.name: _make(index) for index, query in enumerate(chunk_queries(chunk.namespaces))}
        async with asyncio.TaskGroup() as group:
            essential = group.create_task(self._shared.settle(_ESSENTIAL, makes, chunk.namespaces, round_))
            others = [(each.name, group.create_task(self._ask_more(each, round_))) for each in chunk.more]
        settled = essential.result()
        found = _Found(settled.answers, settled.failed)
        more: dict[str, Settled] = {}
        for name, task in others:
            more.setdefault(name, Settled()).take(task.result())
        for name, settled in more.items():
            found.answers |= settled.answers
            found.lacking[name] = settled.failed
        if not found.held and not any(found.lacking.values()):
            self._cache.keep(chunk.queries, chunk.pods, found.answers, now=round_.now)
        return found

    async def _ask_more(self, more: _More, round_: Round) -> Settled:
        """Ask what only some analyzers want; what is remembered of a part of the pods is apart from the others."""
        return await self._shared.settle((more.name, more.pods), {more.name: more.make}, more.namespaces, round_)


@dataclass(frozen=True, slots=True)
class _More:
    """A query by its name, the namespaces that it is about, and which part of their pods: a matcher, empty for all."""

    name: str
    namespaces: tuple[str, ...]
    pods: str = ""

    def make(self, namespaces: Sequence[str]) -> Query:
        """Return the query about some of the namespaces."""
        make = ANALYZER_QUERIES[self.name]
        return make(namespaces, self.pods) if self.pods else make(namespaces)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What is asked together: up to a hundred namespaces, their queries, and the Ready pods that they concern.

    ``more`` are the queries that only some analyzers want.
    """

    namespaces: tuple[str, ...]
    more: tuple[_More, ...]
    queries: tuple[Query, ...]
    pods: Pods


@dataclass(slots=True)
class _Found:
    """The answers about a chunk by query name.

    ``held`` are the namespaces that have no answer, ``lacking`` those that lack the answer to a query that is not
    essential, by its name.
    """

    answers: dict[str, InstantVector]
    held: Mapping[str, Failure] = field(default_factory=dict)
    lacking: dict[str, Mapping[str, Failure]] = field(default_factory=dict)

    def failures(self) -> list[CollectionFailure]:
        """Return the namespaces without an answer, those with the same reason together."""
        by_message: dict[str, list[str]] = {}
        for namespace, failure in self.held.items():
            by_message.setdefault(failure.message, []).append(namespace)
        return [CollectionFailure(tuple(sorted(found)), message) for message, found in sorted(by_message.items())]


_PODS_PER_VARIANT: Final = 10
_SERIES_PER_VARIANT: Final = 50
"""That cost about as much as a variant does."""


def _size(accepted: list[AcceptedVariant]) -> int:
    """Return how much work variants are, for ``beside``."""
    return len(accepted) + sum(len(entry.pods) for entry in accepted) // _PODS_PER_VARIANT


def _series(answers: Answers) -> int:
    return sum(len(vector.series) for vector in answers.values()) // _SERIES_PER_VARIANT


def _make(index: int) -> Make:
    return lambda namespaces: chunk_queries(namespaces)[index]


def _chunks(
    accepted: list[AcceptedVariant],
    asked_about: Callable[[ModelKey], frozenset[str]],
    faults: Faults,
    suspected: frozenset[str],
) -> list[_Chunk]:
    """Return what to ask about the active variants."""
    pods: dict[str, set[tuple[str, str]]] = {}
    more: dict[str, set[str]] = {name: set() for name in ANALYZER_QUERIES}
    for entry in accepted:
        if entry.variant.active and _refuse(entry.variant.key.namespace) is None:
            ready = faults.attempt(
                entry.variant.model, "reading its pods", partial(_ready, entry), list[tuple[str, str]]()
            )
            pods.setdefault(entry.variant.key.namespace, set()).update(ready)
            for name in asked_about(entry.variant.model):
                more[name].add(entry.variant.key.namespace)
    counts = {namespace: len(found) for namespace, found in pods.items()}
    return [
        _chunk(names, more, pods)
        for part in (pods.keys() - suspected, pods.keys() & suspected)
        for names in chunks(part, counts)
    ]


def _ready(entry: AcceptedVariant) -> list[tuple[str, str]]:
    return [(pod.metadata.namespace, pod.metadata.name) for pod in entry.pods if pod.ready]


def _chunk(
    namespaces: tuple[str, ...], more: Mapping[str, set[str]], pods: Mapping[str, set[tuple[str, str]]]
) -> _Chunk:
    found = {name: tuple(each for each in namespaces if each in wanting) for name, wanting in more.items()}
    ready = frozenset[tuple[str, str]]().union(*(pods[namespace] for namespace in namespaces))
    several = parts(name for _, name in ready)
    some = tuple(
        _More(name, about, part)
        for name, about in found.items()
        if about
        for part in (several if name in BY_PODS else ("",))
    )
    queries = (*chunk_queries(namespaces), *(each.make(each.namespaces) for each in some))
    return _Chunk(namespaces, some, queries, ready)


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
