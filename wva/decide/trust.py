"""Step 1: what of the samples can be believed. Samples in, readings per replica, variant and model out.

A sample is fresh, stale, missing or invalid. Only a fresh one is a reading. Nothing here looks at the size of a value,
and no sample is ever a number that it does not have: unknown is not idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Final

from msgspec import Struct

from wva.decide.amounts import bounded_policy
from wva.decide.progress import Moment, Progress, progress_of
from wva.model.absence import Absence
from wva.model.decision import MetricsVerdict, Reason
from wva.model.memory import Memory, ModelMemory, VariantMemory
from wva.model.metrics import Coverage, ReplicaMetrics, Sample, SampleState
from wva.model.policy import Policy, SaturationPolicy
from wva.model.snapshot import RequestCounts, SchedulerQueue, Snapshot
from wva.model.variant import ModelKey, Variant, VariantKey

_VERDICTS: Final = {
    Reason.PROMETHEUS_ERROR: "PrometheusError",
    Reason.NO_READY_REPLICAS: "MetricsUnavailable",
    Reason.METRICS_MISSING: "MetricsUnavailable",
    Reason.METRICS_STALE: "MetricsStale",
    Reason.METRICS_INVALID: "MetricsInvalid",
}
_HOLDS: Final = {
    SampleState.STALE: Reason.METRICS_STALE,
    SampleState.INVALID: Reason.METRICS_INVALID,
    SampleState.MISSING: Reason.METRICS_MISSING,
}
"""Of several causes the one that was nearest to a usable sample is named."""


_NONE_READY: Final = Coverage(0, 0)
_USUAL: Final = SaturationPolicy()
_NOTHING_READ: Final = MetricsVerdict(available=False, reason="MetricsUnavailable", message="no ready replica")


class VariantReadings(Struct, frozen=True, gc=False):
    """One variant: where it stands, its Ready pods, and how far they can be believed.

    Attributes:
        key: identity of the variant.
        progress: where it stands.
        replicas: its Ready pods, sorted by name.
        coverage: how many of them report KV usage and queue length freshly.
        verdict: whether there are metrics to decide on, in words.
        kv: the KV usage of each of them, None where it is not fresh.
        queue: the queue length of each of them, None where it is not fresh.
        thresholds: those of the model.

    """

    key: VariantKey
    progress: Progress
    replicas: tuple[ReplicaMetrics, ...]
    coverage: Coverage = _NONE_READY
    verdict: MetricsVerdict = _NOTHING_READ
    kv: Sequence[float | None] = ()
    queue: Sequence[float | None] = ()
    thresholds: SaturationPolicy = _USUAL

    @property
    def spare_kv(self) -> float | None:
        """Mean spare of the KV cache, up to its threshold; None when no replica reports it."""
        return _spare(self.kv, self.thresholds.kv_cache_threshold)

    @property
    def room(self) -> tuple[float, float]:
        """Mean spares of KV cache and queue, to order variants of the same cost; an unknown one counts as none."""
        kv, queue = self.spare_kv, _spare(self.queue, self.thresholds.queue_length_threshold)
        return (-math.inf if kv is None else kv, -math.inf if queue is None else queue)

    @property
    def unread(self) -> int:
        """Ready replicas without both signals fresh, apart from those that only just came."""
        return self.progress.ready - self.coverage.fresh - self.progress.silent


class ModelReadings(Struct, frozen=True, gc=False):
    """One model that runs.

    Attributes:
        key: the model.
        policy: its thresholds.
        variants: those that may be given replicas, sorted by key: all that run, and those at zero that their scaler can
            bring back (its minimum is 0).
        asleep: the other variants at zero. What is known of their replicas may be of use.
        absence: why nothing at all is known, None when at least one replica reports.
        complete: whether every replica of the model is known, and reports KV usage and queue length freshly.
        queue: what the endpoint pickers hold back, None where they were not asked.
        counts: its requests, None where they were not counted.
        memory: what earlier cycles left.
        failure: why its samples could not be collected, None when they could.

    """

    key: ModelKey
    policy: SaturationPolicy
    variants: tuple[VariantReadings, ...]
    asleep: tuple[VariantReadings, ...]
    absence: Absence | None
    complete: bool
    queue: SchedulerQueue | None
    counts: RequestCounts | None
    memory: ModelMemory
    failure: str | None


def believe(
    snapshot: Snapshot, memory: Memory, policy: Policy, now: float
) -> tuple[list[ModelReadings], list[Variant]]:
    """Return the models that run, sorted, and the variants at zero that take no part in any of them.

    The order of listing does not matter. ``now`` is in seconds since the epoch.
    """
    pods = _by_variant(snapshot.replicas)
    failures: dict[str, str] = {}
    for failure in snapshot.failures:
        for namespace in failure.namespaces:
            failures[namespace] = min(failure.message, failures.get(namespace, failure.message))
    models: dict[ModelKey, list[Variant]] = {}
    for variant in sorted(snapshot.variants, key=attrgetter("key")):
        models.setdefault(variant.model, []).append(variant)
    entries, past = memory.by_key(), {entry.key: entry for entry in memory.models}
    queues = {queue.model: queue for queue in snapshot.queues}
    counts = {each.model: each for each in snapshot.request_counts}
    bounded: dict[int, tuple[SaturationPolicy, SaturationPolicy]] = {}
    running: list[ModelReadings] = []
    sleeping: list[Variant] = []
    for key, variants in sorted(models.items(), key=_key):
        if not any(variant.active for variant in variants):
            sleeping += variants
            continue
        thresholds = policy.saturation_for(key)
        if id(thresholds) not in bounded:
            bounded[id(thresholds)] = thresholds, bounded_policy(thresholds)
        thresholds = bounded[id(thresholds)][1]
        moment = Moment(now, thresholds.transition_deadline_seconds)
        failure_of = failures.get(key.namespace)
        taking_part: list[VariantReadings] = []
        asleep: list[VariantReadings] = []
        for variant in variants:
            name = variant.key
            each = _read(variant, pods.get(name, ()), entries.get(name), moment, thresholds, failure_of)
            (taking_part if variant.active or variant.bounds.minimum == 0 else asleep).append(each)
        sleeping += [each.progress.variant for each in asleep]
        absent = None
        if failure_of is not None or not taking_part or not taking_part[0].coverage.fresh:
            absent = absence([replica for each in taking_part for replica in each.replicas], failure=failure_of)
        running.append(
            ModelReadings(
                key,
                thresholds,
                tuple(taking_part),
                tuple(asleep),
                absent,
                _complete(taking_part),
                queues.get(key) if queues else None,
                counts.get(key) if counts else None,
                past.get(key) or ModelMemory(key),
                failure_of,
            )
        )
    return running, sleeping


def _key(item: tuple[ModelKey, object]) -> ModelKey:
    return item[0]


def _by_variant(replicas: Sequence[ReplicaMetrics]) -> dict[VariantKey, tuple[ReplicaMetrics, ...]]:
    """Return the pods of each variant, sorted by name. In a snapshot in its canonical order they stand so already."""
    found: dict[VariantKey, tuple[ReplicaMetrics, ...]] = {}
    start, owners = 0, [replica.variant for replica in replicas]
    for owner, group in groupby(owners):
        end = start + len(list(group))
        found[owner] = found.get(owner, ()) + tuple(replicas[start:end])
        start = end
    for owner, pods in found.items():
        names = [pod.pod for pod in pods]
        if sorted(names) != names:
            found[owner] = tuple(sorted(pods, key=lambda pod: pod.pod))
    return found


def _read(
    variant: Variant,
    pods: tuple[ReplicaMetrics, ...],
    entry: VariantMemory | None,
    moment: Moment,
    policy: SaturationPolicy,
    failure: str | None,
) -> VariantReadings:
    fresh = SampleState.FRESH
    kv = [sample.value if (sample := pod.kv_usage).state is fresh else None for pod in pods]
    queue = [sample.value if (sample := pod.queue_length).state is fresh else None for pod in pods]
    progress = progress_of(variant, replicas=pods, entry=entry, moment=moment)
    if failure is None and pods and None not in kv and None not in queue:
        return VariantReadings(variant.key, progress, pods, *_all_report(len(pods)), kv, queue, policy)
    covered = coverage(pods)
    return VariantReadings(variant.key, progress, pods, covered, verdict(pods, covered, failure), kv, queue, policy)


@lru_cache(maxsize=1024)
def _all_report(count: int) -> tuple[Coverage, MetricsVerdict]:
    words = f"{count} of {count} replicas report fresh metrics"
    return Coverage(count, count), MetricsVerdict(available=True, reason="MetricsAvailable", message=words)


def _spare(values: Sequence[float | None], threshold: float) -> float | None:
    spares = [threshold - value if value < threshold else 0.0 for value in values if value is not None]
    return math.fsum(spares) / len(spares) if spares else None


def _complete(variants: Sequence[VariantReadings]) -> bool:
    ready = 0
    for each in variants:
        progress = each.progress
        ready += progress.ready
        if each.coverage.fresh != progress.ready or not progress.countable:
            return False
    return ready > 0


def absence(replicas: Sequence[ReplicaMetrics], *, failure: str | None) -> Absence | None:
    """Return why replicas say nothing at all, None when at least one of them reports.

    ``failure`` is the message of a failed collection.
    """
    if failure is not None:
        return Absence(Reason.PROMETHEUS_ERROR, failure)
    if not replicas:
        return Absence(Reason.NO_READY_REPLICAS, "no ready replica")
    if any(replica.reports for replica in replicas):
        return None
    states = {sample.state for _, _, sample in _samples(replicas)}
    state = next(state for state in _HOLDS if state in states)
    words = f"0 of {len(replicas)} replicas report fresh metrics; {_example(replicas, state)}"
    return Absence(_HOLDS[state], words)


def coverage(replicas: Sequence[ReplicaMetrics]) -> Coverage:
    """Return how many of the Ready replicas report both signals freshly."""
    return Coverage(sum([replica.complete for replica in replicas]), len(replicas))


def verdict(replicas: Sequence[ReplicaMetrics], fresh: Coverage, failure: str | None) -> MetricsVerdict:
    """Return whether a variant has metrics to decide on, with the first gap in words."""
    if fresh.complete and failure is None:
        return _all_report(len(replicas))[1]
    absent = absence(replicas, failure=failure)
    if absent is not None:
        return MetricsVerdict(available=False, reason=_VERDICTS[absent.reason], message=absent.message)
    words = f"{fresh.fresh} of {fresh.expected} replicas report fresh metrics; {_example(replicas, None)}"
    return MetricsVerdict(available=True, reason="MetricsAvailable", message=words)


def _samples(replicas: Iterable[ReplicaMetrics]) -> Iterable[tuple[str, str, Sample]]:
    for replica in replicas:
        yield replica.pod, "KV usage", replica.kv_usage
        yield replica.pod, "queue length", replica.queue_length


def _example(replicas: Iterable[ReplicaMetrics], wanted: SampleState | None) -> str:
    """Describe the first sample in the wanted state (None: in any but fresh)."""
    pod, signal, sample = next(
        found
        for found in _samples(replicas)
        if found[2].state is wanted or (wanted is None and found[2].state is not SampleState.FRESH)
    )
    detail = f" ({sample.detail})" if sample.detail else ""
    return f"{pod}: {signal} {sample.state.value}{detail}"
