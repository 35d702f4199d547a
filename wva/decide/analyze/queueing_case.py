"""One model of the queueing analyzer: from traffic and sized replicas to what it needs, and the objections to a shrink.

A variant is sized with the parameters that were learned while it served, as soon as these are firm. Until then it is
sized with the known ones of its model and accelerator, so that a cold start can be sized. A variant with neither gets
no opinion: it keeps its number, and its share of the load is not asked of the others. The load belongs to the model,
and all of its variants carry it together. (The Go controller sized every variant for the whole load.)

Growth needs some evidence. A shrink needs all of it: every replica judged, no change on its way, firm parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wva.decide.amounts import bounded_policy
from wva.decide.analyze.queueing_parameters import Known, key_of, known_parameters
from wva.decide.analyze.queueing_readings import ModelReading, QueueingInputs, VariantReading, gap
from wva.decide.queueing.cover import Carrier
from wva.decide.queueing.fleet import FleetNeed
from wva.decide.queueing.objectives import Traffic, derived_target
from wva.decide.queueing.results import Sizing
from wva.decide.queueing.service import QUEUE_TO_BATCH, Queue, RequestSize
from wva.decide.queueing.targets import Target
from wva.decide.wording import replicas as replicas_in_words
from wva.model.absence import Absence
from wva.model.decision import Reason
from wva.model.policy import Policy, QueueingPolicy
from wva.model.queueing import QueueingMemory
from wva.model.service import LOWEST_PRIORITY, ServiceTarget
from wva.model.variant import DEFAULT_COST, UNKNOWN_ACCELERATOR, VariantKey


@dataclass(frozen=True, slots=True)
class Verdict:
    """What sizing says of a model.

    ``sized`` has an entry per variant with parameters, ``rates`` one (requests per second of a replica within the
    targets) per variant that can meet them. ``demand`` is what these have to carry. ``hold`` says why there is no
    opinion at all, ``objection`` why nothing may shrink.
    """

    sized: Mapping[VariantKey, Sizing]
    rates: Mapping[VariantKey, float]
    objection: str
    hold: Absence | None
    demand: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelCase:
    """One model, its parameters found; ``known`` and ``queues`` have an entry per variant that can be sized.

    ``costs`` are those of a replica of each variant.
    """

    inputs: QueueingInputs
    reading: ModelReading
    service: ServiceTarget | None
    target: Target
    traffic: Traffic | None
    known: dict[VariantKey, Known]
    costs: dict[VariantKey, float]

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
        target = bounded_policy(_target(settings, service, known, traffic))
        return ModelCase(inputs, reading, service, target, traffic, known, _costs(reading.variants, policy))

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

    def judge(self, sizings: Sequence[Sizing]) -> Verdict:
        """Return what can be said of the model once its replicas are sized; ``sizings`` are those of ``queues``."""
        sized = dict(zip(self.known, sizings, strict=True))
        rates = {key: each.rate for key, each in sized.items() if each.rate is not None}
        hold = self._absence(sized)
        if hold is not None:
            return Verdict(sized, {}, hold.message, hold)
        return Verdict(sized, rates, self._objection(rates), None, self._demand(rates))

    def need(self, verdict: Verdict) -> FleetNeed:
        """Return what the model asks of its variants that can be sized, which is nothing while it is held."""
        carriers = tuple(
            _carrier(each, verdict.rates[key_of(each)], self.costs[key_of(each)])
            for each in self.reading.variants
            if key_of(each) in verdict.rates
        )
        rank = LOWEST_PRIORITY if self.service is None else self.service.priority
        return FleetNeed(self.inputs.key, rank, verdict.demand, carriers, shrinks=not verdict.objection)

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


def _costs(readings: Sequence[VariantReading], policy: Policy) -> dict[VariantKey, float]:
    """Return what a replica of each variant costs.

    What the variants say counts. Where none of them says anything, the unit costs of their accelerators do, if all are
    known: costs of two kinds cannot be compared.
    """
    variants = [reading.progress.variant for reading in readings]
    units = [policy.accelerator_cost(variant.accelerator) for variant in variants]
    known = [unit for unit in units if unit is not None]
    if len(known) < len(variants) or any(variant.cost != DEFAULT_COST for variant in variants):
        return {variant.key: variant.cost for variant in variants}
    return {variant.key: unit * max(1, variant.gpus_per_replica) for variant, unit in zip(variants, known, strict=True)}


def accelerator_of(reading: VariantReading) -> str:
    """Return the accelerator of a variant, as far as it is known."""
    variant = reading.progress.variant
    return variant.accelerator or variant.status_accelerator or UNKNOWN_ACCELERATOR


def lowest(reading: VariantReading) -> int:
    """Return how far the number may fall: to one while any replica is asked for."""
    variant = reading.progress.variant
    return variant.bounds.clamp(1 if variant.active else 0)


def _carrier(reading: VariantReading, rate: float, cost: float) -> Carrier:
    progress = reading.progress
    variant = progress.variant
    stuck = progress.waiting if progress.overdue else 0
    planned = max(lowest(reading), progress.base)
    return Carrier(
        variant.key,
        cost,
        rate,
        planned=planned,
        counted=max(0, planned - stuck),
        lowest=lowest(reading),
        highest=variant.bounds.maximum,
        grows=not stuck and not variant.unschedulable_pods,
        cards=max(1, variant.gpus_per_replica),
        accelerator=accelerator_of(reading),
    )
