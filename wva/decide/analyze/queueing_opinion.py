"""What the model-based optimizer says of one model: a number per variant with its words, and supply against demand.

From what is known of the model (``ModelCase``), what its replicas can take (``Verdict``) and what it got of the whole
fleet (``Grant``). A variant that cannot be sized has no opinion, which is never 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from wva.decide.analyze.queueing_case import ModelCase, Verdict, accelerator_of, lowest
from wva.decide.analyze.queueing_parameters import key_of
from wva.decide.analyze.queueing_readings import VariantReading
from wva.decide.queueing.cover import SHRINK_SHARE, carried
from wva.decide.queueing.fleet import FleetNeed, Grant
from wva.decide.wording import replicas as replicas_in_words
from wva.model.capacity import CapacityBasis, ModelCapacity, VariantCapacity
from wva.model.queueing import ModelOpinion, VariantOpinion
from wva.model.variant import VariantKey

UNIT: Final = "requests/s"


def opinion_of(case: ModelCase, verdict: Verdict, *, need: FleetNeed, grant: Grant) -> ModelOpinion:
    """Return the opinion, still without what its replicas would do."""
    hold, traffic = verdict.hold, case.traffic
    summary = _summary(case, need, grant) if hold is None else hold.message
    return ModelOpinion(
        case.inputs.key,
        tuple(
            _variant(case, verdict, each, grant=grant, summary=summary) if hold is None else _silent(each, hold.message)
            for each in case.reading.variants
        ),
        replace(_capacity(case, verdict, summary), hold=hold),
        arrivals=case.reading.arrivals,
        input_tokens=0.0 if traffic is None else traffic.input_tokens,
        output_tokens=0.0 if traffic is None else traffic.output_tokens,
        ttft_milliseconds=case.target.ttft,
        itl_milliseconds=case.target.itl,
        tps=case.target.tps,
        class_name="" if case.service is None else case.service.class_name,
        hold=hold,
        objection=verdict.objection,
        summary=summary,
        candidates=grant.candidates,
    )


def _variant(
    case: ModelCase, verdict: Verdict, reading: VariantReading, *, grant: Grant, summary: str
) -> VariantOpinion:
    if case.traffic is None:
        least = lowest(reading)
        wanted = max(least, reading.progress.base) if verdict.objection else least
        return replace(_silent(reading, "nothing arrives and nothing waits"), desired=wanted)
    key = key_of(reading)
    sizing, number = verdict.sized.get(key), grant.numbers.get(key)
    if sizing is None or number is None:
        return _silent(reading, "no performance parameters" if sizing is None else sizing.problem)
    known = case.known[key]
    return replace(
        _silent(reading, f"{summary}; one replica takes {sizing.rate:.4g} requests/s ({known.words})"),
        desired=number,
        rate=sizing.rate,
        basis=known.words,
        denied=grant.denied(key),
        limited_by=grant.bindings.get(key, ""),
    )


def _capacity(case: ModelCase, verdict: Verdict, summary: str) -> ModelCapacity:
    rates = verdict.rates
    if verdict.hold is None and not rates:
        # Without requests every replica carries all there is: any rate will do, the same for all.
        rates = {key_of(each): 1.0 for each in case.reading.variants}
    readings = case.reading.variants
    answered = math.fsum(each.answered for each in readings if key_of(each) in rates)
    shares = {
        key_of(each): each.answered / answered * verdict.demand
        for each in readings
        if answered and key_of(each) in rates
    }
    capacity = ModelCapacity(
        case.inputs.key,
        tuple(_variant_capacity(case, each, rates, shares) for each in readings),
        demand=verdict.demand,
        objection=verdict.objection,
        summary=summary,
        unit=UNIT,
    )
    spare = 0.0 if verdict.objection else max(0.0, capacity.supply * SHRINK_SHARE - verdict.demand)
    return replace(capacity, required=max(0.0, verdict.demand - capacity.anticipated), spare=spare)


def _variant_capacity(
    case: ModelCase, reading: VariantReading, rates: Mapping[VariantKey, float], shares: Mapping[VariantKey, float]
) -> VariantCapacity:
    variant, known = reading.progress.variant, case.known.get(key_of(reading))
    return VariantCapacity(
        key=variant.key,
        accelerator=accelerator_of(reading),
        cost=case.costs[variant.key],
        ready=reading.progress.ready,
        pending=reading.progress.in_flight,
        per_replica=rates.get(variant.key, 0.0),
        demand=shares.get(variant.key, 0.0),
        gpus_per_replica=variant.gpus_per_replica,
        basis=CapacityBasis.UNKNOWN if known is None else known.basis,
    )


def _summary(case: ModelCase, need: FleetNeed, grant: Grant) -> str:
    target = case.target
    said = "its service class" if case.service is not None else "no service class: derived targets"
    words = (
        f"{case.reading.arrivals:.4g} requests/s arrive, {need.demand:.4g} to carry, "
        f"capacity {carried(need.carriers):.4g} within "
        f"TTFT {target.ttft:.4g} ms and ITL {target.itl:.4g} ms ({said})"
    )
    if grant.short > 0:
        words += f"; {grant.short:.4g} requests/s cannot be carried by any variant"
    denials = [
        f"{key.name} has {replicas_in_words(grant.denied(key))} fewer than wanted ({grant.bindings[key]})"
        for key in sorted(grant.bindings)
    ]
    return "; ".join([words, *denials])


def _silent(reading: VariantReading, words: str) -> VariantOpinion:
    variant = reading.progress.variant
    return VariantOpinion(variant.key, accelerator_of(reading), None, words, cards=max(1, variant.gpus_per_replica))
