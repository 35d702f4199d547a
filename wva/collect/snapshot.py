"""Builds the inputs of one cycle, an immutable Snapshot, from caches and Prometheus.

WVA queries namespaces in chunks, side by side, unless the cache has answers that may be used again. A namespace counts
as answered only if each essential query about it is. Namespaces without an answer become a CollectionFailure that names
them; all others have their answers. ``shared_queries`` finds a namespace that spoils the answers about its chunk. WVA
asks about engines and schedulers' queues only where an analyzer needs them. Without these answers their samples are
missing, and the other analyzers still decide.

Only cancellation raises. A cycle with failures still has variants; the decision stages judge what a failure means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from wva import log
from wva.collect import queries
from wva.collect.answer_cache import AnswerCache, Answers, CacheSettings, Pods
from wva.collect.claims import EVERYTHING, Claims
from wva.collect.faults import Faults
from wva.collect.promql import validate_namespace
from wva.collect.queries import Query, chunk_queries, chunks, parts
from wva.collect.replicas import ReplicaJoin
from wva.collect.request_counts import REQUEST_COUNTS, count_requests
from wva.collect.resolution import CollectStores
from wva.collect.samples import Classifier
from wva.collect.scheduler_queue import SchedulerQueueJoin
from wva.collect.shared_queries import Make, Round, Settled, SharedQueries
from wva.collect.variants import AcceptedVariant, accepted_in_slices
from wva.instruments import Instruments
from wva.model.inventory import Inventory
from wva.model.metrics import Freshness
from wva.model.records import replace
from wva.model.snapshot import CollectionFailure, Snapshot
from wva.model.trouble import cause_of
from wva.model.variant import ModelKey, Variant
from wva.prometheus.answers import Querier
from wva.slices import beside

_log = log.get("collect")

_ESSENTIAL: Final = "essential"
_PODS_PER_VARIANT: Final = 10
_SERIES_PER_VARIANT: Final = 50
"""So many series cost about as much time as one variant."""

Wanted: TypeAlias = Mapping[ModelKey, frozenset[str]]
"""By model, the names of the queries that only its analyzer needs."""
ChunkAnswers: TypeAlias = Mapping[str, Settled]
"""Answers and failures about a chunk: of the essential queries together, of others by their name."""


@dataclass(eq=False)
class Collector:
    """Builds the Snapshot of each cycle, and remembers whether Prometheus answered.

    ``stores`` must have their indexes (CollectStores.add_indexes). ``claims`` says which VAs belong to this controller.
    The collector reads ``freshness`` and ``cache`` in each cycle, since the settings may change while the process runs.
    ``deadline_seconds`` bounds all queries of a cycle together. ``as_started`` returns a variant with a start from zero
    that the caches do not show yet. ``engines_of`` tells whether the analyzer of a model wants to know more than the
    two signals of its replicas, ``counters_of`` whether it wants what the engines have counted. ``retention_of``
    returns the seconds without a request after which a model may go to zero, None for one that may not. ``inventory``
    returns the GPUs of the cluster, or None and why they are not known; None instead of both when no model needs them.
    """

    stores: CollectStores
    _: KW_ONLY
    prometheus: Querier
    instruments: Instruments
    claims: Claims = EVERYTHING
    freshness: Callable[[], Freshness] = Freshness
    cache: Callable[[], CacheSettings] = CacheSettings
    deadline_seconds: float = 20.0
    as_started: Callable[[Variant, float], Variant] | None = None
    engines_of: Callable[[ModelKey], bool] = lambda _: False
    counters_of: Callable[[ModelKey], bool] = lambda _: False
    retention_of: Callable[[ModelKey], float | None] = lambda _: None
    inventory: Callable[[], tuple[Inventory | None, str] | None] = lambda: None

    def __post_init__(self) -> None:
        """Begin without answers."""
        self._shared = SharedQueries(self.prometheus)
        self._cache = AnswerCache(settings=self.cache, freshness=self.freshness, instruments=self.instruments)
        self._round = asyncio.Lock()
        """Cycle and background do not ask the same at the same time: the second finds the answers of the first."""
        self._status: str | None = None
        self._throttle = log.Throttle()

    def prometheus_status(self) -> str | None:
        """Return why the last round of queries had no answer about any namespace; None when it had, or asked none."""
        return self._status

    async def collect(self, now: float) -> Snapshot:
        """Return variants and samples at ``now`` (seconds since the epoch).

        Its queries take at most the deadline, and so do those of a fetch in the background before them.
        """
        faults = Faults(now, throttle=self._throttle)
        accepted = await accepted_in_slices(
            self.stores, claims=self.claims, now=now, as_started=self.as_started, faults=faults
        )
        size, wanted, refused = _size(accepted), self._wanted(accepted, faults), _refused(accepted)
        replicas = await beside(
            size, lambda: ReplicaJoin(accepted, instruments=self.instruments, wanted=wanted, faults=faults)
        )
        active = {entry.variant.model for entry in accepted if entry.variant.active}
        queues = SchedulerQueueJoin(
            [model for model in sorted(active) if queries.SCHEDULER_QUEUE in wanted[model]], faults=faults
        )

        def take(chunk: _Chunk, found: ChunkAnswers) -> None:
            """Give the answers about a chunk to replicas and queues; an empty one with a warning is a failure."""
            for name, answer in _answers(found).items():
                if name in queries.ANALYZER_QUERIES and answer.warnings and not answer.series:
                    fail(name, chunk.namespaces, f"query {name}: {answer.warnings[0]}")
                elif name == queries.SCHEDULER_QUEUE:
                    queues.add(answer)
                else:
                    replicas.add(name, answer)

        def fail(query: str, namespaces: Sequence[str], message: str) -> None:
            if query == queries.SCHEDULER_QUEUE:
                queues.fail(namespaces, message)
            else:
                replicas.fail(query, namespaces, message)

        round_ = Round(now, self.deadline_seconds)
        async with asyncio.TaskGroup() as group:
            retentions = {
                model: faults.attempt(model, "reading its policy", partial(self.retention_of, model), default=None)
                for model in sorted(active)
                if model.namespace not in refused
            }
            counting = group.create_task(
                count_requests(
                    {model: retention for model, retention in retentions.items() if retention is not None},
                    lambda topic, make, asked: self._shared.settle(topic, {REQUEST_COUNTS: make}, asked, round_),
                )
            )
            failures = list(refused.values())
            for chunk, found in (await self._chunk_answers(accepted, wanted, round_, faults)).items():
                series = sum(len(vector.series) for vector in _answers(found).values())
                await beside(series // _SERIES_PER_VARIANT, partial(take, chunk, found))
                for name in found.keys() - {_ESSENTIAL}:
                    for namespace, failure in found[name].failed.items():
                        fail(name, [namespace], failure.message)
                failures += _failures(found)
        freshness = self.freshness()
        metrics, waiting = await beside(
            size,
            lambda: (replicas.replicas(now=now, freshness=freshness), queues.queues(Classifier(now, freshness))),
        )
        snapshot = await beside(size, lambda: Snapshot.of([entry.variant for entry in accepted], metrics, failures))
        try:
            inventory, detail = self.inventory() or (None, "")
        except Exception as error:  # noqa: BLE001 - no model is held; the number of GPUs is unknown
            _log.exception("inventory_failed")
            inventory, detail = None, f"counting GPUs failed: {cause_of(error)}"
        return replace(
            snapshot,
            queues=tuple(sorted(waiting, key=lambda queue: queue.model)),
            request_counts=counting.result(),
            inventory=inventory,
            inventory_detail=detail,
            unread=faults.unread(),
        )

    async def refresh(self, now: float) -> None:
        """Fetch the answers that the last cycle used again if they are due. After a failure the kept answers stay."""
        async with self._round:
            accepted = await accepted_in_slices(self.stores, claims=self.claims)
            faults = Faults(now, throttle=self._throttle)
            wanted, suspected = self._wanted(accepted, faults), self._shared.suspected(_ESSENTIAL)
            found = await beside(_size(accepted), lambda: _chunks(accepted, wanted, faults, suspected))
            due = [chunk for chunk in found if self._cache.due(chunk.queries, now=now)]
            if due:
                self._conclude(await self._ask(due, Round(now, self.deadline_seconds)))

    def _wanted(self, accepted: list[AcceptedVariant], faults: Faults) -> Wanted:
        """Return the queries that only some analyzers want; each policy is read once."""

        def read(model: ModelKey) -> frozenset[str]:
            engines, counters = self.engines_of(model), self.counters_of(model)
            asked = {
                queries.ENGINE_SIGNALS: engines,
                queries.ENGINE_COUNTERS: counters,
                queries.SCHEDULER_QUEUE: engines or counters,
            }
            return frozenset(name for name, wants in asked.items() if wants)

        return {
            model: faults.attempt(model, "reading its policy", partial(read, model), default=frozenset[str]())
            for model in {entry.variant.model for entry in accepted}
        }

    async def _chunk_answers(
        self, accepted: list[AcceptedVariant], wanted: Wanted, round_: Round, faults: Faults
    ) -> dict[_Chunk, ChunkAnswers]:
        """Return the answers about the namespaces of active variants, from the cache or from Prometheus."""
        suspected = self._shared.suspected(_ESSENTIAL)
        needed = await beside(_size(accepted), lambda: _chunks(accepted, wanted, faults, suspected))
        known: dict[_Chunk, ChunkAnswers] = {}
        async with self._round:
            round_.begin()
            for chunk in needed:
                kept = self._cache.find(chunk.queries, chunk.pods, now=round_.now)
                if kept is not None:
                    known[chunk] = {_ESSENTIAL: Settled(dict(kept))}
            asked = await self._ask([chunk for chunk in needed if chunk not in known], round_)
        spoilers = all(namespace in suspected for chunk in asked for namespace in chunk.namespaces)
        if (asked or not needed) and not (known and spoilers):
            self._conclude(asked)
        self._cache.clean(now=round_.now)
        return known | asked

    def _conclude(self, round_: Mapping[_Chunk, ChunkAnswers]) -> None:
        """Note whether the last round of queries was answered; a round without queries counts as answered.

        A namespace that has no answer while others have theirs says nothing about Prometheus.
        """
        failures = [failure for found in round_.values() for failure in _failures(found)]
        answered = any(len(found[_ESSENTIAL].failed) < len(chunk.namespaces) for chunk, found in round_.items())
        if round_:
            self.instruments.prometheus_up.set(1 if answered else 0)
        self._status = failures[0].message if failures and not answered else None

    async def _ask(self, asked: list[_Chunk], round_: Round) -> dict[_Chunk, ChunkAnswers]:
        """Ask about chunks side by side; complete answers are kept."""
        suspected = self._shared.suspected(_ESSENTIAL)
        if all(namespace in suspected for chunk in asked for namespace in chunk.namespaces):
            round_.others_begin.set()  # no essential query comes for which the others could wait
        async with asyncio.TaskGroup() as group:
            tasks = {chunk: group.create_task(self._ask_chunk(chunk, round_)) for chunk in asked}
        found = {chunk: task.result() for chunk, task in tasks.items()}
        for failure in (failure for each in found.values() for failure in _failures(each)):
            names, reason = failure.namespaces, failure.message
            _log.warning("collection_failed", namespaces=len(names), first_namespace=names[0], reason=reason)
        return found

    async def _ask_chunk(self, chunk: _Chunk, round_: Round) -> ChunkAnswers:
        """Ask the queries of one chunk. Namespaces that spoil answers are remembered for each part of the pods."""
        settle = self._shared.settle
        async with asyncio.TaskGroup() as group:
            essential = group.create_task(settle(_ESSENTIAL, queries.ESSENTIAL_QUERIES, chunk.namespaces, round_))
            others = [
                (each.name, group.create_task(settle(each[:2], {each.name: each.make}, each.namespaces, round_)))
                for each in chunk.more
            ]
        found = {_ESSENTIAL: essential.result()}
        for name, task in others:
            found.setdefault(name, Settled()).take(task.result())
        if not any(settled.failed for settled in found.values()):
            self._cache.keep(chunk.queries, chunk.pods, _answers(found), now=round_.now)
        return found


class _AnalyzerQuery(NamedTuple):
    """A query that only some analyzers need: its part of the pods (a matcher, empty for all), and its namespaces."""

    name: str
    pods: str
    namespaces: tuple[str, ...]

    @property
    def make(self) -> Make:
        return partial(queries.ANALYZER_QUERIES[self.name], pods=self.pods)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Up to a hundred namespaces, their Ready pods, and all queries about them; only some analyzers need ``more``."""

    namespaces: tuple[str, ...]
    more: tuple[_AnalyzerQuery, ...]
    queries: tuple[Query, ...]
    pods: Pods


def _chunks(accepted: list[AcceptedVariant], wanted: Wanted, faults: Faults, suspected: frozenset[str]) -> list[_Chunk]:
    """Return what to ask about the active variants; suspected namespaces are apart from the others."""
    refused = _refused(accepted)
    pods: dict[str, set[tuple[str, str]]] = {}
    wanting: dict[str, set[str]] = {name: set() for name in queries.ANALYZER_QUERIES}
    for entry in accepted:
        namespace, model = entry.variant.key.namespace, entry.variant.model
        if entry.variant.active and namespace not in refused:
            ready = faults.attempt(model, "reading its pods", partial(_ready, entry), list[tuple[str, str]]())
            pods.setdefault(namespace, set()).update(ready)
            for name in wanted[model]:
                wanting[name].add(namespace)
    counts = {namespace: len(found) for namespace, found in pods.items()}
    found = []
    for part in (pods.keys() - suspected, pods.keys() & suspected):
        for namespaces in chunks(part, counts):
            concerned: Pods = frozenset().union(*(pods[namespace] for namespace in namespaces))
            several = parts(name for _, name in concerned)
            more = tuple(
                _AnalyzerQuery(name, some, about)
                for name, those in wanting.items()
                if (about := tuple(each for each in namespaces if each in those))
                for some in (several if name in queries.BY_PODS else ("",))
            )
            asked = (*chunk_queries(namespaces), *(each.make(each.namespaces) for each in more))
            found.append(_Chunk(namespaces, more, asked, concerned))
    return found


def _ready(entry: AcceptedVariant) -> list[tuple[str, str]]:
    return [(pod.metadata.namespace, pod.metadata.name) for pod in entry.pods if pod.ready]


def _refused(accepted: list[AcceptedVariant]) -> dict[str, CollectionFailure]:
    """Return a failure for each active variant's namespace with an invalid name, sorted."""
    refused = {}
    for namespace in sorted({entry.variant.key.namespace for entry in accepted if entry.variant.active}):
        try:
            validate_namespace(namespace)
        except ValueError as error:
            refused[namespace] = CollectionFailure((namespace,), str(error))
    return refused


def _answers(found: ChunkAnswers) -> Answers:
    """Return the answers about a chunk by query name."""
    return {name: vector for settled in found.values() for name, vector in settled.answers.items()}


def _failures(found: ChunkAnswers) -> list[CollectionFailure]:
    """Return the namespaces of a chunk without an answer to the essential queries, by reason."""
    by_message: dict[str, list[str]] = {}
    for namespace, failure in found[_ESSENTIAL].failed.items():
        by_message.setdefault(failure.message, []).append(namespace)
    return [CollectionFailure(tuple(sorted(names)), message) for message, names in sorted(by_message.items())]


def _size(accepted: list[AcceptedVariant]) -> int:
    """Return how much work variants are, for ``beside``."""
    return len(accepted) + sum(len(entry.pods) for entry in accepted) // _PODS_PER_VARIANT
