"""Where the answers of a cycle go: to the replicas, to their engines, to the queues of the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from wva.collect.answer_cache import Answers
from wva.collect.engines import CounterJoin, EngineJoin
from wva.collect.faults import Faults
from wva.collect.queries import ENGINE_COUNTERS, ENGINE_SIGNALS, SCHEDULER_QUEUE
from wva.collect.replicas import ReplicaJoin
from wva.collect.samples import Classifier
from wva.collect.scheduler_queue import SchedulerQueueJoin
from wva.collect.variants import AcceptedVariant
from wva.instruments import Instruments
from wva.model.metrics import Freshness, ReplicaMetrics
from wva.model.snapshot import SchedulerQueue
from wva.model.variant import ModelKey


@dataclass(frozen=True, slots=True)
class Joins:
    """The joins of one cycle; make them with ``of``."""

    replicas: ReplicaJoin
    analyzers: Mapping[str, EngineJoin | CounterJoin | SchedulerQueueJoin]
    """Those of the queries that only some analyzers want, by query name."""
    queues: SchedulerQueueJoin

    @classmethod
    def of(
        cls,
        accepted: list[AcceptedVariant],
        *,
        instruments: Instruments,
        asked: Callable[[ModelKey], frozenset[str]],
        faults: Faults | None = None,
    ) -> Self:
        """Return empty joins; ``asked`` tells which of the queries that only some analyzers want are for a model.

        Models whose samples cannot be taken in are noted in ``faults``.
        """
        faults = Faults() if faults is None else faults
        engines = EngineJoin(accepted, asked=lambda model: ENGINE_SIGNALS in asked(model))
        counters = CounterJoin(accepted, asked=lambda model: ENGINE_COUNTERS in asked(model))
        models = sorted({entry.variant.model for entry in accepted if entry.variant.active})
        queues = SchedulerQueueJoin([model for model in models if SCHEDULER_QUEUE in asked(model)], faults=faults)
        return cls(
            ReplicaJoin(accepted, instruments=instruments, engines=engines, counters=counters, faults=faults),
            {ENGINE_SIGNALS: engines, ENGINE_COUNTERS: counters, SCHEDULER_QUEUE: queues},
            queues,
        )

    def fail(self, query: str, namespace: str, message: str) -> None:
        """Note why a query that is not essential has no answer about a namespace."""
        self.analyzers[query].fail([namespace], message)

    def add(self, namespaces: Iterable[str], answers: Answers) -> None:
        """Take over the answers about a chunk of namespaces. One that is empty and warns says nothing at all."""
        for name, answer in answers.items():
            join = self.analyzers.get(name)
            if join is None:
                self.replicas.add(name, answer)
            elif answer.warnings and not answer.series:
                join.fail(namespaces, f"query {name}: {answer.warnings[0]}")
            else:
                join.add(answer)

    def result(self, *, now: float, freshness: Freshness) -> tuple[list[ReplicaMetrics], list[SchedulerQueue]]:
        """Return replicas and queues, classified at ``now`` (seconds since the epoch)."""
        return self.replicas.replicas(now=now, freshness=freshness), self.queues.queues(Classifier(now, freshness))
