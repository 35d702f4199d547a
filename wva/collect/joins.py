"""Where the answers of a cycle go: to the replicas, to their engines, to the queues of the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

from wva.collect.answer_cache import Answers
from wva.collect.engines import EngineJoin
from wva.collect.faults import Faults
from wva.collect.queries import ENGINE_SIGNALS, SCHEDULER_QUEUE
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
    engines: EngineJoin
    queues: SchedulerQueueJoin

    @classmethod
    def of(
        cls,
        accepted: list[AcceptedVariant],
        *,
        instruments: Instruments,
        asked: Callable[[ModelKey], bool],
        faults: Faults | None = None,
    ) -> Self:
        """Return empty joins; ``asked`` tells for which models engines and queues are asked about.

        Models whose samples cannot be taken in are noted in ``faults``.
        """
        faults = Faults() if faults is None else faults
        engines = EngineJoin(accepted, asked=asked)
        models = {entry.variant.model for entry in accepted if entry.variant.active}
        return cls(
            ReplicaJoin(accepted, instruments=instruments, engines=engines, faults=faults),
            engines,
            SchedulerQueueJoin([model for model in sorted(models) if asked(model)], faults=faults),
        )

    def fail(self, query: str, namespace: str, message: str) -> None:
        """Note why a query that is not essential has no answer about a namespace."""
        join: EngineJoin | SchedulerQueueJoin = self.engines if query == ENGINE_SIGNALS else self.queues
        join.fail([namespace], message)

    def add(self, namespaces: Iterable[str], answers: Answers) -> None:
        """Take over the answers about a chunk of namespaces. One that is empty and warns says nothing at all."""
        others: dict[str, EngineJoin | SchedulerQueueJoin] = {
            ENGINE_SIGNALS: self.engines,
            SCHEDULER_QUEUE: self.queues,
        }
        for name, answer in answers.items():
            join = others.get(name)
            if join is None:
                self.replicas.add(name, answer)
            elif answer.warnings and not answer.series:
                join.fail(namespaces, f"query {name}: {answer.warnings[0]}")
            else:
                join.add(answer)

    def result(self, *, now: float, freshness: Freshness) -> tuple[list[ReplicaMetrics], list[SchedulerQueue]]:
        """Return replicas and queues, classified at ``now`` (seconds since the epoch)."""
        return self.replicas.replicas(now=now, freshness=freshness), self.queues.queues(Classifier(now, freshness))
