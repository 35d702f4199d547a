"""What the replicas of a model hold in tokens: readings of those that can be judged, and a count of the others.

Growth uses the present demand. The peak of the last minute would still show an overload that new replicas have just
relieved, and the model would grow for it twice. A shrink uses the peak.

A replica can be judged when its KV usage, its queue length and the size of its KV cache are fresh. The length of its
requests may be missing, because no request may have finished lately. Then the mean of the model is used. Without such a
mean the length of the waiting requests is unknown, which is not the same as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from wva.decide.analyze.saturation import VariantReport
from wva.decide.analyze.tokens_arithmetic import Workload, charge, mean
from wva.model.metrics import MISSING, ReplicaMetrics, Sample, SampleState
from wva.model.snapshot import SchedulerQueue
from wva.model.variant import Variant

_DRAINING: Final = 0.9
"""A queue below this share of the last minute's peak is getting shorter."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One replica.

    ``in_use`` (tokens) and ``queue`` (requests, of its fullest engine) are the peaks of the last minute, ``held`` and
    ``waiting`` (of all engines) what there is now. ``workload`` None is not known.
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
        return self.held + self._charge(self.waiting)

    @property
    def peak_demand(self) -> float:
        """The highest demand of the last minute."""
        return max(self.demand, self.in_use + self._charge(max(self.queue, self.waiting)))

    @property
    def partial(self) -> bool:
        """Whether requests of unknown length wait."""
        return self.workload is None and max(self.queue, self.waiting) > 0

    def _charge(self, requests: float) -> float:
        return 0.0 if self.workload is None else charge(requests, self.workload)


@dataclass(frozen=True, slots=True)
class VariantReadings:
    """One variant: its replicas that can be judged, and how many serve, start, or serve unseen."""

    variant: Variant
    readings: tuple[Reading, ...]
    ready: int
    pending: int
    countable: bool

    @property
    def unread(self) -> int:
        """Replicas that serve but cannot be judged."""
        return self.ready - len(self.readings)

    @property
    def complete(self) -> bool:
        """Whether every replica is known, serves, and can be judged."""
        return self.countable and not self.unread and not self.pending


def read(report: VariantReport, workload: Workload | None) -> VariantReadings:
    """Read a variant; ``workload`` is the mean request of its model, None when it is not known."""
    progress = report.progress
    return VariantReadings(
        variant=progress.variant,
        readings=tuple(reading for replica in report.replicas if (reading := _reading(replica, workload)) is not None),
        ready=progress.ready - progress.silent,
        pending=progress.in_flight,
        countable=progress.ready == progress.current or (progress.overdue and progress.ready < progress.current),
    )


def workload_of(replicas: Sequence[ReplicaMetrics]) -> Workload | None:
    """Return the mean request over the replicas that know theirs, None when none does."""
    known = [workload for replica in replicas if (workload := _own_workload(replica)) is not None]
    if not known:
        return None
    return Workload(
        mean([one.input_tokens for one in known]) or 0.0,
        mean([one.output_tokens for one in known]) or 0.0,
        mean([one.hit_rate for one in known]) or 0.0,
    )


def totals(model: Sequence[VariantReadings], amount: Callable[[Reading], float]) -> list[float]:
    """Return an amount per variant. A replica that cannot be judged is taken for as busy as the others are."""
    amounts = [[amount(reading) for reading in variant.readings] for variant in model]
    everything = mean([found for own in amounts for found in own]) or 0.0
    sums = []
    for variant, own in zip(model, amounts, strict=True):
        typical = mean(own)
        sums.append(math.fsum(own) + variant.unread * (everything if typical is None else typical))
    return sums


def growth_demand(model: Sequence[VariantReadings], waiting_outside: float) -> float:
    """Return the demand that growth answers: what is held, and of what waits no more than that.

    More has piled up while replicas were too few or still loading, and will be worked off: answering all of it at once
    buys a fleet for a queue that is gone when the fleet is there. A queue in the replicas that is already getting
    shorter counts for nothing. While nothing is held at all, all that waits counts.
    """
    readings = [reading for variant in model for reading in variant.readings]
    peak, now = sum(reading.queue for reading in readings), sum(reading.waiting for reading in readings)
    held = math.fsum(totals(model, lambda reading: reading.held))
    inside = 0.0 if now < peak * _DRAINING else math.fsum(totals(model, lambda reading: reading.demand)) - held
    waiting = max(0.0, inside) + waiting_outside
    return held + (min(waiting, held) if held > 0 else waiting)


@dataclass(frozen=True, slots=True)
class Queued:
    """What waits outside of the replicas, in tokens; ``doubt`` says what is not known of it, empty when nothing."""

    tokens: float = 0.0
    doubt: str = ""


def queued(queue: SchedulerQueue | None, workload: Workload | None) -> Queued:
    """Return the demand of the scheduler's queue. A queue without a report is none."""
    if queue is None or queue.size.state is queue.size_bytes.state is SampleState.MISSING:
        return Queued()
    size, size_bytes = queue.size.fresh_value, queue.size_bytes.fresh_value
    tokens = charge(size or 0.0, workload or Workload(), size_bytes=size_bytes or 0.0)
    if size is None:
        return Queued(tokens, f"the scheduler's queue is {_words(queue.size)}")
    doubt = "the length of the requests in the scheduler's queue is not known" if size and workload is None else ""
    return Queued(tokens, doubt)


def gap(reports: Iterable[VariantReport]) -> str:
    """Return in words what the first replica lacks that cannot be judged; there is at least one."""
    return next(
        _gap_of(replica) for report in reports for replica in report.replicas if _reading(replica, None) is None
    )


def _gap_of(replica: ReplicaMetrics) -> str:
    size = MISSING if replica.engine is None else replica.engine.kv_capacity_tokens
    samples = (("KV usage", replica.kv_usage), ("queue length", replica.queue_length), ("KV cache size", size))
    for name, sample in samples:
        if sample.state is not SampleState.FRESH:
            return f"{replica.pod}: {name} {_words(sample)}"
    return f"{replica.pod}: KV cache size 0"


def _reading(replica: ReplicaMetrics, workload: Workload | None) -> Reading | None:
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
        workload=_own_workload(replica) or workload,
    )


def _own_workload(replica: ReplicaMetrics) -> Workload | None:
    engine = replica.engine
    if engine is None:
        return None
    prompt, answer = engine.input_tokens.fresh_value, engine.output_tokens.fresh_value
    if prompt is None or answer is None:
        return None
    return Workload(prompt, answer, engine.prefix_hit_rate.fresh_value or 0.0)


def _words(sample: Sample) -> str:
    return f"{sample.state.value} ({sample.detail})" if sample.detail else sample.state.value
