"""The queueing analyzer: what arrives at a model, and what a replica takes while nearly all requests meet the targets.

What arrives, how large requests are, and how fast the engines of each variant work is measured as the demand analyzer
does (``demand``). Here every replica is a queue, and what it takes is the rate at which hardly any request misses the
targets for the first token and for those after it, with no more requests at once than its arguments and its KV cache
allow. Parameters that the user gives go before learned ones. All models are sized together, because numpy evaluates all
their replicas together. Importing this module imports numpy.

A target that no variant can meet is reported, and replicas are planned for the nearest target that can be met: more
replicas would not help, but too few would make it worse. A variant that cannot be sized keeps its number, and the
requests that arrive at it are not asked of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from wva.decide.amounts import LARGEST, bounded_policy, rounded_up
from wva.decide.measure import queueing_formulas as formulas
from wva.decide.measure.demand import ModelObservation, Observations, kv_tokens
from wva.decide.measure.demand_engine import USUAL_TARGETS, engine_of
from wva.decide.measure.need import UNKNOWN, Capacity, Need
from wva.decide.trust import ModelReadings, VariantReadings
from wva.decide.wording import replicas as replicas_in_words
from wva.model.decision import Reason
from wva.model.memory import CapacityBasis, DemandMemory, Fit, Memory, PodMemory, VariantDemand
from wva.model.metrics import SampleState
from wva.model.policy import DEFAULT_SLO_MULTIPLIER, Policy, QueueingPolicy
from wva.model.records import replace
from wva.model.trouble import Absence
from wva.model.variant import VariantKey

DEFAULT_BATCH: Final = 256
"""Requests at once where no setting says (vLLM's own default)."""
KV_SHARE: Final = 0.97
"""Share of the KV cache that requests may hold: a full one preempts what it has begun."""
RELAXED: Final = 2.0
"""A target that no variant meets is replaced by this many times what the best one takes for a request alone."""
LEFT_OUT: Final = 1e-3
"""A variant that is left out of the fleet counts with this share of its rate, so that its replicas go first."""
QUEUED_SHARE: Final = 0.05
"""Replicas are full when more requests wait than this share of those that run."""
BELIEVED_SHARE: Final = 0.8
"""While requests wait, given parameters count only if learned ones promise at least this share of their rate."""
_RECENT: Final = 8  # the mean demand of so many cycles tells how replicas are used beside each other
_LEAST_RATE: Final = 1e-6
"""Requests per second that a replica carries in any case: a rate of 0 would be one that is not known."""
KV_CACHE: Final = "KV cache"
_ORIGINS: Final = {CapacityBasis.DERIVED: "known parameters", CapacityBasis.OBSERVED: "learned parameters"}


class _Replica(Struct, frozen=True, gc=False):
    """One replica of a variant as a queue, what bounds its sequences, and where its parameters come from."""

    service: formulas.ServiceTimes
    bound: str
    basis: CapacityBasis


class _Case(Struct, frozen=True, gc=False):
    """One model: its need as observed, and the memory of it.

    ``replicas`` has those variants that can be sized. ``promise`` says whose ``target`` it is.
    """

    model: ModelReadings
    need: Need
    kept: DemandMemory
    replicas: Mapping[VariantKey, _Replica]
    target: formulas.Target
    promise: str


def measure(
    models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float, observations: Observations
) -> tuple[list[Need], Memory]:
    """Return the needs of models in requests per second within their latency targets, in their order, and the memory.

    What was observed is remembered for all analyzers.
    """
    cases = [_case(model, observations.of(model, now), policy) for model in models]
    # Each replica is sized alone, and then beside as many as the demand takes: whether a target can be met does not
    # depend on that. A router evens out the load of several replicas, so that each may be used more. It does not do so
    # perfectly: it evens out as among the square root of their number.
    alone = _sized(cases, [case.target for case in cases], [{} for _ in cases])
    reached = [_reached(case, sized) for case, sized in zip(cases, alone, strict=True)]
    # What replicas carry shall not move with the chance of one cycle, so the mean demand of the last ones counts.
    past, loads = {entry.key: entry.slots[-_RECENT:] for entry in memory.foreseen}, []
    for case in cases:
        slots = past.get(case.model.key, ())
        seconds = sum([slot.seconds for slot in slots])
        loads.append(sum([slot.amount for slot in slots]) / seconds if slots else case.need.demand)
    pooled = [
        {key: math.sqrt(load / max(each.rate, _LEAST_RATE)) for key, each in sized.items()}
        for load, sized in zip(loads, alone, strict=True)
    ]
    beside = _sized(cases, [target for target, _ in reached], pooled)
    found = zip(cases, beside, loads, reached, strict=True)
    return [_need(case, sized, load, remarks) for case, sized, load, (_, remarks) in found], memory


def _case(model: ModelReadings, seen: ModelObservation, policy: Policy) -> _Case:
    """Find the targets of a model, and one replica as a queue of each of its variants that can be sized."""
    kept = seen.after
    replicas: dict[VariantKey, _Replica] = {}
    settings = bounded_policy(policy.queueing_for(model.key) or QueueingPolicy())
    prompt, answer, held = kept.prompt.usual, kept.answer.usual, kept.held.usual
    # Variants of a model on as many GPUs of the same kind have the same parameters, also those that were never seen.
    kinds: dict[tuple[str, int], list[tuple[VariantReadings, VariantDemand]]] = {}
    if seen.need.hold is None and kept.prompt.many and kept.answer.many:
        for each, entry in zip(model.variants, kept.variants, strict=True):
            variant = each.progress.variant
            name = variant.accelerator or f"unknown/{variant.key.name}"
            kinds.setdefault((name, max(1, variant.gpus_per_replica)), []).append((each, entry))
    for alike in kinds.values():
        # What was learned of several variants whose replicas are alike adds up.
        fits = [entry.fit for _, entry in alike if settings.tuning_enabled and entry.fit.shortest]
        fit = fits[0] if fits else Fit()
        if len(fits) > 1:
            rows = [
                tuple([math.fsum(numbers) for numbers in zip(*same, strict=True)])
                for same in zip(*[one.rows for one in fits], strict=True)
            ]
            fit = Fit(tuple(rows), min([one.shortest for one in fits]), max([one.at for one in fits]))
        cache = kv_tokens([pod for each, _ in alike for pod in each.replicas])
        by_cache = KV_SHARE * cache / held if cache and held else math.inf
        waits = _queued([pod for _, entry in alike for pod in entry.pods])
        for each, _ in alike:
            variant = each.progress.variant
            profile = policy.profile_for(variant.model.model_id, variant.accelerator)
            most = 0 if variant.parameters is None else variant.parameters.max_num_seqs
            usual = float(most if most > 0 else DEFAULT_BATCH)
            batch = usual if profile is None else formulas.known_batch(profile, usual, answer)
            bound = KV_CACHE if by_cache < batch else formulas.SEQUENCES
            size = max(1.0, float(math.floor(min(batch, by_cache))))
            given = None if profile is None else formulas.known_service(profile, prompt, answer, size)
            learned = None
            if given is None or waits:
                sizes = (prompt, answer, held)
                engine = engine_of(fit, variant.parameters, cache, sizes, USUAL_TARGETS, kept.variability)
                learned = None if engine is None else formulas.learned_service(engine, size)
            # Given parameters go before learned ones. While requests wait, those that promise far more are wrong.
            if learned is not None and (given is None or learned.most < BELIEVED_SHARE * given.most):
                replicas[each.key] = _Replica(learned, bound, CapacityBasis.OBSERVED)
            elif given is not None:
                replicas[each.key] = _Replica(given, bound, CapacityBasis.DERIVED)
    in_order = {each.key: replicas[each.key] for each in model.variants if each.key in replicas}
    # The targets are those of the model, else those of its service class, else none: then the rate alone counts.
    service = policy.service_target_for(model.key)
    tps = 0.0 if service is None else service.tps
    ttft, itl = settings.target_ttft_milliseconds, settings.target_itl_milliseconds
    if ttft > 0 and itl > 0:
        target, promise = formulas.Target(ttft, itl, tps), "its own targets"
    elif service is not None:
        target, promise = formulas.Target(service.ttft_milliseconds, service.itl_milliseconds, tps), "its service class"
    else:
        multiplier = settings.slo_multiplier if settings.slo_multiplier > 1 else DEFAULT_SLO_MULTIPLIER
        target, promise = formulas.Target(use=1 - 1 / multiplier), "no targets"
    return _Case(model, seen.need, kept, in_order, formulas.bounded(target), promise)


def _queued(pods: Sequence[PodMemory]) -> bool:
    """Tell whether requests wait because replicas are full."""
    waiting = sum([pod.waiting for pod in pods])
    return waiting > len(pods) and waiting > QUEUED_SHARE * sum([pod.running for pod in pods])


def _sized(
    cases: Sequence[_Case], targets: Sequence[formulas.Target], pooled: Sequence[Mapping[VariantKey, float]]
) -> list[dict[VariantKey, formulas.Assured]]:
    """Return what the replicas of each model take within its targets, all computed together."""
    rows = [
        (each.service, target, among.get(key, 1.0))
        for case, target, among in zip(cases, targets, pooled, strict=True)
        for key, each in case.replicas.items()
    ]
    done = iter(formulas.assure([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]))
    return [{key: next(done) for key in case.replicas} for case in cases]


def _reached(case: _Case, sized: Mapping[VariantKey, formulas.Assured]) -> tuple[formulas.Target, list[str]]:
    """Return the targets that can be met, and in words which of those that were asked for cannot.

    These are the targets that were asked for if any variant meets them, otherwise what the nearest one can do.
    """
    target, words = case.target, []
    if any(each.feasible for each in sized.values()) or not sized:
        for key, each in sized.items():
            if not each.feasible:
                words.append(
                    f"{key.name} never meets the targets: a request alone takes "
                    f"TTFT {each.least_ttft:.4g} ms and ITL {each.least_itl:.4g} ms"
                )
        return target, words
    ttft, itl = target.ttft or math.inf, target.itl or math.inf
    excess = {key: max(each.least_ttft / ttft, each.least_itl / itl) for key, each in sized.items()}
    key = min(excess, key=lambda key: (excess[key], key))
    best, reached = sized[key], target
    for name, wanted, least in (("TTFT", target.ttft, best.least_ttft), ("ITL", target.itl, best.least_itl)):
        if 0 < wanted < least:
            reached = replace(reached, **{name.lower(): RELAXED * least})
            words.append(
                f"no variant meets {name} {wanted:.4g} ms: a request alone takes {least:.4g} ms on {key.name}, "
                f"so {RELAXED * least:.4g} ms are aimed at"
            )
    return reached, words


def _need(case: _Case, sized: Mapping[VariantKey, formulas.Assured], load: float, remarks: Sequence[str]) -> Need:
    """Return what a model needs once its replicas are sized. ``remarks``: which targets are out of reach, in words."""
    model, need, kept, target = case.model, case.need, case.kept, case.target
    variants, pods = model.variants, {entry.key: entry.pods for entry in kept.variants}
    hold = need.hold
    if model.failure is not None:
        hold = Absence(Reason.PROMETHEUS_ERROR, model.failure)
    elif not any(each.replicas for each in variants):
        hold = Absence(Reason.NO_READY_REPLICAS, "no ready replica")
    elif hold is None and not case.replicas:
        running = any(pod.running for own in pods.values() for pod in own)
        if need.demand > 0 or need.backlog > 0 or running:
            why = "the size of the requests is not known yet"
            if kept.prompt.many and kept.answer.many:
                why = "no performance parameters, neither known nor learned"
            hold = Absence(Reason.METRICS_INCOMPLETE, why)
    if hold is not None:
        return replace(need, capacities={}, hold=hold, carries=None, summary=hold.message)
    # The capacity of replicas in the cheapest fleet, where all of them are used alike, and the demand for them. Without
    # requests each replica is taken to carry all demand that may come.
    kinds: dict[VariantKey, formulas.FleetVariant] = {}
    wanted, answers = 0.0, None
    capacities = dict.fromkeys([each.key for each in variants], Capacity(LARGEST, CapacityBasis.UNKNOWN))
    if sized:
        for each in variants:
            if each.key in sized:
                variant, bounds = each.progress.variant, each.progress.variant.bounds
                least = int(variant.active) if bounds.minimum is None else bounds.minimum
                highest = math.inf if bounds.maximum is None else bounds.maximum
                kinds[each.key] = formulas.FleetVariant(sized[each.key], variant.cost, least, highest)
        others = sum([pod.rate for key, own in pods.items() if key not in kinds for pod in own])
        used = formulas.usage(list(kinds.values()), max(0.0, load - others))
        capacities = dict.fromkeys(capacities, UNKNOWN)
        for key, kind in kinds.items():
            replica, limit = case.replicas[key], kind.assured.limit
            rate = kind.assured.rate_at(used) if kind.used >= used > 0 else LEFT_OUT * kind.assured.rate
            limit = replica.bound if limit == formulas.SEQUENCES else limit
            capacities[key] = Capacity(max(rate, _LEAST_RATE), replica.basis, limit)
        wanted = max(need.demand - others, target.tps / kept.answer.usual, 0.0)
        most = {key: kind.assured.rate_at(formulas.MOST_USED) for key, kind in kinds.items()}

        def answers(numbers: Mapping[VariantKey, int]) -> float:
            """Return what so many replicas get through, also beyond the targets."""
            return sum([numbers.get(key, 0) * rate for key, rate in most.items()])

    # Why nothing may shrink
    unread = 0
    for each in variants:
        fresh = [
            engine.running.fresh_value is not None
            and engine.waiting.fresh_value is not None
            and (pod.counters is not None or engine.success_rate.fresh_value is not None)
            for pod in each.replicas
            if (engine := pod.engine) is not None
        ]
        unread += max(0, each.progress.serving - sum(fresh))
    queue, objection = model.queue, f"{replicas_in_words(unread)} unread" if unread else need.objection
    if not objection and queue is not None and queue.size.state not in {SampleState.FRESH, SampleState.MISSING}:
        objection = f"the scheduler's queue is {queue.size.state.value}"
    if not objection and _queued([pod for own in pods.values() for pod in own]):
        objection = f"{need.backlog:.4g} requests wait"
    if not objection and sized and any(each.progress.variant.active and each.key not in sized for each in variants):
        objection = "not every variant can be sized"
    # The figures, and with a target out of reach what the demand costs all the same
    takes = [
        f"{key.name} takes {each.per_replica:.4g} ({each.limit}; {_ORIGINS[each.basis]})"
        for key, each in capacities.items()
        if each.limit
    ]
    summary = "nothing arrives and nothing waits"
    if takes:
        words = [f"{need.demand:.4g} requests/s arrive"]
        words += [f"{need.backlog:.4g} requests wait"] if need.backlog >= 1 else []
        within = f"within TTFT {target.ttft:.4g} ms and ITL {target.itl:.4g} ms ({case.promise})"
        if target.use < 1:
            within = f"at {target.use:.0%} of its highest rate ({case.promise})"
        words.append(f"{within} a replica of {', '.join(takes)}")
        if remarks:
            costs = {each.key: each.progress.variant.cost for each in variants if each.key in case.replicas}
            key = min(costs, key=lambda key: (costs[key] / capacities[key].per_replica, key))
            count = rounded_up(wanted / capacities[key].per_replica)
            price = f"at a cost of {costs[key] * count:.4g}"
            words += [*remarks, f"that takes {replicas_in_words(count)} of {key.name} {price}"]
        summary = "; ".join(words)
    return replace(
        need,
        demand=wanted,
        required=wanted,
        sufficient=wanted,
        capacities=capacities,
        hold=None,
        objection=objection,
        summary=summary,
        carries=None,
        answers=answers,
    )
