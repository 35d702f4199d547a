"""What the replicas of a model hold in tokens: readings of those that can be judged, and a count of the others.

Growth uses the present demand. The peak of the last minute would still show an overload that new replicas have just
relieved, and the model would grow for it twice. A shrink uses the peak.

A replica can be judged when its KV usage, its queue length and the size of its KV cache are fresh. The length of its
requests may be missing, because no request may have finished lately. Then the mean of the model is used. Without such a
mean the length of the waiting requests is unknown, which is not the same as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from wva.decide.progress import Progress
from wva.decide.trust import VariantReadings
from wva.model.capacity import CapacityBasis
from wva.model.metrics import MISSING, ReplicaMetrics, Sample, SampleState
from wva.model.snapshot import SchedulerQueue

BYTES_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """A mean request: prompt and answer in tokens, and the share of the prompt found in the prefix cache."""

    input_tokens: float = 0.0
    output_tokens: float = 0.0
    hit_rate: float = 0.0

    def charge(self, requests: float, *, size_bytes: float = 0.0) -> float:
        """Return the tokens that waiting requests will take: prompts not found in the prefix cache, and answers.

        ``size_bytes`` is the size of all of them together; the larger of the two guesses at their prompts counts.
        """
        prompts = max(size_bytes / BYTES_PER_TOKEN, requests * self.input_tokens)
        return prompts * (1 - self.hit_rate) + requests * self.output_tokens


@dataclass(frozen=True, slots=True)
class Reading:
    """One replica.

    ``in_use`` (tokens) and ``queue`` (requests, of its fullest engine) are the peaks of the last minute, ``held`` and
    ``waiting`` (of all engines) what there is now. ``workload`` None is not known: what waits is not charged then.
    """

    kv_tokens: int
    in_use: int
    queue: float
    held: float
    waiting: float
    workload: Workload | None

    @property
    def demand(self) -> float:
        """Tokens held, and those that the waiting requests will take as far as their length is known."""
        return self.held + (self.workload or Workload()).charge(self.waiting)

    @property
    def peak_demand(self) -> float:
        """The highest demand of the last minute."""
        queued = (self.workload or Workload()).charge(max(self.queue, self.waiting))
        return max(self.demand, self.in_use + queued)


class Carried(NamedTuple):
    """What one replica of a variant carries, what that stands on, and how often k2 has been seen."""

    tokens: int
    basis: CapacityBasis
    observations: int = 0


UNKNOWN: Final = Carried(0, CapacityBasis.UNKNOWN)


@dataclass(frozen=True, slots=True)
class VariantTokens:
    """One variant, its replicas that can be judged, and what one replica carries, once that is known."""

    progress: Progress
    readings: tuple[Reading, ...]
    carried: Carried = UNKNOWN

    @property
    def unread(self) -> int:
        """Replicas that serve but cannot be judged."""
        return self.progress.serving - len(self.readings)


def read(reports: Sequence[VariantReadings]) -> tuple[list[VariantTokens], Workload | None]:
    """Return the variants of a model, and its mean request: over the replicas that know theirs, None if none does."""
    known = [workload for report in reports for pod in report.replicas if (workload := _workload(pod)) is not None]
    prompts, answers = [each.input_tokens for each in known], [each.output_tokens for each in known]
    typical = Workload(mean(prompts), mean(answers), mean([each.hit_rate for each in known])) if known else None
    return [
        VariantTokens(report.progress, tuple([found for pod in report.replicas if (found := _reading(pod, typical))]))
        for report in reports
    ], typical


def totals(model: Sequence[VariantTokens], amount: Callable[[Reading], float]) -> list[float]:
    """Return an amount per variant. A replica that cannot be judged is taken for as busy as the others are."""
    amounts = [[amount(reading) for reading in variant.readings] for variant in model]
    everything = mean([found for own in amounts for found in own])
    return [
        math.fsum(own) + variant.unread * (mean(own) if own else everything)
        for variant, own in zip(model, amounts, strict=True)
    ]


def queued(queue: SchedulerQueue | None, workload: Workload | None) -> tuple[float, str]:
    """Return the tokens that wait outside of the replicas, and what is not known of them, empty when nothing.

    A queue without a report is none.
    """
    if queue is None or queue.size.state is queue.size_bytes.state is SampleState.MISSING:
        return 0.0, ""
    size = queue.size.fresh_value
    tokens = (workload or Workload()).charge(size or 0.0, size_bytes=queue.size_bytes.fresh_value or 0.0)
    if size is None:
        return tokens, f"the scheduler's queue is {_words(queue.size)}"
    return tokens, "the length of the requests in the scheduler's queue is not known" if size and not workload else ""


def gap(replicas: Sequence[ReplicaMetrics]) -> str:
    """Return in words what the first replica lacks that cannot be judged; there is at least one."""
    replica = next(replica for replica in replicas if _reading(replica, None) is None)
    size = MISSING if replica.engine is None else replica.engine.kv_capacity_tokens
    samples = (("KV usage", replica.kv_usage), ("queue length", replica.queue_length), ("KV cache size", size))
    lacking = (f"{name} {_words(sample)}" for name, sample in samples if sample.state is not SampleState.FRESH)
    return f"{replica.pod}: {next(lacking, 'KV cache size 0')}"


def mean(values: Sequence[float]) -> float:
    """Return the plain mean, 0 without values; the order does not matter."""
    return math.fsum(values) / len(values) if values else 0.0


def _reading(replica: ReplicaMetrics, typical: Workload | None) -> Reading | None:
    engine, in_use, queue = replica.engine, replica.tokens_in_use.fresh_value, replica.queue_length.fresh_value
    if engine is None or in_use is None or queue is None:
        return None
    kv_tokens = int(engine.kv_capacity_tokens.value or 0.0)
    if kv_tokens <= 0:
        return None
    usage, waiting = engine.kv_usage.fresh_value, engine.waiting.fresh_value
    return Reading(
        kv_tokens,
        in_use=min(int(in_use), kv_tokens),
        queue=queue,
        held=min(in_use, kv_tokens) if usage is None else usage * kv_tokens,
        waiting=queue if waiting is None else waiting,
        workload=_workload(replica) or typical,
    )


def _workload(replica: ReplicaMetrics) -> Workload | None:
    engine = replica.engine
    if engine is None:
        return None
    prompt, answer = engine.input_tokens.fresh_value, engine.output_tokens.fresh_value
    if prompt is None or answer is None:
        return None
    return Workload(prompt, answer, engine.prefix_hit_rate.fresh_value or 0.0)


def _words(sample: Sample) -> str:
    return f"{sample.state.value} ({sample.detail})" if sample.detail else sample.state.value
