"""One model of the queueing analyzer: from traffic and sized replicas to numbers, and what speaks against them.

A variant is sized with the parameters that were learned while it served, as soon as these are firm, else with the known
ones of its model and accelerator, so that a cold start can be sized. A variant of which neither is there gets no
opinion: it keeps its number, and what it answers is not asked of the others. The load is that of the model, and all of
its variants carry it together (departure: the original sized every variant for all of it, optimizer.md 8.1, item 12).

Growth stands on what is seen, a shrink on all of it: every replica judged, nothing on its way, parameters firm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from wva.decide.analyze.queueing_parameters import Known, key_of, known_parameters
from wva.decide.analyze.queueing_readings import ModelReading, QueueingInputs, VariantReading, gap
from wva.decide.queueing.cover import SHRINK_SHARE, Carrier, carried, cover
from wva.decide.queueing.objectives import Traffic, derived_target
from wva.decide.queueing.results import Sizing
from wva.decide.queueing.service import QUEUE_TO_BATCH, Queue, RequestSize
from wva.decide.queueing.targets import Target
from wva.decide.wording import replicas as replicas_in_words
from wva.model.absence import Absence
from wva.model.capacity import CapacityBasis, ModelCapacity, VariantCapacity
from wva.model.decision import Reason
from wva.model.policy import Policy, QueueingPolicy
from wva.model.queueing import ModelOpinion, QueueingMemory, VariantOpinion
from wva.model.service import ServiceTarget
from wva.model.variant import UNKNOWN_ACCELERATOR, VariantKey

UNIT: Final = "requests/s"


@dataclass(frozen=True, slots=True)
class ModelCase:
    """One model, its parameters found; ``known`` and ``queues`` have an entry per variant that can be sized."""

    inputs: QueueingInputs
    reading: ModelReading
    service: ServiceTarget | None
    target: Target
    traffic: Traffic | None
    known: dict[VariantKey, Known]

    @staticmethod
    def of(
        inputs: QueueingInputs,
        reading: ModelReading,
        *,
        settings: QueueingPolicy,
        policy: Policy,
        memory: QueueingMemory,
    ) -> ModelCase:
        """Find targets and parameters of a model."""
        traffic = reading.traffic
        known = {
            variant.progress.variant.key: found
            for variant in reading.variants
            if traffic is not None
            and (found := known_parameters(variant, policy=policy, memory=memory, tuned=settings.tuning_enabled))
        }
        service = policy.service_target_for(inputs.key)
        target = _target(settings, service, known, traffic)
        return ModelCase(inputs, reading, service, target, traffic, known)

    @property
    def queues(self) -> list[Queue]:
        """A replica of every variant whose parameters are known."""
        if self.traffic is None:
            return []
        request = RequestSize(self.traffic.input_tokens, self.traffic.output_tokens)
        batches = {key: known.batch_for(request.output_tokens) for key, known in self.known.items()}
        return [
            Queue(known.parameters, request, batches[key], QUEUE_TO_BATCH * batches[key])
            for key, known in self.known.items()
        ]

    def judge(self, sizings: Sequence[Sizing]) -> ModelOpinion:
        """Return the opinion, still without what its replicas would do."""
        sized = dict(zip(self.known, sizings, strict=True))
        rates = {key: each.rate for key, each in sized.items() if each.rate is not None}
        hold = self._absence(sized)
        objection = self._objection(rates)
        base = self._opinion(objection if hold is None else hold.message)
        if hold is not None:
            return replace(
                base,
                variants=tuple(_silent(each, hold.message) for each in self.reading.variants),
                capacity=replace(self._capacity({}, 0.0, hold.message, hold.message), hold=hold),
                hold=hold,
                summary=hold.message,
            )
        demand = self._demand(rates)
        carriers = [_carrier(each, rates[key_of(each)]) for each in self.reading.variants if key_of(each) in rates]
        numbers, short = cover(demand, carriers, shrinks=not objection)
        summary = self._summary(demand, carried(carriers), short)
        return replace(
            base,
            variants=tuple(
                self._variant(each, sized.get(key_of(each)), numbers.get(key_of(each)), summary)
                for each in self.reading.variants
            ),
            capacity=self._capacity(rates or self._idle_rates(), demand, objection, summary),
            summary=summary,
        )

    def _opinion(self, objection: str) -> ModelOpinion:
        traffic = self.traffic
        return ModelOpinion(
            self.inputs.key,
            (),
            ModelCapacity(self.inputs.key, (), unit=UNIT),
            arrivals=self.reading.arrivals,
            input_tokens=0.0 if traffic is None else traffic.input_tokens,
            output_tokens=0.0 if traffic is None else traffic.output_tokens,
            ttft_milliseconds=self.target.ttft,
            itl_milliseconds=self.target.itl,
            tps=self.target.tps,
            class_name="" if self.service is None else self.service.class_name,
            objection=objection,
        )

    def _absence(self, sized: dict[VariantKey, Sizing]) -> Absence | None:
        """Return why there is no opinion at all, None when there is one."""
        inputs, reading = self.inputs, self.reading
        if inputs.failure is not None:
            return Absence(Reason.PROMETHEUS_ERROR, inputs.failure)
        if not any(report.replicas for report in inputs.reports):
            return Absence(Reason.NO_READY_REPLICAS, "no ready replica")
        problems = [each.problem for each in sized.values() if each.problem]
        words = ""
        if not any(variant.replicas for variant in reading.variants):
            words = f"no replica can be judged; {gap(inputs.reports)}"
        elif self.traffic is None and not reading.idle:
            words = "the size of the requests is not known yet"
        elif self.traffic is not None and not self.known:
            words = "no performance parameters, neither known nor learned"
        elif problems and len(problems) == len(sized):
            words = f"no variant can be sized: {problems[0]}"
        return Absence(Reason.METRICS_INCOMPLETE, words) if words else None

    def _objection(self, rates: dict[VariantKey, float]) -> str:
        """Return in words what speaks against fewer replicas beside the numbers, empty for nothing."""
        reading = self.reading
        unread = sum(variant.unread for variant in reading.variants)
        if unread:
            return f"{replicas_in_words(unread)} unread; {gap(self.inputs.reports)}"
        if not all(variant.settled for variant in reading.variants):
            return "replicas are on their way"
        if reading.doubt:
            return reading.doubt
        if reading.growth is None:
            return "how fast the queues grow is not known yet"
        serving = [key_of(variant) for variant in reading.variants if variant.progress.variant.active]
        if self.traffic is not None and not rates.keys() >= set(serving):
            return "not every variant can be sized"
        unsure = [key.name for key, known in self.known.items() if not known.firm]
        return f"the parameters of {unsure[0]} are not firm yet" if unsure else ""

    def _demand(self, rates: dict[VariantKey, float]) -> float:
        """Return the requests per second that the variants that can be sized have to carry."""
        others = math.fsum(each.answered for each in self.reading.variants if key_of(each) not in rates)
        asked = max(0.0, self.reading.arrivals - others)
        return max(asked, self.target.tps / self.traffic.output_tokens) if self.traffic is not None else asked

    def _variant(
        self, reading: VariantReading, sizing: Sizing | None, number: int | None, summary: str
    ) -> VariantOpinion:
        variant = reading.progress.variant
        if self.traffic is None:
            lowest = _lowest(reading)
            wanted = lowest if not self._objection({}) else max(lowest, reading.progress.base)
            return replace(_silent(reading, "nothing arrives and nothing waits"), desired=wanted)
        if sizing is None or number is None:
            return _silent(reading, sizing.problem if sizing is not None else "no performance parameters")
        known = self.known[variant.key]
        return replace(
            _silent(reading, f"{summary}; one replica takes {sizing.rate:.4g} requests/s ({known.words})"),
            desired=number,
            rate=sizing.rate,
            basis=known.words,
        )

    def _capacity(self, rates: dict[VariantKey, float], demand: float, objection: str, summary: str) -> ModelCapacity:
        variants = tuple(self._variant_capacity(each, rates, demand) for each in self.reading.variants)
        capacity = ModelCapacity(
            self.inputs.key, variants, demand=demand, objection=objection, summary=summary, unit=UNIT
        )
        spare = 0.0 if objection else max(0.0, capacity.supply * SHRINK_SHARE - demand)
        return replace(capacity, required=max(0.0, demand - capacity.anticipated), spare=spare)

    def _idle_rates(self) -> dict[VariantKey, float]:
        """Return any rate, the same for all: without requests every replica carries all there is."""
        return {key_of(each): 1.0 for each in self.reading.variants}

    def _variant_capacity(
        self, reading: VariantReading, rates: dict[VariantKey, float], demand: float
    ) -> VariantCapacity:
        variant, known = reading.progress.variant, self.known.get(key_of(reading))
        answered = math.fsum(each.answered for each in self.reading.variants if key_of(each) in rates)
        share = reading.answered / answered if key_of(reading) in rates and answered else 0.0
        return VariantCapacity(
            key=variant.key,
            accelerator=_accelerator(reading),
            cost=variant.cost,
            ready=reading.progress.ready,
            pending=reading.progress.in_flight,
            per_replica=rates.get(variant.key, 0.0),
            demand=share * demand,
            gpus_per_replica=variant.gpus_per_replica,
            basis=CapacityBasis.UNKNOWN if known is None else known.basis,
        )

    def _summary(self, demand: float, supply: float, short: float) -> str:
        target = self.target
        said = "its service class" if self.service is not None else "no service class: derived targets"
        words = (
            f"{self.reading.arrivals:.4g} requests/s arrive, {demand:.4g} to carry, capacity {supply:.4g} within "
            f"TTFT {target.ttft:.4g} ms and ITL {target.itl:.4g} ms ({said})"
        )
        return f"{words}; {short:.4g} requests/s cannot be carried by any variant" if short > 0 else words


def _target(
    settings: QueueingPolicy, service: ServiceTarget | None, known: dict[VariantKey, Known], traffic: Traffic | None
) -> Target:
    """Return the targets in force: those of the model's queueing entry, of its service class, else derived ones."""
    tps = 0.0 if service is None else service.tps
    if settings.target_ttft_milliseconds > 0 and settings.target_itl_milliseconds > 0:
        return Target(settings.target_ttft_milliseconds, settings.target_itl_milliseconds, tps)
    if service is not None:
        return Target(service.ttft_milliseconds, service.itl_milliseconds, tps)
    parameters = [each.parameters for each in known.values()]
    derived = None if traffic is None else derived_target(settings.slo_multiplier, parameters, traffic)
    return derived or Target()


def _accelerator(reading: VariantReading) -> str:
    variant = reading.progress.variant
    return variant.accelerator or variant.status_accelerator or UNKNOWN_ACCELERATOR


def _silent(reading: VariantReading, words: str) -> VariantOpinion:
    variant = reading.progress.variant
    return VariantOpinion(variant.key, _accelerator(reading), None, words, cards=max(1, variant.gpus_per_replica))


def _lowest(reading: VariantReading) -> int:
    """Return how far the number may fall: to one while any replica is asked for."""
    variant = reading.progress.variant
    return variant.bounds.clamp(1 if variant.active else 0)


def _carrier(reading: VariantReading, rate: float) -> Carrier:
    progress = reading.progress
    stuck = progress.waiting if progress.overdue else 0
    planned = max(_lowest(reading), progress.base)
    return Carrier(
        progress.variant.key,
        progress.variant.cost,
        rate,
        planned=planned,
        counted=max(0, planned - stuck),
        lowest=_lowest(reading),
        highest=progress.variant.bounds.maximum,
        grows=not stuck,
    )
