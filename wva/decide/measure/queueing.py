"""The queueing analyzer: what arrives at a model, and what a replica takes while nearly all requests meet the targets.

The arrivals, the size of requests, and the speed of the engines are measured as in the demand analyzer (``demand``).
Here every replica is a queue. It takes the rate at which hardly any request misses the targets, with no more requests
at once than its arguments and its KV cache allow.

WVA reports a target that no variant can meet, and plans replicas for the nearest target that can be met: more replicas
would not help, but too few would make it worse. A variant that cannot be sized keeps its number, and the others need
not take the requests that arrive at it.

Formulas: docs/design/queueing-formulas.md. From the bottom up: how long an engine takes for requests of one size
(``ServiceTimes``), the rate at which requests one by one meet targets (``assure``), how far variants of different speed
behind one router may be used (``usage``), and what a model needs (``measure``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

from wva.decide.amounts import LARGEST, bounded_policy, rounded_up
from wva.decide.amounts import replicas as replicas_in_words
from wva.decide.measure.demand import ModelObservation, Observed, kv_tokens
from wva.decide.measure.demand_engine import EngineModel, engine_of
from wva.decide.measure.need import UNKNOWN, Capacity, Need
from wva.decide.measure.queues import LONGEST, Assured, QueueModel, ServiceTimes, Target
from wva.decide.pace import alike
from wva.decide.trust import ModelReadings, VariantReadings
from wva.model.decision import Reason
from wva.model.memory import CapacityBasis, DemandMemory, Fit, Foresight, Memory, PodMemory, Slot, VariantDemand
from wva.model.metrics import SampleState
from wva.model.policy import DEFAULT_SLO_MULTIPLIER, Policy, QueueingPolicy
from wva.model.records import replace
from wva.model.service import MAX_BATCH_SIZE, PerformanceProfile
from wva.model.trouble import Absence
from wva.model.variant import Variant, VariantKey

DEFAULT_BATCH: Final = 256  # requests at once if no setting gives a number (vLLM's own default)
KV_SHARE: Final = 0.97  # share of the KV cache that requests may hold: a full one preempts what it has begun
RELAXED: Final = 2.0
"""A target that no variant meets is replaced by this many times what the best one takes for a request alone."""
LEFT_OUT: Final = 1e-3
"""A variant that is left out of the fleet counts with this share of its rate, so that its replicas go first."""
QUEUED_SHARE: Final = 0.05  # replicas are full when more requests wait than this share of those that run
BELIEVED_SHARE: Final = 0.8
"""While requests wait, given parameters count only if learned ones promise at least this share of their rate."""
_RECENT: Final = 8  # the mean demand of so many cycles tells how replicas are used beside each other
_LEAST_RATE: Final = 1e-6  # the least capacity in requests per second, because 0 would mean that it is not known
_ANY_DEMAND: Final = Capacity(LARGEST, CapacityBasis.UNKNOWN)
KV_CACHE: Final = "KV cache"
_ORIGINS: Final = {CapacityBasis.DERIVED: "known parameters", CapacityBasis.OBSERVED: "learned parameters"}
ATTAINMENT: Final = 0.95  # share of the requests that shall meet their targets
MISSED: Final = (1 - ATTAINMENT) / 2
"""Share of the requests that may miss a target while the load is steady. As many may miss it because load rises too
fast."""
DEVIATIONS: Final = 2.0  # standard deviations above its mean that a load exceeds with this probability
UNEVEN: Final = 0.35  # share of the variance that a router does not even out: it does not know how long answers will be
MOST_USED: Final = 0.97  # share of the highest rate that may be used at all
_ROUNDS: Final = 4
_POINTS: Final = 64  # rates of an interval that are tried at once; after ``_ROUNDS`` the error is below 1e-7 of it
_BEYOND: Final = 1 + 1e-5  # a rate times this exceeds the limit that was found, by more than its error
SEQUENCES, ITL, TTFT = "sequences", "ITL", "TTFT"
"""What limits a replica: how many requests it computes at once, or a target."""
MISSED_BY_SLOW: Final = 0.6 * (1 - ATTAINMENT)  # share of the requests that replicas which are too slow may serve
WORTH: Final = 0.85  # a slow variant is left out if the others alone cost less than this share
_STEPS: Final = 12  # halvings of a share of the sequences: to a five-thousandth of it
_LEAST: Final = 1e-9
Numbers = NDArray[np.float64]


def bounded(target: Target) -> Target:
    """Return a target with every number between 0 and ``LARGEST``."""
    ttft, itl, tps = [min(max(0.0, number), LARGEST) for number in (target.ttft, target.itl, target.tps)]
    return replace(target, ttft=ttft, itl=itl, tps=tps)


def known_service(profile: PerformanceProfile, prompt: float, answer: float, size: float) -> ServiceTimes | None:
    """Return a replica with parameters that the user gives, None if these cannot be true.

    ``prompt`` and ``answer`` are in tokens; at most ``size`` requests are computed at once.
    """
    alpha, beta, gamma, delta = profile.alpha, profile.beta, profile.gamma, profile.delta
    if not (min(alpha, beta, gamma, delta) >= 0.0 and max(alpha, beta, gamma, delta) <= LONGEST):
        return None
    growth, steps = delta * prompt, max(answer, 1.0) - 1.0
    slope = growth + steps * beta
    # In the formula of the profile, n includes the request itself.
    base = gamma + steps * alpha + slope
    service = ServiceTimes(base, slope, gamma + growth, growth, alpha + beta, beta, 0.0, size, 0.0)
    return service if service.usable else None


def learned_service(engine: EngineModel, size: float) -> ServiceTimes | None:
    """Return a replica as it was learned, None if that cannot be true; it computes ``size`` requests at once."""
    step, prompt = 1000.0 * engine.base, 1000.0 * engine.prefill
    slope = 1000.0 * engine.slope + prompt / engine.answer
    prefill, decode = engine.prompt_steps * step + prompt, step + 1000.0 * engine.slope
    base = prefill + engine.answer * decode
    service = ServiceTimes(base, slope * (1.0 + engine.answer), prefill, slope, decode, slope, 1.0, size, prompt)
    return service if service.usable else None


def known_batch(profile: PerformanceProfile, usual: float, answer: float) -> float:
    """Return how many requests a replica computes at once: so many that their answers have the tokens of the profile.

    ``usual`` is the number if the profile does not give one.
    """
    if profile.max_batch_size <= 0:
        return usual
    if profile.at_tokens <= 0:
        return float(profile.max_batch_size)
    batch = profile.max_batch_size * profile.at_tokens / max(answer, 1.0)
    return float(min(max(math.floor(batch), 1), MAX_BATCH_SIZE))


def assure(cases: Sequence[tuple[ServiceTimes, Target, float]]) -> list[Assured]:
    """Return what replicas take. A case is a replica, its target, and the number of replicas that share the load.

    If only the mean latency met a target, half of the requests would miss it. Single requests must meet it, so the
    latencies at a rarely exceeded load are compared with it. Everything is in closed form, on columns of numpy.
    """
    if not cases:
        return []
    rows = [
        (*astuple(service), max(1.0, among), target.ttft or np.inf, target.itl or np.inf, target.use)
        for service, target, among in cases
    ]
    columns: Numbers = np.array(rows, dtype=np.float64).T
    base, slope, size, wanted_ttft, wanted_itl, use = columns[[0, 1, 7, 10, 11, 12]]
    _, _, least_itl, least_ttft = _latencies(columns, np.zeros(len(rows)))
    possible_itl, possible_ttft = least_itl <= wanted_itl, least_ttft <= wanted_ttft
    bound_itl, bound_ttft = np.where(possible_itl, wanted_itl, np.inf), np.where(possible_ttft, wanted_ttft, np.inf)
    most_inside = np.where(possible_ttft, np.inf, size)
    # If the targets hold at a rate, they hold at all lower ones.
    top = np.minimum(use, MOST_USED) * size / (base + slope * size)
    rate, width = np.zeros(len(rows)), top
    fractions = np.arange(1, _POINTS + 1)[:, None] / _POINTS
    for _ in range(_ROUNDS):
        tried = rate + width * fractions
        _, inside, itl, ttft = _latencies(columns, tried)
        holds = (itl <= bound_itl) & (ttft <= bound_ttft) & (inside <= most_inside)
        held_count = np.logical_and.accumulate(holds, axis=0).sum(axis=0)
        rate, width = rate + width * (held_count / _POINTS), np.where(held_count < _POINTS, width / _POINTS, 0.0)
    mean, inside, itl, ttft = _latencies(columns, rate)
    by_itl = (rate < top) & (_latencies(columns, rate * _BEYOND)[2] > bound_itl)
    full = (rate >= top) | (inside >= size)
    limits = np.where(by_itl, ITL, np.where(full, SEQUENCES, TTFT))
    feasible = possible_itl & possible_ttft
    results = (rate * 1000, np.where(feasible, mean / size, 0.0), itl, ttft, least_itl, least_ttft, limits, feasible)
    return list(map(Assured, [service for service, _, _ in cases], *[column.tolist() for column in results]))


def _latencies(columns: Numbers, rate: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return for rates per ms the requests in a replica and the latencies in ms.

    The four results are the mean number of requests, and the number, the inter-token latency and the time to the first
    token that are rarely exceeded. At the rate 0 a request is alone. The time to the first token consists of the wait
    for a place, the prompts before it, and its own prompt. All places are taken with the probability of Halfin and
    Whitt, for few places with that of Sakasegawa; then the wait has an exponential tail.
    """
    base, slope, prefill, prefill_slope, decode, decode_slope, first, size, work, pooled = columns[:10]
    alone = 1 / np.maximum(1 - rate * slope, 1e-9)
    mean = rate * base * alone
    # The variance is that of one replica, as far as a router does not even it out.
    variance = mean * (alone / pooled + UNEVEN * (1 - 1 / pooled))
    inside = mean + DEVIATIONS * np.sqrt(variance)
    computed = np.minimum(inside, size)
    itl = decode + decode_slope * computed
    room = np.maximum((size - mean) / np.sqrt(np.maximum(variance, 1e-9)), 0)
    free = 1 / (1 + np.exp(-1.702 * np.minimum(room, 30)))
    taken = 1 / (1 + room * free * np.sqrt(2 * np.pi) * np.exp(np.minimum(room**2 / 2, 300.0)))
    few = np.minimum(mean / size, 1.0) ** (np.sqrt(2 * (size * pooled + 1)) - 1)
    taken = np.maximum(taken, taken * (few / np.maximum(taken, 1e-300)) ** (1 / np.sqrt(size)))
    spare_rate = np.maximum(size / (base + slope * size) - rate, 1e-12)
    place_wait = np.log(np.maximum(taken / MISSED, 1.0)) / (pooled * spare_rate)
    used = np.minimum(rate * work, MOST_USED)
    prompt_wait = work / (2 * (1 - used)) * np.log(np.maximum(used / MISSED, 1.0))
    return mean, inside, itl, place_wait + prompt_wait + prefill + prefill_slope * computed + first * itl


class UnderLoad(Struct, frozen=True, gc=False):
    """A replica at a rate: the share of its sequences in use, and latencies in ms that hardly any request exceeds.

    ``wait`` is the part of ``ttft`` in which a request waits for a place and for the prompts before its own.
    """

    used: float
    itl: float
    ttft: float
    wait: float


def under_load(service: ServiceTimes, rate: float, among: float) -> UnderLoad:
    """Return a replica at ``rate`` requests per second; ``among``: how many replicas share the load."""
    columns: Numbers = np.array([[*astuple(service), max(1.0, among)]], dtype=np.float64).T
    mean, inside, itl, ttft = [float(column[0]) for column in _latencies(columns, np.array([rate / 1000.0]))]
    computed = min(inside, service.size)
    wait = ttft - service.prefill - service.prefill_slope * computed - service.first * itl
    return UnderLoad(min(mean / service.size, 1.0), itl, ttft, max(0.0, wait))


class FleetVariant(Struct, frozen=True, gc=False):
    """A variant in a fleet: what a replica takes, its cost, and the least and the largest number of replicas."""

    assured: Assured
    cost: float = 1.0
    lowest: int = 0
    highest: float = math.inf


def usage(kinds: Sequence[FleetVariant], demand: float) -> float:
    """Return how far replicas are used in the cheapest fleet for a demand in requests per second, 0 if there is none.

    A router sends requests to the replica that is used least, so that all have the same share of their sequences in
    use. Variants that may not be used so much are left out, except for replicas that must stay. If these serve too many
    requests too slowly, the others are used less, so that there are more of them. A variant that never meets the
    targets counts for nothing.
    """
    options = []
    uses = [(kind.assured.used, kind) for kind in kinds]
    for level in sorted({use for use, _ in uses if use > 0}):
        slow = [kind for use, kind in uses if 0 < use < level]
        # The highest use up to the level at which the slow replicas that must stay serve few enough of all requests
        stay = [kind for kind in slow if kind.lowest]
        used, high, tried = max([kind.assured.used for kind in stay], default=level), level, level
        for _ in range(_STEPS + 1):
            if used >= high:
                break
            slowly = math.fsum([kind.lowest * kind.assured.rate_at(tried) for kind in stay])
            used, high = (tried, high) if slowly <= MISSED_BY_SLOW * demand else (used, tried)
            tried = (used + high) / 2
        cost = math.fsum([kind.cost * kind.lowest for kind in slow])
        left = demand - math.fsum([kind.assured.rate_at(used) * kind.lowest for kind in stay])
        rates = [(max(kind.assured.rate_at(used), _LEAST), kind) for use, kind in uses if use >= level]
        for rate, kind in sorted(rates, key=lambda entry: entry[1].cost / entry[0]):
            count = max(float(kind.lowest), min(left / rate, kind.highest))
            cost, left = cost + count * kind.cost, max(0.0, left - count * rate)
        options.append((left > 1e-9 * demand, cost / WORTH if slow else cost, used))
    return min(options, default=(True, 0.0, 0.0))[-1]


# What a model needs


class _Replica(Struct, frozen=True, gc=False):
    """One replica of a variant as a queue."""

    service: ServiceTimes
    bound: str  # what bounds its sequences
    basis: CapacityBasis  # where its parameters come from


class _Case(Struct, frozen=True, gc=False):
    """One model."""

    model: ModelReadings
    need: Need  # as observed
    memory: DemandMemory
    replicas: Mapping[VariantKey, _Replica]  # of the variants that can be sized
    target: Target
    promise: str  # whose target it is


def measure(
    models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float, observations: Observed
) -> tuple[list[Need], Memory]:
    """Return the needs of models in requests per second within their latency targets, and the same memory."""
    cases = [_case(model, observations[model.key], policy) for model in models]
    # Each replica is sized alone, which shows whether a target can be met, and then beside as many as the demand takes.
    # A router evens out the load of several replicas, so that each may be used more. It does not do so perfectly, so
    # the square root of their number counts.
    alone = _sized(cases, [case.target for case in cases], [{} for _ in cases])
    reached = [_reached(case, sized) for case, sized in zip(cases, alone, strict=True)]
    # The capacity should neither follow the chance of one cycle, nor be that of the time before a jump.
    past = {entry.key: entry for entry in memory.foreseen}
    loads = [_load(case.need.demand, past.get(case.model.key), now) for case in cases]
    pooled = [
        {key: math.sqrt(load / max(assured.rate, _LEAST_RATE)) for key, assured in sized.items()}
        for load, sized in zip(loads, alone, strict=True)
    ]
    beside = _sized(cases, [target for target, _ in reached], pooled)
    rows = zip(cases, beside, loads, reached, strict=True)
    return [_need(case, sized, load, remarks) for case, sized, load, (_, remarks) in rows], memory


def _load(demand: float, before: Foresight | None, now: float) -> float:
    """Return the demand that decides how many replicas share the load: the mean of the last cycles, or now if more.

    The demand now is the mean over the longest time that differs from this cycle by no more than chance.
    """
    if before is None or before.at is None or not before.at < now:
        return demand
    past = before.slots[-_RECENT:]
    seconds = sum([slot.seconds for slot in past])
    mean = sum([slot.amount for slot in past]) / seconds if past else 0.0
    slot = Slot(now, now - before.at, demand * (now - before.at))
    amount, seconds, _ = alike((*before.slots, slot), before.dispersion)
    return max(mean, amount / seconds)


def _case(model: ModelReadings, observation: ModelObservation, policy: Policy) -> _Case:
    """Return a model with its targets, and with a replica as a queue for each variant that can be sized."""
    memory = observation.after
    replicas: dict[VariantKey, _Replica] = {}
    settings = bounded_policy(policy.queueing_for(model.key) or QueueingPolicy())
    prompt, answer, held = memory.prompt.usual, memory.answer.usual, memory.held.usual
    # Variants of a model on as many GPUs of the same kind have the same parameters, also those that were never seen.
    kinds: dict[tuple[str, int], list[tuple[VariantReadings, VariantDemand]]] = {}
    if observation.need.hold is None and memory.prompt.many and memory.answer.many:
        for readings, entry in zip(model.variants, memory.variants, strict=True):
            variant = readings.progress.variant
            name = variant.accelerator or f"unknown/{variant.key.name}"
            kinds.setdefault((name, max(1, variant.gpus_per_replica)), []).append((readings, entry))
    for one_kind in kinds.values():
        # What was learned of several variants whose replicas are alike adds up.
        fits = [entry.fit for _, entry in one_kind if settings.tuning_enabled and entry.fit.shortest]
        fit = fits[0] if fits else Fit()
        if len(fits) > 1:
            rows = [
                tuple([math.fsum(numbers) for numbers in zip(*same, strict=True)])
                for same in zip(*[learned_fit.rows for learned_fit in fits], strict=True)
            ]
            fit = Fit(
                tuple(rows),
                min([learned_fit.shortest for learned_fit in fits]),
                max([learned_fit.at for learned_fit in fits]),
            )
        cache = kv_tokens([pod for readings, _ in one_kind for pod in readings.replicas])
        by_cache = KV_SHARE * cache / held if cache and held else math.inf
        waits = _queued([pod for _, entry in one_kind for pod in entry.pods])
        for readings, _ in one_kind:
            variant = readings.progress.variant
            profile = policy.profile_for(variant.model.model_id, variant.accelerator)
            max_num_seqs = 0 if variant.parameters is None else variant.parameters.max_num_seqs
            default_batch = float(max_num_seqs if max_num_seqs > 0 else DEFAULT_BATCH)
            batch = default_batch if profile is None else known_batch(profile, default_batch, answer)
            bound = KV_CACHE if by_cache < batch else SEQUENCES
            size = max(1.0, float(math.floor(min(batch, by_cache))))
            given = None if profile is None else known_service(profile, prompt, answer, size)
            learned = None
            if given is None or waits:
                engine = engine_of(fit, variant.parameters, cache, (prompt, answer, held), memory.variability)
                learned = None if engine is None else learned_service(engine, size)
            # Given parameters go before learned ones. While requests wait, those that promise far more are wrong.
            if learned is not None and (given is None or learned.most < BELIEVED_SHARE * given.most):
                replicas[readings.key] = _Replica(learned, bound, CapacityBasis.OBSERVED)
            elif given is not None:
                replicas[readings.key] = _Replica(given, bound, CapacityBasis.DERIVED)
    in_order = {readings.key: replicas[readings.key] for readings in model.variants if readings.key in replicas}
    # The targets are those of the model, else those of its service class, else none: then the rate alone counts.
    service = policy.service_target_for(model.key)
    tps = 0.0 if service is None else service.tps
    ttft, itl = settings.target_ttft_milliseconds, settings.target_itl_milliseconds
    if ttft > 0 and itl > 0:
        target, promise = Target(ttft, itl, tps), "its own targets"
    elif service is not None:
        target, promise = Target(service.ttft_milliseconds, service.itl_milliseconds, tps), "its service class"
    else:
        multiplier = settings.slo_multiplier if settings.slo_multiplier > 1 else DEFAULT_SLO_MULTIPLIER
        target, promise = Target(use=1 - 1 / multiplier), "no targets"
    return _Case(model, observation.need, memory, in_order, bounded(target), promise)


def _queued(pods: Sequence[PodMemory]) -> bool:
    """Tell whether requests wait because replicas are full."""
    waiting = sum([pod.waiting for pod in pods])
    return waiting > len(pods) and waiting > QUEUED_SHARE * sum([pod.running for pod in pods])


def _sized(
    cases: Sequence[_Case], targets: Sequence[Target], pooled: Sequence[Mapping[VariantKey, float]]
) -> list[dict[VariantKey, Assured]]:
    """Return what the replicas of each model take within its targets, all computed together."""
    rows = [
        (replica.service, target, among.get(key, 1.0))
        for case, target, among in zip(cases, targets, pooled, strict=True)
        for key, replica in case.replicas.items()
    ]
    results = iter(assure(rows))
    return [{key: next(results) for key in case.replicas} for case in cases]


def _reached(case: _Case, sized: Mapping[VariantKey, Assured]) -> tuple[Target, list[str]]:
    """Return the targets that can be met, and in words which of the wanted targets cannot.

    If any variant meets the wanted targets, these are returned, otherwise those that the nearest variant can meet.
    """
    target, words = case.target, []
    if any(assured.feasible for assured in sized.values()) or not sized:
        for key, assured in sized.items():
            if not assured.feasible:
                alone = f"TTFT {assured.least_ttft:.4g} ms and ITL {assured.least_itl:.4g} ms"
                words.append(f"{key.name} never meets the targets: a request alone takes {alone}")
        return target, words
    ttft, itl = target.ttft or math.inf, target.itl or math.inf
    excess = {key: max(assured.least_ttft / ttft, assured.least_itl / itl) for key, assured in sized.items()}
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


def _need(case: _Case, sized: Mapping[VariantKey, Assured], load: float, remarks: Sequence[str]) -> Need:
    """Return what a model needs once its replicas are sized. ``remarks``: which targets are out of reach, in words."""
    need, memory, target = case.need, case.memory, case.target
    hold = _hold(case)
    if hold is not None:
        return replace(need, hold=hold, summary=hold.message)
    kinds = {
        readings.key: _kind(readings.progress.variant, sized[readings.key])
        for readings in case.model.variants
        if readings.key in sized
    }
    # Until a variant can be sized, each replica counts as able to carry any demand.
    capacities = dict.fromkeys([readings.key for readings in case.model.variants], _ANY_DEMAND)
    wanted, answers = 0.0, None
    if kinds:
        other_rate = sum([pod.rate for entry in memory.variants if entry.key not in kinds for pod in entry.pods])
        capacities = _capacities(case, kinds, max(0.0, load - other_rate))
        wanted = max(need.demand - other_rate, target.tps / memory.answer.usual, 0.0)
        highest_rates = {key: kind.assured.rate_at(MOST_USED) for key, kind in kinds.items()}

        def answers(numbers: Mapping[VariantKey, int]) -> float:
            """Return what so many replicas get through, also beyond the targets."""
            return sum([numbers.get(key, 0) * rate for key, rate in highest_rates.items()])

    return replace(
        need,
        demand=wanted,
        required=wanted,
        sufficient=wanted,
        capacities=capacities,
        rate=None if need.rate is None else replace(need.rate, answers=answers, roomy=bool(sized)),
        objection=_objection(case, sized),
        summary=_summary(case, capacities, wanted, remarks),
        solved=QueueModel(wanted, memory.answer.usual, target, sized) if sized else None,
    )


def _hold(case: _Case) -> Absence | None:
    """Return why the model stays as it is, None if its need can be told."""
    model, need, memory = case.model, case.need, case.memory
    if model.failure is not None:
        return Absence(Reason.PROMETHEUS_ERROR, model.failure)
    if not any(readings.replicas for readings in model.variants):
        return Absence(Reason.NO_READY_REPLICAS, "no ready replica")
    if need.hold is not None or case.replicas:
        return need.hold
    running = any(pod.running for entry in memory.variants for pod in entry.pods)
    if need.demand <= 0 and _backlog(case) <= 0 and not running:
        return None
    if memory.prompt.many and memory.answer.many:
        return Absence(Reason.METRICS_INCOMPLETE, "no performance parameters, neither known nor learned")
    return Absence(Reason.METRICS_INCOMPLETE, "the size of the requests is not known yet")


def _backlog(case: _Case) -> float:
    """Return how many requests of a model wait, 0 if its demand is not known."""
    return 0.0 if case.need.rate is None else case.need.rate.backlog


def _kind(variant: Variant, assured: Assured) -> FleetVariant:
    """Return a variant with the numbers of replicas that it may have."""
    bounds = variant.bounds
    lowest = int(variant.active) if bounds.minimum is None else bounds.minimum
    return FleetVariant(assured, variant.cost, lowest, math.inf if bounds.maximum is None else bounds.maximum)


def _capacities(case: _Case, kinds: Mapping[VariantKey, FleetVariant], load: float) -> dict[VariantKey, Capacity]:
    """Return the capacities of replicas in the cheapest fleet for a load, where all of them are used alike."""
    used = usage(list(kinds.values()), load)
    capacities = dict.fromkeys([readings.key for readings in case.model.variants], UNKNOWN)
    for key, kind in kinds.items():
        replica, limit = case.replicas[key], kind.assured.limit
        rate = kind.assured.rate_at(used) if kind.assured.used >= used > 0 else LEFT_OUT * kind.assured.rate
        limit = replica.bound if limit == SEQUENCES else limit
        capacities[key] = Capacity(max(rate, _LEAST_RATE), replica.basis, limit)
    return capacities


def _objection(case: _Case, sized: Mapping[VariantKey, Assured]) -> str:
    """Return why nothing may shrink, empty if something may."""
    model, queue = case.model, case.model.queue
    unread = sum(map(_unread, model.variants))
    if objection := f"{replicas_in_words(unread)} unread" if unread else case.need.objection:
        return objection
    if queue is not None and queue.size.state not in {SampleState.FRESH, SampleState.MISSING}:
        return f"the scheduler's queue is {queue.size.state.value}"
    if _queued([pod for entry in case.memory.variants for pod in entry.pods]):
        return f"{_backlog(case):.4g} requests wait"
    if sized and any(readings.progress.variant.active and readings.key not in sized for readings in model.variants):
        return "not every variant can be sized"
    return ""


def _unread(readings: VariantReadings) -> int:
    """Return how many replicas of a variant serve without showing what the queueing model reads."""
    fresh = [
        engine.running.fresh_value is not None
        and engine.waiting.fresh_value is not None
        and (pod.counters is not None or engine.success_rate.fresh_value is not None)
        for pod in readings.replicas
        if (engine := pod.engine) is not None
    ]
    return max(0, readings.progress.serving - sum(fresh))


def _summary(case: _Case, capacities: Mapping[VariantKey, Capacity], wanted: float, remarks: Sequence[str]) -> str:
    """Return the figures in words; if a target is out of reach, also what the demand costs."""
    target, demand, backlog = case.target, case.need.demand, _backlog(case)
    takes = [
        f"{key.name} takes {capacity.per_replica:.4g} ({capacity.limit}; {_ORIGINS[capacity.basis]})"
        for key, capacity in capacities.items()
        if capacity.limit
    ]
    if not takes:
        return "nothing arrives and nothing waits"
    words = [f"{demand:.4g} requests/s arrive"]
    words += [f"{backlog:.4g} requests wait"] if backlog >= 1 else []
    within = f"within TTFT {target.ttft:.4g} ms and ITL {target.itl:.4g} ms ({case.promise})"
    if target.use < 1:
        within = f"at {target.use:.0%} of its highest rate ({case.promise})"
    words.append(f"{within} a replica of {', '.join(takes)}")
    if remarks:
        costs = {
            readings.key: readings.progress.variant.cost
            for readings in case.model.variants
            if readings.key in case.replicas
        }
        key = min(costs, key=lambda key: (costs[key] / capacities[key].per_replica, key))
        count = rounded_up(wanted / capacities[key].per_replica)
        price = f"at a cost of {costs[key] * count:.4g}"
        words += [*remarks, f"that takes {replicas_in_words(count)} of {key.name} {price}"]
    return "; ".join(words)
