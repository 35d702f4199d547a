"""Builds the inputs of one cycle, an immutable Snapshot, from caches and Prometheus.

WVA queries namespaces in chunks, side by side, unless the cache has answers that may be used again. A namespace counts
as answered only if each essential query about it is. Namespaces without an answer become a CollectionFailure that names
them; all others have their answers. WVA asks about engines and schedulers' queues only if an analyzer needs them.
Without these answers their samples are missing, and the other analyzers still decide.

Only cancellation raises an exception. A cycle with failures still has variants; the engine judges what a failure means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry

from wva import log
from wva.collect import queries
from wva.collect.answer_cache import AnswerCache, Answers, Pods
from wva.collect.faults import Faults
from wva.collect.namesakes import Namesakes
from wva.collect.past import QUERY_SECONDS
from wva.collect.pools import Pool
from wva.collect.replicas import ReplicaJoin
from wva.collect.request_counts import REQUEST_COUNTS, count_requests
from wva.collect.resolution import CollectStores
from wva.collect.scrape_intervals import ScrapeIntervals
from wva.collect.shared_queries import Make, Round, Settled, SharedQueries
from wva.collect.stray_series import StraySeries
from wva.collect.variants import AcceptedVariant, Claims, accepted_in_slices
from wva.config import Settings
from wva.instruments import Instruments
from wva.model.in_time import ServedLately
from wva.model.inventory import Inventory
from wva.model.metrics import Freshness
from wva.model.records import replace
from wva.model.roles import DECODE, computes
from wva.model.snapshot import CollectionFailure, Snapshot
from wva.model.trouble import cause_of
from wva.model.usual import UsualDemand
from wva.model.variant import ModelKey, Variant
from wva.prometheus.answers import InstantVector, Querier
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
    two signals of its replicas, ``counters_of`` whether it wants what the engines have counted. ``variants_at`` returns
    the variants with their pods at a time that has passed; None: the variants in the caches count. ``retention_of``
    returns the seconds without a request after which a model may go to zero, None for one that may not. ``served``
    returns what the users of models got lately (``ServedUsers.lately``), ``usual`` what usually comes at this time of
    day (``EarlierDays.usual``). ``inventory``
    returns the GPUs of the cluster, or None and why they are not known; None instead of both when no model needs them.
    ``note`` takes the result of each query that is not essential (``QueryFailures.note``). ``pools_of``
    returns the pools of a namespace that select a pod with such labels.
    """

    stores: CollectStores
    _: KW_ONLY
    prometheus: Querier
    instruments: Instruments
    claims: Claims = Claims()  # noqa: RUF009 - frozen
    freshness: Callable[[], Freshness] = Freshness
    cache: Callable[[], Settings] = Settings.model_construct
    deadline_seconds: float = 20.0
    as_started: Callable[[Variant, float], Variant] = lambda variant, _: variant
    variants_at: Callable[[float], list[AcceptedVariant]] | None = None
    engines_of: Callable[[ModelKey], bool] = lambda _: False
    counters_of: Callable[[ModelKey], bool] = lambda _: False
    retention_of: Callable[[ModelKey], float | None] = lambda _: None
    served: Callable[[], tuple[ServedLately, ...]] = tuple
    usual: Callable[[], tuple[UsualDemand, ...]] = tuple
    inventory: Callable[[], tuple[Inventory | None, str] | None] = lambda: None
    note: Callable[[str, Iterable[str], Mapping[str, str]], None] = lambda *_: None
    pools_of: Callable[[str, Mapping[str, str]], Iterable[Pool]] = lambda *_: ()

    def __post_init__(self) -> None:
        """Begin without answers."""
        self._shared = SharedQueries(self.prometheus)
        self._cache = AnswerCache(settings=self.cache, freshness=self.freshness, instruments=self.instruments)
        self._round = asyncio.Lock()
        """Cycle and background do not ask at the same time, so the second finds the answers of the first."""
        self._intervals = ScrapeIntervals()
        self._strays = StraySeries(self.prometheus, self.note)
        self._status: str | None = None
        self._throttle = log.Throttle()

    def of_past(self, prometheus: Querier, variants_at: Callable[[float], list[AcceptedVariant]]) -> Collector:
        """Return a collector for earlier times, which uses the given answers and variants and reports no failures."""
        return replace(
            self,
            prometheus=prometheus,
            instruments=Instruments(CollectorRegistry()),
            deadline_seconds=QUERY_SECONDS,
            variants_at=variants_at,
            retention_of=lambda _: None,
            served=tuple,
            usual=tuple,
            inventory=lambda: None,
            note=lambda *_: None,
        )

    async def accepted(self, now: float) -> list[AcceptedVariant]:
        """Return the variants of a cycle at ``now`` (seconds since the epoch) with their pods."""
        return (await self._accepted(now))[0]

    def prometheus_status(self) -> str | None:
        """Return why the last round of queries had no answer about any namespace; None if it had one, or asked none."""
        return self._status

    async def collect(self, now: float) -> Snapshot:
        """Return variants and samples at ``now`` (seconds since the epoch).

        Its queries take at most the deadline, and so do those of a fetch in the background before them.
        """
        accepted, faults = await self._accepted(now)
        size, wanted, refused = _size(accepted), self._wanted(accepted, faults), _refused(accepted)
        join = await beside(
            size,
            lambda: ReplicaJoin(
                accepted,
                instruments=self.instruments,
                wanted=wanted,
                faults=faults,
                namesakes=Namesakes(pod=self.stores.targets.pods.get, pools_of=self.pools_of),
            ),
        )
        retentions = {
            model: faults.attempt(model, "reading its policy", partial(self.retention_of, model), default=None)
            for model in sorted({entry.variant.model for entry in accepted if entry.variant.active})
            if model.namespace not in refused
        }
        round_, counted = Round(now, self.deadline_seconds), _CountedRequests(self._shared)
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(
                count_requests(
                    {model: retention for model, retention in retentions.items() if retention is not None},
                    partial(counted.ask, round_),
                    ours=join.knows,
                )
            )
            group.create_task(self._strays.look(now))
            failures = list(refused.values())
            for chunk, answers in (await self._chunk_answers(accepted, wanted, round_)).items():
                series = sum(len(vector.series) for vector in _answers(answers).values())
                await beside(series // _SERIES_PER_VARIANT, partial(_take, join, chunk, answers))
                failures += _failures(answers)
        self.note(REQUEST_COUNTS, counted.asked_namespaces, counted.failed)
        freshness = self.freshness()
        replicas, queues = await beside(
            size,
            lambda: (
                join.replicas(now=now, freshness=freshness, intervals=self._intervals, strays=self._strays.words),
                join.queues(now=now, freshness=freshness),
            ),
        )
        snapshot = await beside(size, lambda: Snapshot.of([entry.variant for entry in accepted], replicas, failures))
        await beside(size, partial(self._strays.see, snapshot))
        try:
            inventory, detail = self.inventory() or (None, "")
        except Exception as error:  # noqa: BLE001 - no model is held; the number of GPUs is unknown
            _log.exception("inventory_failed")
            inventory, detail = None, f"counting GPUs failed: {cause_of(error)}"
        return replace(
            snapshot,
            queues=tuple(queues),
            request_counts=counting.result(),
            served=self.served(),
            usual=self.usual(),
            inventory=inventory,
            inventory_detail=detail,
            unread=faults.unread(),
        )

    async def refresh(self, now: float) -> None:
        """Fetch the answers that the last cycle used again if they are due. After a failure the kept answers stay."""
        async with self._round:
            accepted, faults = await self._accepted(now)
            chunks = await self._chunks(accepted, self._wanted(accepted, faults))
            due = [chunk for chunk in chunks if self._cache.due(chunk, now=now)]
            if due:
                self._conclude(await self._ask(due, Round(now, self.deadline_seconds)))

    async def _accepted(self, now: float) -> tuple[list[AcceptedVariant], Faults]:
        faults = Faults(now, self._throttle)
        if self.variants_at is not None:
            return self.variants_at(now), faults
        accepted = await accepted_in_slices(
            self.stores, claims=self.claims, now=now, as_started=self.as_started, faults=faults
        )
        return accepted, faults

    def _wanted(self, accepted: list[AcceptedVariant], faults: Faults) -> Wanted:
        """Return the queries that only some analyzers want; each policy is read once."""
        prefills = {entry.variant.model for entry in accepted if not computes(entry.variant.role, DECODE)}

        def read(model: ModelKey) -> frozenset[str]:
            engines, counters = self.engines_of(model), self.counters_of(model)
            wanted = {
                queries.ENGINE_SIGNALS: engines,
                queries.ENGINE_COUNTERS: counters,
                queries.ENGINE_PREFILLS: counters and model in prefills,
                queries.SCHEDULER_QUEUE: engines or counters,
            }
            return frozenset(name for name, wants in wanted.items() if wants)

        return {
            model: faults.attempt(model, "reading its policy", partial(read, model), default=frozenset[str]())
            for model in {entry.variant.model for entry in accepted}
        }

    async def _chunks(self, accepted: list[AcceptedVariant], wanted: Wanted) -> list[_Chunk]:
        """Return what to ask about the active variants; suspected namespaces are apart from the others."""
        suspected = self._shared.suspected(_ESSENTIAL)
        return await beside(_size(accepted), lambda: _chunks(accepted, wanted, suspected))

    async def _chunk_answers(
        self, accepted: list[AcceptedVariant], wanted: Wanted, round_: Round
    ) -> dict[_Chunk, ChunkAnswers]:
        """Return the answers about the namespaces of active variants, from the cache or from Prometheus."""
        needed = await self._chunks(accepted, wanted)
        known: dict[_Chunk, ChunkAnswers] = {}
        async with self._round:
            round_.begin()
            for chunk in needed:
                kept = self._cache.find(chunk, chunk.pods, now=round_.now)
                if kept is not None:
                    known[chunk] = {_ESSENTIAL: Settled(dict(kept))}
            asked = await self._ask([chunk for chunk in needed if chunk not in known], round_)
        if (asked or not needed) and not (known and all(chunk.suspected for chunk in asked)):
            self._conclude(asked)
        self._cache.clean(now=round_.now)
        return known | asked

    def _conclude(self, answers_by_chunk: Mapping[_Chunk, ChunkAnswers]) -> None:
        """Note whether the last round of queries was answered; a round without queries counts as answered.

        A namespace that has no answer while others have theirs says nothing about Prometheus.
        """
        failures = [failure for answers in answers_by_chunk.values() for failure in _failures(answers)]
        answered = any(
            len(answers[_ESSENTIAL].failed) < len(chunk.namespaces) for chunk, answers in answers_by_chunk.items()
        )
        if answers_by_chunk:
            self.instruments.prometheus_up.set(1 if answered else 0)
        self._status = failures[0].message if failures and not answered else None

    async def _ask(self, asked: list[_Chunk], round_: Round) -> dict[_Chunk, ChunkAnswers]:
        """Ask about chunks side by side; complete answers are kept."""
        suspected = self._shared.suspected(_ESSENTIAL)
        if all(suspected.issuperset(chunk.namespaces) for chunk in asked):
            round_.others_begin.set()  # no essential query comes for which the others could wait
        async with asyncio.TaskGroup() as group:
            tasks = {chunk: group.create_task(self._ask_chunk(chunk, round_)) for chunk in asked}
        answers_by_chunk = {chunk: task.result() for chunk, task in tasks.items()}
        for failure in (failure for answers in answers_by_chunk.values() for failure in _failures(answers)):
            names, reason = failure.namespaces, failure.message
            tell = _log.debug if self.variants_at else _log.warning
            tell("collection_failed", namespaces=len(names), first_namespace=names[0], reason=reason)
        return answers_by_chunk

    async def _ask_chunk(self, chunk: _Chunk, round_: Round) -> ChunkAnswers:
        """Ask the queries of one chunk. Namespaces that spoil answers are remembered for each part of the pods."""
        asked: list[tuple[str, Hashable, Mapping[str, Make], tuple[str, ...]]]
        asked = [(_ESSENTIAL, _ESSENTIAL, queries.ESSENTIAL_QUERIES, chunk.namespaces)]
        for name, pods, namespaces in chunk.more:
            make = partial(queries.ANALYZER_QUERIES[name], pods=pods)
            asked.append((name, (name, pods), {name: make}, namespaces))
        async with asyncio.TaskGroup() as group:
            tasks = [
                (name, group.create_task(self._shared.settle(topic, makes, namespaces, round_)))
                for name, topic, makes, namespaces in asked
            ]
        answers: dict[str, Settled] = {}
        for name, task in tasks:
            answers.setdefault(name, Settled()).take(task.result())
        failed = _failed(chunk, answers)
        for name, namespaces in {name: namespaces for name, _, namespaces in chunk.more}.items():
            self.note(name, namespaces, failed.get(name, {}))
        if not any(settled.failed for settled in answers.values()):
            self._cache.keep(chunk, chunk.pods, _answers(answers), now=round_.now)
        return answers


@dataclass(slots=True)
class _CountedRequests:
    """Asks for the requests of models; notes the namespaces, and why some of them have no answer, in words."""

    shared: SharedQueries
    asked_namespaces: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)

    async def ask(self, round_: Round, topic: Hashable, make: Make, namespaces: Sequence[str]) -> Settled:
        """Ask about namespaces."""
        settled = await self.shared.settle(topic, {REQUEST_COUNTS: make}, namespaces, round_)
        self.asked_namespaces.update(namespaces)
        answer = settled.answers.get(REQUEST_COUNTS)
        if answer is not None and answer.warnings:  # then no count is sure
            self.failed |= dict.fromkeys(namespaces, f"query {REQUEST_COUNTS}: {answer.warnings[0]}")
        self.failed |= {namespace: failure.message for namespace, failure in settled.failed.items()}
        return settled


class _AnalyzerQuery(NamedTuple):
    """A query that only some analyzers need: its part of the pods (a matcher, empty for all), and its namespaces."""

    name: str
    pods: str
    namespaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Up to a hundred namespaces about which WVA asks together; only some analyzers need ``more``.

    Two chunks are equal if their queries are; their Ready ``pods`` do not count.
    """

    namespaces: tuple[str, ...]
    more: tuple[_AnalyzerQuery, ...]
    suspected: bool = field(compare=False)
    pods: Pods = field(compare=False)


def _chunks(accepted: list[AcceptedVariant], wanted: Wanted, suspected: frozenset[str]) -> list[_Chunk]:
    refused = _refused(accepted)
    pods: dict[str, set[tuple[str, str]]] = {}
    wanting: dict[str, set[str]] = {name: set() for name in queries.ANALYZER_QUERIES}
    for entry in accepted:
        namespace = entry.variant.key.namespace
        if entry.variant.active and namespace not in refused:
            pods.setdefault(namespace, set()).update((pod.metadata.namespace, pod.metadata.name) for pod in entry.ready)
            for name in wanted[entry.variant.model]:
                wanting[name].add(namespace)
    counts = {namespace: len(names) for namespace, names in pods.items()}
    chunks = []
    for part in (pods.keys() - suspected, pods.keys() & suspected):
        for namespaces in queries.chunks(part, counts):
            concerned: Pods = frozenset().union(*(pods[namespace] for namespace in namespaces))
            matchers = queries.parts(name for _, name in concerned)
            more = tuple(
                _AnalyzerQuery(name, matcher, asked)
                for name, wanting_namespaces in wanting.items()
                if (asked := tuple(namespace for namespace in namespaces if namespace in wanting_namespaces))
                for matcher in (matchers if name in queries.BY_PODS else ("",))
            )
            chunks.append(_Chunk(namespaces, more, namespaces[0] in suspected, concerned))
    return chunks


def _take(join: ReplicaJoin, chunk: _Chunk, answers: ChunkAnswers) -> None:
    """Give the answers about a chunk to the join; an empty answer with a warning is a failure."""
    failed = _failed(chunk, answers)
    for name, reasons in failed.items():
        for namespace, reason in reasons.items():
            join.fail(name, [namespace], reason)
    for name, answer in _answers(answers).items():
        if not _refused_with_warning(name, answer):
            join.add(name, answer)


def _refused_with_warning(name: str, answer: InstantVector) -> bool:
    return name in queries.ANALYZER_QUERIES and bool(answer.warnings) and not answer.series


def _failed(chunk: _Chunk, answers: ChunkAnswers) -> dict[str, dict[str, str]]:
    """Return by query the namespaces of a chunk that have no answer, each with the reason in words."""
    failed: dict[str, dict[str, str]] = {}
    for name, answer in _answers(answers).items():
        if _refused_with_warning(name, answer):
            failed[name] = dict.fromkeys(chunk.namespaces, f"query {name}: {answer.warnings[0]}")
    for name, settled in answers.items():
        failed.setdefault(name, {}).update(
            {namespace: failure.message for namespace, failure in settled.failed.items()}
        )
    return failed


def _refused(accepted: list[AcceptedVariant]) -> dict[str, CollectionFailure]:
    """Return a failure for each active variant's namespace with an invalid name, sorted."""
    refused = {}
    for namespace in sorted({entry.variant.key.namespace for entry in accepted if entry.variant.active}):
        try:
            queries.validate_namespace(namespace)
        except ValueError as error:
            refused[namespace] = CollectionFailure((namespace,), str(error))
    return refused


def _answers(answers: ChunkAnswers) -> Answers:
    """Return the answers about a chunk by query name."""
    return {name: vector for settled in answers.values() for name, vector in settled.answers.items()}


def _failures(answers: ChunkAnswers) -> list[CollectionFailure]:
    """Return the namespaces of a chunk without an answer to the essential queries, by reason."""
    by_message: dict[str, list[str]] = {}
    for namespace, failure in answers[_ESSENTIAL].failed.items():
        by_message.setdefault(failure.message, []).append(namespace)
    return [CollectionFailure(tuple(sorted(names)), message) for message, names in sorted(by_message.items())]


def _size(accepted: list[AcceptedVariant]) -> int:
    """Return how much work variants are, for ``beside``."""
    return len(accepted) + sum(len(entry.ready) for entry in accepted) // _PODS_PER_VARIANT
