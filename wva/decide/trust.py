"""Step 1: which samples can be believed. Samples in, readings per replica, variant and model out.

A sample is fresh, stale, missing or invalid. Only a fresh one is a reading. This step does not judge the size of a
value, and never puts a number in place of a missing one: unknown is not idle.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Final

from msgspec import Struct

from wva.decide.amounts import bounded_policy
from wva.decide.progress import Moment, Progress, progress_of
from wva.model.decision import MetricsVerdict, Reason
from wva.model.in_time import ServedLately
from wva.model.memory import Memory, ModelMemory, VariantMemory
from wva.model.metrics import Coverage, ReplicaMetrics, Sample, SampleState
from wva.model.objectives import AskedObjectives
from wva.model.policy import Compatibility, Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import RequestCounts, SchedulerQueue, Snapshot
from wva.model.trouble import Absence
from wva.model.usual import UsualDemand
from wva.model.variant import ModelKey, Variant, VariantKey, by_role

_UNAVAILABLE: Final = {Reason.NO_READY_REPLICAS, Reason.METRICS_MISSING}
"""With these reasons there is no sample, so the condition says MetricsUnavailable. Otherwise it says the reason."""

_HOLDS: Final = {
    SampleState.STALE: Reason.METRICS_STALE,
    SampleState.INVALID: Reason.METRICS_INVALID,
    SampleState.MISSING: Reason.METRICS_MISSING,
}
"""The state that is nearest to a usable sample comes first: of several causes, the message names the first."""

_SELDOM_SECONDS: Final = 60.5
"""The condition names a scrape interval that is longer than a minute (seconds)."""
SCRAPED_SELDOM: Final = "Prometheus scrapes them every"
"""How the words about such an interval begin."""

_NOTHING_READ: Final = MetricsVerdict(available=False, reason="MetricsUnavailable", message="no ready replica")


class VariantReadings(Struct, frozen=True, gc=False):
    """One variant: its progress, its Ready pods, and how far their samples can be believed."""

    key: VariantKey
    progress: Progress
    replicas: tuple[ReplicaMetrics, ...]  # its Ready pods that are awake, sorted by name
    coverage: Coverage = Coverage(0, 0)  # how many of them report KV usage and queue length freshly
    verdict: MetricsVerdict = _NOTHING_READ  # whether there are metrics to decide on, in words
    kv: Sequence[float | None] = ()  # the KV usage of each pod, None if it is not fresh
    queue: Sequence[float | None] = ()  # the queue length of each pod, None if it is not fresh
    thresholds: SaturationPolicy = SaturationPolicy()  # those of the model
    dormant: tuple[ReplicaMetrics, ...] = ()  # its Ready pods whose engines sleep, sorted by name

    @property
    def ready_pods(self) -> tuple[ReplicaMetrics, ...]:
        """Its Ready pods, those that are awake first."""
        return (*self.replicas, *self.dormant)

    @property
    def spare_kv(self) -> float | None:
        """Mean spare of the KV cache, up to its threshold; None when no replica reports it."""
        return _spare(self.kv, self.thresholds.kv_cache_threshold)

    @property
    def room(self) -> tuple[float, float]:
        """Mean spares of KV cache and queue, to order variants of the same cost; an unknown spare is the smallest."""
        kv, queue = self.spare_kv, _spare(self.queue, self.thresholds.queue_length_threshold)
        return (-math.inf if kv is None else kv, -math.inf if queue is None else queue)

    @property
    def rank(self) -> tuple[float, ...]:
        """Order of variants of equal price: one with waiting replicas, or little room, grows last and shrinks first."""
        kv, queue = self.room
        return self.progress.waiting, -kv, -queue

    @property
    def unread(self) -> int:
        """How many Ready replicas lack a fresh signal, apart from new ones that report nothing yet."""
        return self.progress.ready - self.coverage.fresh - self.progress.silent


class ModelReadings(Struct, frozen=True, gc=False):
    """One model that runs, or the variants of one of its roles."""

    key: ModelKey
    policy: SaturationPolicy  # its thresholds
    variants: tuple[VariantReadings, ...]  # by key: all that run, or are at zero where their scaler has the minimum 0
    asleep: tuple[VariantReadings, ...]  # the other variants at zero, which get no replicas
    absence: Absence | None  # why nothing at all is known, None when at least one replica reports
    complete: bool  # whether every replica of the model is known, and reports KV usage and queue length freshly
    queue: SchedulerQueue | None  # the requests that pickers hold back, None where WVA did not ask for them
    counts: RequestCounts | None  # its requests, None where they were not counted
    memory: ModelMemory  # what earlier cycles left
    failure: str | None  # why its samples could not be collected, None when they could
    others: tuple[str, ...] = ()  # the roles of other variants of the model, sorted
    served: ServedLately | None = None  # what the users of the model got lately, None if that is not known
    asked: tuple[AskedObjectives, ...] = ()  # what other variants of the model, in other roles, ask for
    usual: UsualDemand | None = None  # what usually comes at this time of day, None if that is not known


class _Evidence(Struct, frozen=True, gc=False):
    """What a snapshot and the memory tell of variants, and of namespaces."""

    pods: Mapping[VariantKey, Sequence[ReplicaMetrics]]  # Ready pods, in any order
    failures: Mapping[str, str]  # why the samples of a namespace could not be collected
    entries: Mapping[VariantKey, VariantMemory]
    slowest: Mapping[VariantKey, float]  # the longest start (seconds) of the last ones, where several are known


def believe(
    snapshot: Snapshot, memory: Memory, policy: Policy, now: float
) -> tuple[list[ModelReadings], list[Variant]]:
    """Return the models that run, sorted, and the variants at zero that take part in none of them, in any order."""
    models: dict[ModelKey, list[Variant]] = {}
    for variant in sorted(snapshot.variants, key=attrgetter("key")):
        models.setdefault(variant.model, []).append(variant)
    if policy.compatibility is not Compatibility.V0_5:  # which knows no roles
        models = by_role(models)
    several: dict[ModelKey, list[str]] = {}
    for key in sorted(models):
        if key.role:
            several.setdefault(key.whole, []).append(key.role)
    evidence, past = _evidence(snapshot, memory), {entry.key: entry for entry in memory.models}
    queues = {queue.model: queue for queue in snapshot.queues}
    counts = {entry.model: entry for entry in snapshot.request_counts}
    served = {entry.model: entry for entry in snapshot.served}
    usual = {entry.model: entry for entry in snapshot.usual}
    bounded: dict[int, tuple[SaturationPolicy, SaturationPolicy]] = {}
    running: list[ModelReadings] = []
    sleeping: list[Variant] = []
    for key in sorted(models):
        variants = models[key]
        if not any(variant.active for variant in variants):
            sleeping += variants
            continue
        thresholds = policy.saturation_for(key)
        if id(thresholds) not in bounded:
            bounded[id(thresholds)] = thresholds, bounded_policy(thresholds)
        thresholds = bounded[id(thresholds)][1]
        failure = evidence.failures.get(key.namespace)
        moment = Moment(now, thresholds.transition_deadline_seconds)
        taking_part: list[VariantReadings] = []
        asleep: list[VariantReadings] = []
        for variant in variants:
            part = taking_part if variant.active or variant.bounds.minimum == 0 else asleep
            part.append(_readings(variant, variants, evidence, thresholds, failure, moment))
        sleeping += [readings.progress.variant for readings in asleep]
        absent = None
        if failure is not None or not taking_part or not taking_part[0].coverage.fresh:
            absent = absence([replica for readings in taking_part for replica in readings.replicas], failure=failure)
        running.append(
            ModelReadings(
                key,
                thresholds,
                tuple(taking_part),
                tuple(asleep),
                absent,
                _complete(taking_part),
                queues.get(key.whole) if queues else None,
                counts.get(key.whole) if counts else None,
                past.get(key) or ModelMemory(key),
                failure,
                tuple([role for role in several.get(key.whole, ()) if role != key.role]),
                served.get(key.whole) if served else None,
                _asked_beside(key, several, models),
                usual.get(key.whole) if usual else None,
            )
        )
    return running, sleeping


def _evidence(snapshot: Snapshot, memory: Memory) -> _Evidence:
    """Return what a snapshot and the memory tell, by variant and namespace."""
    pods: dict[VariantKey, list[ReplicaMetrics]] = {}
    for owner, group in groupby(snapshot.replicas, key=attrgetter("variant")):
        pods.setdefault(owner, []).extend(group)
    failures: dict[str, str] = {}
    for failed in snapshot.failures:
        for namespace in failed.namespaces:
            failures[namespace] = min(failed.message, failures.get(namespace, failed.message))
    # A single start says little about the next.
    slowest = {key: max(starts) for entry in memory.foreseen for key, starts in entry.start_ups if len(starts) > 1}
    return _Evidence(pods, failures, memory.by_key(), slowest)


def _readings(
    variant: Variant,
    of_model: Sequence[Variant],
    evidence: _Evidence,
    thresholds: SaturationPolicy,
    failure: str | None,
    moment: Moment,
) -> VariantReadings:
    """Return how far the samples of a variant can be believed; ``failure``: why they could not be collected."""
    fresh, key = SampleState.FRESH, variant.key
    ready_pods = sorted(evidence.pods.get(key, ()), key=attrgetter("pod"))
    dormant = tuple([pod for pod in ready_pods if pod.dormant])
    replicas = tuple([pod for pod in ready_pods if not pod.dormant] if dormant else ready_pods)
    kv = [sample.value if (sample := pod.kv_usage).state is fresh else None for pod in replicas]
    length = [sample.value if (sample := pod.queue_length).state is fresh else None for pod in replicas]
    progress = progress_of(
        variant,
        replicas=replicas,
        entry=evidence.entries.get(key),
        moment=moment,
        dormant=len(dormant),
        slowest=evidence.slowest[key] if key in evidence.slowest and _replaceable(variant, of_model) else 0.0,
    )
    if failure is None and replicas and None not in kv and None not in length and not _seldom(replicas):
        covered, words = _all_report(len(replicas))
    else:
        covered, words = reported(replicas, failure)
    return VariantReadings(key, progress, replicas, covered, words, kv, length, thresholds, dormant)


def _complete(variants: Sequence[VariantReadings]) -> bool:
    """Tell whether every replica of these variants is known and reports freshly, and there is one."""
    return any(readings.progress.ready for readings in variants) and all(
        readings.coverage.fresh == readings.progress.ready and readings.progress.countable for readings in variants
    )


def _replaceable(variant: Variant, of_model: Sequence[Variant]) -> bool:
    """Tell whether another variant of the model may have more replicas."""
    return any(
        other is not variant and other.bounds.clamp(other.current_replicas + 1) > other.current_replicas
        for other in of_model
    )


def _asked_beside(
    key: ModelKey, several: Mapping[ModelKey, Sequence[str]], models: Mapping[ModelKey, Sequence[Variant]]
) -> tuple[AskedObjectives, ...]:
    """Return what the variants of a model in other roles ask for: objectives are those of the model."""
    if key.whole not in several:
        return ()
    others = [replace(key, role=role) for role in ("", *several[key.whole]) if role != key.role]
    return tuple([variant.asked for other in others for variant in models.get(other, ()) if variant.asked is not None])


@lru_cache(maxsize=1024)
def _all_report(count: int) -> tuple[Coverage, MetricsVerdict]:
    words = f"{count} of {count} replicas report fresh metrics"
    return Coverage(count, count), MetricsVerdict(available=True, reason="MetricsAvailable", message=words)


def _spare(values: Sequence[float | None], threshold: float) -> float | None:
    spares = [threshold - value if value < threshold else 0.0 for value in values if value is not None]
    return math.fsum(spares) / len(spares) if spares else None


def absence(replicas: Sequence[ReplicaMetrics], *, failure: str | None) -> Absence | None:
    """Return why no replica reports anything, None when one reports; ``failure``: why the collection failed."""
    if failure is not None:
        return Absence(Reason.PROMETHEUS_ERROR, failure)
    if not replicas:
        return Absence(Reason.NO_READY_REPLICAS, "no ready replica")
    if any(replica.reports for replica in replicas):
        return None
    states = {sample.state for _, _, sample in _samples(replicas)}
    state = next(state for state in _HOLDS if state in states)
    words = f"0 of {len(replicas)} replicas report fresh metrics; {_example(replicas, {state})}"
    return Absence(_HOLDS[state], words)


def reported(replicas: Sequence[ReplicaMetrics], failure: str | None) -> tuple[Coverage, MetricsVerdict]:
    """Return how many replicas report both signals freshly, and whether this will do, with the first gap in words."""
    covered = Coverage(sum([replica.complete for replica in replicas]), len(replicas))
    if covered.complete and failure is None:
        covered, verdict = _all_report(len(replicas))
        return covered, replace(verdict, message=verdict.message + _seldom(replicas))
    absent = absence(replicas, failure=failure)
    if absent is not None:
        reason = "MetricsUnavailable" if absent.reason in _UNAVAILABLE else absent.reason.value
        return covered, MetricsVerdict(available=False, reason=reason, message=absent.message)
    words = f"{covered.fresh} of {covered.expected} replicas report fresh metrics"
    if not covered.fresh:
        part = sum([replica.reports for replica in replicas])
        words = f"{part} of {covered.expected} replicas report only a part of their metrics"
    words += f"; {_example(replicas, _HOLDS)}{_seldom(replicas)}"
    return covered, MetricsVerdict(available=True, reason="MetricsAvailable", message=words)


def _seldom(replicas: Sequence[ReplicaMetrics]) -> str:
    """Return the scrape interval in words if it is longer than a minute, else nothing."""
    longest = max([replica.scrape_seconds or 0.0 for replica in replicas], default=0.0)
    if longest <= _SELDOM_SECONDS:
        return ""
    return f"; {SCRAPED_SELDOM} {longest:.0f} s, so changes of load are seen late"


def _samples(replicas: Iterable[ReplicaMetrics]) -> Iterable[tuple[str, str, Sample]]:
    for replica in replicas:
        yield replica.pod, "KV usage", replica.kv_usage
        yield replica.pod, "queue length", replica.queue_length


def _example(replicas: Iterable[ReplicaMetrics], states: Collection[SampleState]) -> str:
    """Describe the first sample that is in one of the states."""
    pod, signal, sample = next(row for row in _samples(replicas) if row[2].state in states)
    detail = f" ({sample.detail})" if sample.detail else ""
    return f"{pod}: {signal} {sample.state.value}{detail}"
