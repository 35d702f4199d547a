"""What earlier cycles and the age of the replicas add to the present samples, and what the next cycle must know.

A sample is the highest value of the last minute. It shows how full a replica has been, not how full it is, nor that the
controller has already reacted. So the peaks of a cycle are compared with those of the cycle before:

- if the peaks of the same replicas rise, there is more load than they can take;
- if they fall, the replicas work off a backlog;
- if they stay while new replicas take over, it is not known yet.

New replicas get every new request and fill up at first, so their reports of the first seconds say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from wva.decide.analyze.saturation import VariantReport, evidence_of
from wva.decide.assessment import GROWTH_SPACING_SECONDS, History, ModelAssessment, Pressure
from wva.decide.spare import Rise
from wva.model.decision import Decision, Reason
from wva.model.memory import ModelMemory, PodPeak, Shrink
from wva.model.metrics import ReplicaMetrics
from wva.model.policy import SaturationPolicy

FILLING_SECONDS: Final = 20.0
"""How long a replica that became Ready fills up."""

REGRET_SECONDS: Final = 600.0
"""A model that wants to grow so soon after a shrink should not have shrunk."""

REGRETTED_SECONDS: Final = 3600.0
"""How long that is remembered."""

_NOTICEABLE: Final = 0.1
"""The share of a threshold by which a mean has to change; as for an HPA, less is no change."""


def recall(reports: Sequence[VariantReport], memory: ModelMemory, *, policy: SaturationPolicy, now: float) -> History:
    """Return what is known of a model beyond its present samples. ``now`` is in seconds since the epoch."""
    reporting = [replica for report in reports for replica in report.replicas if replica.reports]
    filled = [replica for replica in reporting if not _filling(replica, now)] or reporting
    before = {peak.pod: peak for peak in memory.peaks}
    regretted = memory.regretted
    return History(
        filling=len(reporting) - len(filled),
        told=evidence_of(filled, policy),
        pressure=_pressure(filled, before, policy),
        rise=_rise(filled, before),
        regretted=None if regretted is None or now - regretted.at >= REGRETTED_SECONDS else regretted,
    )


def remember(
    model: ModelAssessment,
    decisions: Sequence[Decision],
    reports: Sequence[VariantReport],
    *,
    before: ModelMemory,
    now: float,
) -> ModelMemory:
    """Return what the next cycle must know of a model; ``decisions`` are those on its variants.

    While replicas that were just asked for are awaited, the peaks stay: what rises meanwhile has not been answered.
    """
    awaited = before.peaks and model.in_flight_seconds < GROWTH_SPACING_SECONDS
    shrunk, regretted = before.shrunk, model.history.regretted
    reasons = {decision.reason for decision in decisions}
    if Reason.SCALE_DOWN in reasons:
        left = sum(decision.desired for decision in decisions)
        shrunk = Shrink(left, model.kv.used, now)
    elif shrunk is not None and (Reason.SHRINK_WITHDRAWN in reasons or _wants_to_grow(model)):
        if now - shrunk.at < REGRET_SECONDS:
            regretted = replace(shrunk, at=now)
        shrunk = None
    return ModelMemory(model.key, before.peaks if awaited else _peaks(reports, now), shrunk, regretted)


def _wants_to_grow(model: ModelAssessment) -> bool:
    return model.hold is None and model.growth_wish() is not None


def _filling(replica: ReplicaMetrics, now: float) -> bool:
    return replica.ready_since is not None and now - replica.ready_since < FILLING_SECONDS


def _peaks(reports: Iterable[VariantReport], now: float) -> tuple[PodPeak, ...]:
    peaks = (
        PodPeak(replica.pod, replica.kv_usage.fresh_value, replica.queue_length.fresh_value)
        for report in reports
        for replica in report.replicas
        if replica.reports and not _filling(replica, now)
    )
    return tuple(sorted(peaks, key=lambda peak: peak.pod))


Pairs = list[tuple[float, float]]
"""Values of the same replicas: now, and before."""


def _pairs(replicas: Iterable[ReplicaMetrics], before: Mapping[str, PodPeak]) -> tuple[Pairs, Pairs]:
    known = [(replica, before[replica.pod]) for replica in replicas if replica.pod in before]
    kv = [(replica.kv_usage.fresh_value, peak.kv_usage) for replica, peak in known]
    queue = [(replica.queue_length.fresh_value, peak.queue_length) for replica, peak in known]
    return _complete(kv), _complete(queue)


def _complete(pairs: Iterable[tuple[float | None, float | None]]) -> Pairs:
    return [(now, before) for now, before in pairs if now is not None and before is not None]


def _pressure(
    replicas: Sequence[ReplicaMetrics], before: Mapping[str, PodPeak], policy: SaturationPolicy
) -> Pressure | None:
    """Compare what counts of the signals: KV usage up to its threshold, queues from theirs on.

    That the older replicas hold less once others have joined them does not mean that less has come.
    """
    kv, queue = _pairs(replicas, before)
    if not kv and not queue:
        return None
    full, long = policy.kv_cache_threshold, policy.queue_length_threshold
    changes = (
        _share(_mean_change((min(now, full), min(then, full)) for now, then in kv), full),
        _share(_mean_change((max(now, long), max(then, long)) for now, then in queue), long),
    )
    if max(changes) >= _NOTICEABLE:
        return Pressure.RISES
    joined = any(replica.pod not in before for replica in replicas)
    return Pressure.FALLS if min(changes) <= -_NOTICEABLE and not joined else Pressure.LASTS


def _share(change: float, threshold: float) -> float:
    """Return a change as a share of a threshold; of a threshold of 0 any change is infinitely much."""
    if threshold > 0:
        return change / threshold
    return math.copysign(math.inf, change) if change else 0.0


def _rise(replicas: Iterable[ReplicaMetrics], before: Mapping[str, PodPeak]) -> Rise:
    kv, queue = _pairs(replicas, before)
    return Rise(*(_mean_change((max(now, then), then) for now, then in pairs) for pairs in (kv, queue)))


def _mean_change(pairs: Iterable[tuple[float, float]]) -> float:
    changes = [now - before for now, before in pairs]
    return math.fsum(changes) / len(changes) if changes else 0.0
