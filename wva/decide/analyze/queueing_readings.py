"""What the samples say of the traffic of a model: arrivals, mean requests, latencies. No numpy.

Arrivals are the requests that were answered and those that made the queues longer. Completions alone would not show an
overload: an overloaded replica completes no more requests than it can, however many arrive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wva.decide.analyze.saturation import VariantReport
from wva.decide.queueing.objectives import Traffic
from wva.decide.settling import Progress
from wva.model.metrics import EngineSignals, ReplicaMetrics, SampleState
from wva.model.queueing import BACKLOG_SECONDS, Backlog
from wva.model.snapshot import SchedulerQueue
from wva.model.variant import ModelKey

MS_PER_SECOND = 1000.0


@dataclass(frozen=True, slots=True)
class QueueingInputs:
    """What is known of one model in a cycle.

    ``reports`` are its variants, those at zero replicas only if they may grow. ``queue`` is what the scheduler holds
    back, if it says so. ``failure`` says why samples could not be collected, None when they could.
    """

    key: ModelKey
    reports: Sequence[VariantReport]
    queue: SchedulerQueue | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaReading:
    """One replica: answered requests per second, requests inside, and the traffic that its means are about, if any."""

    answered: float
    inside: float
    traffic: Traffic | None


@dataclass(frozen=True, slots=True)
class VariantReading:
    """The replicas of one variant that can be judged."""

    progress: Progress
    replicas: tuple[ReplicaReading, ...]

    @property
    def unread(self) -> int:
        """Replicas that serve but cannot be judged."""
        return max(0, self.progress.ready - self.progress.silent - len(self.replicas))

    @property
    def answered(self) -> float:
        """Answered requests per second; one that cannot be judged is as busy as the others."""
        total = math.fsum(replica.answered for replica in self.replicas)
        return total * (1 + self.unread / len(self.replicas)) if self.replicas else 0.0

    @property
    def settled(self) -> bool:
        """Whether every replica that will serve does, and is judged; after the deadline the others are given up."""
        progress = self.progress
        if self.unread or progress.in_flight or progress.outstanding:
            return False
        return progress.ready == progress.current or (progress.overdue and progress.ready < progress.current)

    @property
    def per_replica(self) -> Traffic | None:
        """Mean traffic of one replica, None where any of its means is missing."""
        parts = [replica.traffic for replica in self.replicas if replica.traffic is not None]
        mean = Traffic.mean(parts)
        if mean is None:
            return None
        return Traffic(mean.rate / len(parts), mean.input_tokens, mean.output_tokens, mean.ttft, mean.itl)


@dataclass(frozen=True, slots=True)
class ModelReading:
    """All variants of a model, what waits in front of them, and how fast that grows (requests per second).

    ``growth`` is None while it is not known: in the first cycle, or when replicas are not read. ``doubt`` says what is
    not known of the queue in front of the replicas.
    """

    key: ModelKey
    variants: tuple[VariantReading, ...]
    backlog: Backlog | None
    growth: float | None
    doubt: str = ""

    @property
    def answered(self) -> float:
        """Answered requests per second; a variant without reports answers as many per replica as the others."""
        read = sum(len(variant.replicas) + variant.unread for variant in self.variants if variant.replicas)
        unread = sum(variant.unread for variant in self.variants if not variant.replicas)
        known = math.fsum(variant.answered for variant in self.variants)
        return known * (1 + unread / read) if read else known

    @property
    def arrivals(self) -> float:
        """Arriving requests per second."""
        return self.answered + max(0.0, self.growth or 0.0)

    @property
    def traffic(self) -> Traffic | None:
        """Mean request and latencies over all replicas, None while nothing was answered."""
        parts = [replica.traffic for variant in self.variants for replica in variant.replicas]
        return Traffic.mean([part for part in parts if part is not None])

    @property
    def idle(self) -> bool:
        """Whether nothing arrives and nothing waits."""
        return self.arrivals == 0 and (self.backlog is None or self.backlog.requests == 0)


def read_model(
    key: ModelKey,
    reports: Sequence[VariantReport],
    *,
    queue: SchedulerQueue | None,
    before: Backlog | None,
    now: float,
) -> ModelReading:
    """Read the samples of a model. ``before`` is its last backlog; ``now`` is in seconds since the epoch."""
    variants = tuple(_read_variant(report) for report in reports)
    waiting, doubt = _in_front(queue)
    complete = not doubt and not any(variant.unread for variant in variants)
    inside = math.fsum(replica.inside for variant in variants for replica in variant.replicas)
    backlog = Backlog(key, now, inside + waiting) if complete and any(each.replicas for each in variants) else None
    return ModelReading(key, variants, backlog, _growth(before, backlog), doubt)


def gap(reports: Sequence[VariantReport]) -> str:
    """Return in words what the first replica lacks that cannot be judged; there is at least one."""
    replicas = (replica for report in reports for replica in report.replicas)
    return next(f"{each.pod}: {_missing(each.engine)}" for each in replicas if _read_replica(each) is None)


def _read_variant(report: VariantReport) -> VariantReading:
    readings = tuple(reading for each in report.replicas if (reading := _read_replica(each)) is not None)
    return VariantReading(report.progress, readings)


def _read_replica(replica: ReplicaMetrics) -> ReplicaReading | None:
    engine = replica.engine
    if engine is None:
        return None
    answered, running, waiting = (
        sample.fresh_value for sample in (engine.success_rate, engine.running, engine.waiting)
    )
    if answered is None or running is None or waiting is None:
        return None
    answered = max(0.0, answered)
    return ReplicaReading(answered, max(0.0, running) + max(0.0, waiting), _traffic(engine, answered))


def _traffic(engine: EngineSignals, answered: float) -> Traffic | None:
    prompt, answer = engine.input_tokens.fresh_value, engine.output_tokens.fresh_value
    ttft, itl = engine.time_to_first_token.fresh_value, engine.inter_token_latency.fresh_value
    if prompt is None or answer is None or ttft is None or itl is None:
        return None
    if min(prompt, ttft, itl, answered) <= 0 or answer < 1:
        return None
    return Traffic(answered, prompt, answer, ttft * MS_PER_SECOND, itl * MS_PER_SECOND)


def _missing(engine: EngineSignals | None) -> str:
    if engine is None:
        return "nothing was asked of it"
    samples = {
        "request rate": engine.success_rate,
        "running requests": engine.running,
        "waiting requests": engine.waiting,
    }
    return next(
        f"{name} {sample.state.value}" for name, sample in samples.items() if sample.state is not SampleState.FRESH
    )


def _in_front(queue: SchedulerQueue | None) -> tuple[float, str]:
    """Return the requests that the scheduler holds back, and what is not known of them."""
    if queue is None or queue.size.state is SampleState.MISSING:
        return 0.0, ""
    size = queue.size.fresh_value
    return (0.0, f"the scheduler's queue is {queue.size.state.value}") if size is None else (max(0.0, size), "")


def _growth(before: Backlog | None, after: Backlog | None) -> float | None:
    """Return by how many requests per second the backlog has grown (negative: shrunk), None when it is unknown."""
    if before is None or after is None or not 0 < after.time - before.time <= BACKLOG_SECONDS:
        return None
    return (after.requests - before.requests) / (after.time - before.time)
