"""The queueing analyzer: what arrives at a model, and what a replica takes while nearly all requests meet the targets.

What arrives, how large requests are, and how fast the engines of each variant work is measured as the demand analyzer
does (``demand``). Here every replica is a queue, and what it takes is the rate at which hardly any request misses the
targets for the first token and for those after it, with no more requests at once than its arguments and its KV cache
allow. Parameters that the user gives go before learned ones. All models are sized together, because numpy evaluates all
their replicas together. Importing this module imports numpy.

A target that no variant can meet is told, and replicas are planned for the nearest one that can be met: more of them
would not help, but too few would make it worse. A variant that cannot be sized keeps its number, and what arrives at it
is not asked of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from wva.decide.amounts import LARGEST, bounded_policy, rounded_up
from wva.decide.measure.demand import Observation, Observations, kv_tokens
from wva.decide.measure.demand_engine import USUAL_TARGETS, engine_of
from wva.decide.measure.need import UNKNOWN, Capacity, Need
from wva.decide.queueing.assured import MOST_USED, SEQUENCES, Assured, assure
from wva.decide.queueing.mixing import Kind, usage
from wva.decide.queueing.service import Service, Target, bounded, known_batch, known_service, learned_service
from wva.decide.trust import ModelReadings, VariantReadings
from wva.decide.wording import replicas as replicas_in_words
from wva.model.absence import Absence
from wva.model.capacity import CapacityBasis
from wva.model.decision import Reason
from wva.model.demand import DemandMemory, Fit, PodMemory, Slot, VariantDemand
from wva.model.memory import Memory
from wva.model.metrics import SampleState
from wva.model.policy import DEFAULT_SLO_MULTIPLIER, Policy, QueueingPolicy
from wva.model.records import replace
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

_RECENT: Final = 8
"""The mean demand of so many cycles tells how replicas are used beside each other."""

_LEAST_RATE: Final = 1e-6
"""Requests per second that a replica carries in any case: a rate of 0 would be one that is not known."""

KV_CACHE: Final = "KV cache"
_ORIGINS: Final = {CapacityBasis.DERIVED: "known parameters", CapacityBasis.OBSERVED: "learned parameters"}


class _Replica(Struct, frozen=True, gc=False):
    """One replica of a variant as a queue, what bounds its sequences, and where its parameters come from."""

    service: Service
    bound: str
    basis: CapacityBasis


class _Case(Struct, frozen=True, gc=False):
    """One model: what was observed of it, and what is remembered of it.

    ``replicas`` has those variants that can be sized. ``promise`` says whose ``target`` it is.
    """

    model: ModelReadings
    need: Need
    kept: DemandMemory
    replicas: Mapping[VariantKey, _Replica]
    target: Target
    promise: str


class Queueing:
    """Measures in requests per second, within the latency targets of each model."""

    def __init__(self, observations: Observations) -> None:
        """``observations`` are those of this cycle."""
        self._observations = observations

    def measure(
        self, models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float
    ) -> tuple[list[Need], Memory]:
        """Return the needs of models, in their order, and the memory: what was observed is remembered for all."""
        cases = [_case(model, self._observations.of(model, now), policy) for model in models]
        # Every replica is sized alone, and then beside as many as the demand takes: whether a target can be met does
        # not depend on that. A router evens out the load of several replicas, so that each may be used more. It does
        # not do so perfectly: it evens out as among the square root of their number.
        alone = _sized(cases, [case.target for case in cases], [{} for _ in cases])
        reached = [_reached(case, sized) for case, sized in zip(cases, alone, strict=True)]
        slots = {entry.key: entry.slots[-_RECENT:] for entry in memory.foreseen}
        loads = [_load(case.need, slots.get(case.model.key, ())) for case in cases]
        pooled = [
            {key: math.sqrt(load / max(each.rate, _LEAST_RATE)) for key, each in sized.items()}
            for load, sized in zip(loads, alone, strict=True)
        ]
        beside = _sized(cases, [target for target, _ in reached], pooled)
        found = zip(cases, beside, loads, reached, strict=True)
        return [_need(case, sized, load, remarks) for case, sized, load, (_, remarks) in found], memory


def _case(model: ModelReadings, seen: Observation, policy: Policy) -> _Case:
    """Find the replicas of a model and its targets. These are its own, else those of its service class, else none."""
    settings = bounded_policy(policy.queueing_for(model.key) or QueueingPolicy())
    known = seen.need.hold is None
    sized = _replicas(model.variants, seen.after, policy, tuned=settings.tuning_enabled) if known else {}
    service = policy.service_target_for(model.key)
    tps = 0.0 if service is None else service.tps
    ttft, itl = settings.target_ttft_milliseconds, settings.target_itl_milliseconds
    if ttft > 0 and itl > 0:
        target, promise = Target(ttft, itl, tps), "its own targets"
    elif service is not None:
        target, promise = Target(service.ttft_milliseconds, service.itl_milliseconds, tps), "its service class"
    else:
        # Nothing is promised, so that the rate alone counts.
        multiplier = settings.slo_multiplier if settings.slo_multiplier > 1 else DEFAULT_SLO_MULTIPLIER
        target, promise = Target(use=1 - 1 / multiplier), "no targets"
    return _Case(model, seen.need, seen.after, sized, bounded(target), promise)


def _replicas(
    variants: Sequence[VariantReadings], kept: DemandMemory, policy: Policy, *, tuned: bool
) -> dict[VariantKey, _Replica]:
    """Return one replica of each variant as a queue, of those that can be sized. Given parameters go before learned.

    Variants of a model on as many GPUs of the same kind have the same parameters, also those that were never seen.
    While requests wait in them, given parameters that promise far more than learned ones are wrong.
    """
    prompt, answer, held = kept.prompt.usual, kept.answer.usual, kept.held.usual
    if not (kept.prompt.many and kept.answer.many):
        return {}
    kinds: dict[tuple[str, int], list[tuple[VariantReadings, VariantDemand]]] = {}
    for each, entry in zip(variants, kept.variants, strict=True):
        variant = each.progress.variant
        name = variant.accelerator or f"unknown/{variant.key.name}"
        kinds.setdefault((name, max(1, variant.gpus_per_replica)), []).append((each, entry))
    found = {}
    for alike in kinds.values():
        fit = _together([entry.fit for _, entry in alike if tuned and entry.fit.shortest])
        cache = kv_tokens([pod for each, _ in alike for pod in each.replicas])
        by_cache = KV_SHARE * cache / held if cache and held else math.inf
        waits = _queued([pod for _, entry in alike for pod in entry.pods])
        for each, _ in alike:
            variant = each.progress.variant
            profile = policy.profile_for(variant.model.model_id, variant.accelerator)
            most = 0 if variant.parameters is None else variant.parameters.max_num_seqs
            usual = float(most if most > 0 else DEFAULT_BATCH)
            batch = usual if profile is None else known_batch(profile, usual, answer)
            bound = KV_CACHE if by_cache < batch else SEQUENCES
            size = max(1.0, float(math.floor(min(batch, by_cache))))
            given = None if profile is None else known_service(profile, prompt, answer, size)
            learned = None
            if given is None or waits:
                sizes = (prompt, answer, held)
                engine = engine_of(fit, variant.parameters, cache, sizes, USUAL_TARGETS, kept.variability)
                learned = None if engine is None else learned_service(engine, size)
            if learned is not None and (given is None or learned.most < BELIEVED_SHARE * given.most):
                found[each.key] = _Replica(learned, bound, CapacityBasis.OBSERVED)
            elif given is not None:
                found[each.key] = _Replica(given, bound, CapacityBasis.DERIVED)
    return {each.key: found[each.key] for each in variants if each.key in found}


def _together(fits: Sequence[Fit]) -> Fit:
    """Return what was learned of several variants whose replicas are alike: the sums add up."""
    if len(fits) <= 1:
        return fits[0] if fits else Fit()
    rows = [
        tuple([math.fsum(numbers) for numbers in zip(*same, strict=True)])
        for same in zip(*[fit.rows for fit in fits], strict=True)
    ]
    return Fit(tuple(rows), min([fit.shortest for fit in fits]), max([fit.at for fit in fits]))


def _unread(each: VariantReadings) -> int:
    """Return how many replicas serve whose load is not known freshly."""
    engines = [(pod.engine, pod.counters) for pod in each.replicas if pod.engine is not None]
    fresh = [
        engine.running.fresh_value is not None
        and engine.waiting.fresh_value is not None
        and (counters is not None or engine.success_rate.fresh_value is not None)
        for engine, counters in engines
    ]
    return max(0, each.progress.serving - sum(fresh))


def _queued(pods: Sequence[PodMemory]) -> bool:
    """Tell whether requests wait because replicas are full."""
    waiting = sum([pod.waiting for pod in pods])
    return waiting > len(pods) and waiting > QUEUED_SHARE * sum([pod.running for pod in pods])


def _sized(
    cases: Sequence[_Case], targets: Sequence[Target], pooled: Sequence[Mapping[VariantKey, float]]
) -> list[dict[VariantKey, Assured]]:
    """Return what the replicas of each model take within its targets, all computed together."""
    rows = [
        (each.service, target, among.get(key, 1.0))
        for case, target, among in zip(cases, targets, pooled, strict=True)
        for key, each in case.replicas.items()
    ]
    done = iter(assure([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]))
    return [{key: next(done) for key in case.replicas} for case in cases]


def _reached(case: _Case, sized: Mapping[VariantKey, Assured]) -> tuple[Target, list[str]]:
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


def _load(need: Need, slots: Sequence[Slot]) -> float:
    """Return the mean demand of the last cycles: what replicas carry shall not move with the chance of one cycle."""
    if not slots:
        return need.demand
    return sum([slot.amount for slot in slots]) / sum([slot.seconds for slot in slots])


def _need(case: _Case, sized: Mapping[VariantKey, Assured], load: float, remarks: Sequence[str]) -> Need:
    """Return what a model needs once its replicas are sized."""
    need, variants = case.need, case.model.variants
    hold = _absence(case)
    if hold is not None:
        return replace(need, capacities={}, hold=hold, carries=None, summary=hold.message)
    pods = {entry.key: entry.pods for entry in case.kept.variants}
    if sized:
        kinds = {each.key: _in_fleet(each, sized[each.key]) for each in variants if each.key in sized}
        others = sum([pod.rate for key, own in pods.items() if key not in kinds for pod in own])
        used = usage(list(kinds.values()), max(0.0, load - others))
        capacities = {each.key: _capacity(case, each.key, kinds.get(each.key), used) for each in variants}
        wanted = max(need.demand - others, case.target.tps / case.kept.answer.usual, 0.0)
    else:
        # Without requests every replica carries all that may come.
        kinds, wanted = {}, 0.0
        capacities = {each.key: Capacity(LARGEST, CapacityBasis.UNKNOWN) for each in variants}
    active = {each.key for each in variants if each.progress.variant.active}
    queue, unread = case.model.queue, sum([_unread(each) for each in variants])
    objection = f"{replicas_in_words(unread)} unread" if unread else need.objection
    if not objection and queue is not None and queue.size.state not in {SampleState.FRESH, SampleState.MISSING}:
        objection = f"the scheduler's queue is {queue.size.state.value}"
    if not objection and _queued([pod for own in pods.values() for pod in own]):
        objection = f"{need.backlog:.4g} requests wait"
    if not objection and sized and not active <= sized.keys():
        objection = "not every variant can be sized"
    return replace(
        need,
        demand=wanted,
        required=wanted,
        sufficient=wanted,
        capacities=capacities,
        hold=None,
        objection=objection,
        summary=_summary(case, capacities, wanted, remarks),
        carries=None,
        answers=_answers(kinds) if kinds else None,
    )


def _in_fleet(each: VariantReadings, assured: Assured) -> Kind:
    """Return a variant in a fleet."""
    variant = each.progress.variant
    bounds = variant.bounds
    least = int(variant.active) if bounds.minimum is None else bounds.minimum
    return Kind(assured, variant.cost, least, math.inf if bounds.maximum is None else bounds.maximum)


def _capacity(case: _Case, key: VariantKey, kind: Kind | None, used: float) -> Capacity:
    """Return what a replica carries in the cheapest fleet, where all replicas are used so far."""
    if kind is None:
        return UNKNOWN
    replica, limit = case.replicas[key], kind.assured.limit
    rate = kind.assured.rate_at(used) if kind.used >= used > 0 else LEFT_OUT * kind.assured.rate
    return Capacity(max(rate, _LEAST_RATE), replica.basis, replica.bound if limit == SEQUENCES else limit)


def _answers(kinds: Mapping[VariantKey, Kind]) -> Callable[[Mapping[VariantKey, int]], float]:
    """Return the function from numbers of replicas to what they get through, also beyond the targets."""
    most = {key: kind.assured.rate_at(MOST_USED) for key, kind in kinds.items()}
    return lambda numbers: sum([numbers.get(key, 0) * rate for key, rate in most.items()])


def _absence(case: _Case) -> Absence | None:
    """Return why nothing can be decided, None when something can."""
    model, need, kept = case.model, case.need, case.kept
    if model.failure is not None:
        return Absence(Reason.PROMETHEUS_ERROR, model.failure)
    if not any(each.replicas for each in model.variants):
        return Absence(Reason.NO_READY_REPLICAS, "no ready replica")
    if need.hold is not None:
        return need.hold
    running = any(pod.running for entry in kept.variants for pod in entry.pods)
    if case.replicas or not (need.demand > 0 or need.backlog > 0 or running):
        return None
    known = kept.prompt.many and kept.answer.many
    words = "no performance parameters, neither known nor learned"
    return Absence(Reason.METRICS_INCOMPLETE, words if known else "the size of the requests is not known yet")


def _summary(case: _Case, capacities: Mapping[VariantKey, Capacity], required: float, remarks: Sequence[str]) -> str:
    """Return the figures in words, and with a target out of reach what the demand costs all the same."""
    need, target = case.need, case.target
    words = [f"{need.demand:.4g} requests/s arrive"]
    if need.backlog >= 1:
        words.append(f"{need.backlog:.4g} requests wait")
    takes = [
        f"{key.name} takes {each.per_replica:.4g} ({each.limit}; {_ORIGINS[each.basis]})"
        for key, each in capacities.items()
        if each.limit
    ]
    if not takes:
        return "nothing arrives and nothing waits"
    within = f"within TTFT {target.ttft:.4g} ms and ITL {target.itl:.4g} ms ({case.promise})"
    if target.use < 1:
        within = f"at {target.use:.0%} of its highest rate ({case.promise})"
    words.append(f"{within} a replica of {', '.join(takes)}")
    costs = {each.key: each.progress.variant.cost for each in case.model.variants if each.key in case.replicas}
    if remarks:
        key = min(costs, key=lambda key: (costs[key] / capacities[key].per_replica, key))
        count = rounded_up(required / capacities[key].per_replica)
        words += [
            *remarks,
            f"that takes {replicas_in_words(count)} of {key.name} at a cost of {costs[key] * count:.4g}",
        ]
    return "; ".join(words)
