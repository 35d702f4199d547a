"""The token analyzer: what the replicas of a model hold and queue, against what they carry. All amounts in tokens.

``analyze_tokens`` gives a ``ModelCapacity`` for the optimizer, and what was learned for the next cycle. It is pure.

Growth needs some evidence. A shrink needs all of it: every replica must be judged, and no change may be on its way. A
replica that cannot be judged counts as busy as the others, never as idle.

A process may know nothing of a model yet, because it has just taken over or because the model is new. Then it lacks the
learned k2, and would take engines that are limited by computation for larger than they are. So for
``RELEARNING_SECONDS`` nothing shrinks, estimates from arguments are left out, and growth takes one replica at a time.
Afterwards an estimate, or a k2 seen less than ``FIRM_OBSERVATIONS`` times, still moves one replica at a time, up and
down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from wva.decide.analyze import tokens_learning as learning
from wva.decide.analyze import tokens_readings as readings
from wva.decide.analyze.evidence import absence
from wva.decide.analyze.saturation import VariantReport
from wva.decide.analyze.tokens_arithmetic import Workload, left_over, median, missing
from wva.decide.analyze.tokens_learning import ReplicaCapacity
from wva.decide.analyze.tokens_readings import Queued, VariantReadings
from wva.decide.wording import replicas as replicas_in_words
from wva.model.absence import Absence
from wva.model.capacity import (
    CapacityBasis,
    CapacityRecord,
    LearnedCapacity,
    ModelCapacity,
    VariantCapacity,
)
from wva.model.decision import Reason
from wva.model.policy import SaturationPolicy
from wva.model.snapshot import SchedulerQueue
from wva.model.variant import UNKNOWN_ACCELERATOR, ModelKey, VariantKey

RELEARNING_SECONDS: Final = 300.0
FIRM_OBSERVATIONS: Final = 3


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """What is known of one model in a cycle.

    ``reports`` are its variants, also those at zero replicas. ``failure`` says why samples could not be collected, None
    when they could.
    """

    reports: Sequence[VariantReport]
    queue: SchedulerQueue | None = None
    failure: str | None = None


def analyze_tokens(
    key: ModelKey, *, inputs: TokenInputs, policy: SaturationPolicy, learned: LearnedCapacity | None, now: float
) -> tuple[ModelCapacity, LearnedCapacity]:
    """Return what the model needs or can spare, and what is known of it afterwards.

    ``learned`` is what the last cycle left, None when there is nothing; ``now`` is in seconds since the epoch.
    """
    known = (learned or LearnedCapacity(key, now)).without_old(now)
    inputs = replace(inputs, reports=sorted(inputs.reports, key=lambda report: report.progress.variant.key))
    workload = readings.workload_of([replica for report in inputs.reports for replica in report.replicas])
    model = tuple(readings.read(report, workload) for report in inputs.reports)
    cycle = _Cycle(key, inputs, policy, workload, model, relearning=now - known.since < RELEARNING_SECONDS)
    return cycle.analyze(known, now)


@dataclass(frozen=True, slots=True)
class _Cycle:
    """One model in one cycle, its samples read."""

    key: ModelKey
    inputs: TokenInputs
    policy: SaturationPolicy
    workload: Workload | None
    model: tuple[VariantReadings, ...]
    relearning: bool

    def analyze(self, known: LearnedCapacity, now: float) -> tuple[ModelCapacity, LearnedCapacity]:
        """Learn, then judge."""
        histories = learning.learn(
            {history.kind: history for history in known.histories}, self.model, self.policy, now=now
        )
        estimator = learning.Estimator(histories, self.policy, derive=not self.relearning)
        live = {variant.variant.key: estimator.capacity(variant) for variant in self.model if variant.readings}
        records = self._records(known, live, now)
        capacities = [
            live.get(variant.variant.key)
            or learning.idle(variant.variant, records, workload=self.workload, policy=self.policy)
            for variant in self.model
        ]
        result = LearnedCapacity(
            self.key,
            known.since,
            tuple(records[variant] for variant in sorted(records)),
            tuple(histories[kind] for kind in sorted(histories)),
        )
        return self._judge(capacities), result

    def _records(
        self, known: LearnedCapacity, live: dict[VariantKey, ReplicaCapacity], now: float
    ) -> dict[VariantKey, CapacityRecord]:
        records = {record.variant: record for record in known.records}
        for seen in self.model:
            variant = seen.variant
            sizes = [reading.kv_tokens for reading in seen.readings]
            found = (live[variant.key], median(sizes)) if sizes else None
            record = learning.updated_record(records.pop(variant.key, None), variant, found=found, now=now)
            if record is not None:
                records[variant.key] = record
        return records

    def _judge(self, capacities: Sequence[ReplicaCapacity]) -> ModelCapacity:
        waiting = readings.queued(self.inputs.queue, self.workload)
        demands = readings.totals(self.model, lambda reading: reading.demand)
        variants = tuple(
            _variant_capacity(seen, capacity, demand)
            for seen, capacity, demand in zip(self.model, capacities, demands, strict=True)
        )
        capacity = ModelCapacity(self.key, variants, demand=math.fsum([*demands, waiting.tokens]))
        hold = self._absence(waiting)
        if hold is not None:
            return replace(capacity, hold=hold, objection=hold.message, summary=hold.message)
        anticipated, supply = capacity.anticipated, capacity.supply
        peak = math.fsum([*readings.totals(self.model, lambda reading: reading.peak_demand), waiting.tokens])
        growth = readings.growth_demand(self.model, waiting.tokens)
        required = missing(demand=growth, anticipated=anticipated, policy=self.policy)
        spare = left_over(demand=peak, supply=supply, policy=self.policy)
        objection = self._objection(waiting)
        doubtful = [one for seen, one in zip(self.model, capacities, strict=True) if seen.ready and _doubtful(one)]
        unsure = self.relearning or any(one.basis is not CapacityBasis.KV_CACHE for one in doubtful)
        if self._blind(capacities):
            required = 0.0
        return replace(
            capacity,
            required=_at_most_one_replica(required, variants) if unsure else required,
            spare=0.0 if objection else spare,
            objection=objection,
            growth_limit=1 if unsure else None,
            shrink_limit=1 if doubtful else max(1, self._ready // 2),
            summary=self._summary(capacity),
        )

    def _absence(self, waiting: Queued) -> Absence | None:
        """Return why nothing can be said, None when something can: what waits asks for replicas even without any."""
        samples = [replica for report in self.inputs.reports for replica in report.replicas]
        absent = absence(samples, failure=self.inputs.failure)
        if absent is None and not any(seen.readings for seen in self.model):
            words = f"none of {replicas_in_words(len(samples))} can be judged in tokens"
            absent = Absence(Reason.METRICS_INCOMPLETE, f"{words}; {readings.gap(self.inputs.reports)}")
        if absent is not None and absent.reason is Reason.NO_READY_REPLICAS and waiting.tokens > 0:
            return None
        return absent

    def _objection(self, waiting: Queued) -> str:
        """Return in words what speaks against fewer replicas beside the numbers, empty for nothing."""
        if self.relearning:
            return f"capacity is being learned again; nothing shrinks for {RELEARNING_SECONDS:g} s"
        unread = sum(seen.unread for seen in self.model)
        if unread:
            return f"{unread} of {replicas_in_words(self._ready)} unread; {readings.gap(self.inputs.reports)}"
        if not all(seen.complete for seen in self.model):
            return "replicas are on their way"
        if any(reading.partial for seen in self.model for reading in seen.readings):
            return "the length of the waiting requests is not known"
        return waiting.doubt

    def _blind(self, capacities: Sequence[ReplicaCapacity]) -> bool:
        """Whether replicas of unknown capacity are on their way, or unseen while learning.

        Or none serves yet: what is on its way has to do until it is known what it does.
        """
        if not self._ready and any(seen.pending for seen in self.model):
            return True
        for seen, capacity in zip(self.model, capacities, strict=True):
            unknown = seen.pending > 0 and capacity.tokens <= 0
            unseen = self.relearning and not seen.readings and max(seen.ready, seen.pending) > 0
            if unknown or unseen:
                return True
        return False

    @property
    def _ready(self) -> int:
        return sum(seen.ready for seen in self.model)

    def _summary(self, capacity: ModelCapacity) -> str:
        judged = sum(len(seen.readings) for seen in self.model)
        words = f"{judged} of {replicas_in_words(self._ready)} judged, demand {capacity.demand:.0f} tokens"
        if not capacity.supply:
            return f"{words}, no supply"
        return f"{words} of {capacity.supply:.0f} (utilization {capacity.utilization:.3g})"


def _doubtful(capacity: ReplicaCapacity) -> bool:
    """Whether k2 has not been seen often enough to be relied upon."""
    return capacity.observations < FIRM_OBSERVATIONS


def _at_most_one_replica(required: float, variants: Sequence[VariantCapacity]) -> float:
    """Cut what is required to what one replica of any variant carries."""
    return min([required, *(variant.per_replica for variant in variants if variant.per_replica > 0)])


def _variant_capacity(seen: VariantReadings, capacity: ReplicaCapacity, demand: float) -> VariantCapacity:
    variant = seen.variant
    return VariantCapacity(
        key=variant.key,
        accelerator=variant.accelerator or variant.status_accelerator or UNKNOWN_ACCELERATOR,
        cost=variant.cost,
        ready=seen.ready,
        pending=seen.pending,
        per_replica=float(capacity.tokens),
        demand=demand,
        gpus_per_replica=variant.gpus_per_replica,
        basis=capacity.basis,
    )
