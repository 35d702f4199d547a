"""The demand analyzer: what arrives, in requests per second, and what one replica of each variant carries of it.

Where signals are missing, the analyzer goes on with less, step by step:

1. A pod whose last scrape failed is credited with requests at its last rate (``demand_arrivals``).
2. For a pod without counters, the means over the last minutes that it reports replace them.
3. A variant of which nothing has been learned is assumed to carry a little less for its price than the best other one.
4. If nothing is known of any variant, or no pod reports, there is no answer, and ``Need.hold`` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Final

from msgspec import Struct

from wva.decide.amounts import preferred
from wva.decide.measure import percentage
from wva.decide.measure.demand_arrivals import VariantChange, at_once, change, spread, still_uneven
from wva.decide.measure.demand_engine import (
    EngineModel,
    engine_of,
    learned,
    learned_prompts,
    prompt_engine_of,
    sequences_of,
)
from wva.decide.measure.demand_siblings import slow_pods
from wva.decide.measure.need import Capacity, DemandRate, Need
from wva.decide.trust import ModelReadings, VariantReadings
from wva.model.decision import Aim, Reason
from wva.model.memory import CapacityBasis, DemandMemory, Memory, PodMemory, VariantDemand
from wva.model.metrics import ReplicaMetrics
from wva.model.objectives import NOTHING_ASKED, AgreedObjectives, Objectives, time_in_words
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.roles import DECODE, PREFILL, computes
from wva.model.trouble import Absence
from wva.model.variant import ModelKey, Variant, VariantKey

UNIT: Final = "requests/s"
_FEWEST_IN_FLIGHT: Final = 3.0
_LOAD_MEMORY: Final = 0.05
_UNEVENNESS_MEMORY: Final = 0.03
_FULL_WEIGHT: Final = 2.0  # a variance by chance from which a cycle counts in full; with less it is mostly noise
_SEEN_PART: Final = 0.3
"""A request is in progress for several cycles, so each cycle that sees it counts this part of a request."""
_FEW_WAIT: Final = 0.05
_FEW_REQUESTS: Final = 550.0  # at 4 per second so many come while pods start
_MOST_AWAY: Final = 64  # so many pods of a variant that are not Ready are remembered
_PAIRS: Final = 300.0  # the variation of prompt lengths is a mean over about so many readings of a pod
_MOST_VARIED: Final = 1.0
_OWED_SECONDS: Final = 60.0
"""Arrivals that were counted too many are subtracted from later ones, at most those of this time (seconds)."""
_ASSUMED: Final = 0.9
"""For its price, a variant of which nothing is known carries this share of what the best other one carries."""


@dataclass(frozen=True, slots=True)
class FleetCapacity:
    """What replicas carry together; ``batches`` and ``sums`` are caches of results."""

    engines: Mapping[VariantKey, EngineModel]
    weights: Mapping[VariantKey, float]  # requests that the gateway gives a replica, relative to other variants
    unevenness: float
    batches: dict[tuple[VariantKey, int], float] = field(default_factory=dict)
    sums: dict[tuple[tuple[VariantKey, int], ...], float] = field(default_factory=dict)

    def batch(self, key: VariantKey, together: int) -> float:
        """Return the batch that a replica may have in a fleet of this size."""
        batch = self.batches.get((key, together))
        if batch is None:
            alone = self.unevenness + max(0.0, 1.0 - self.unevenness) / max(1, together)
            batch = self.batches[key, together] = self.engines[key].batch(alone)
        return batch

    def alone(self, key: VariantKey, together: int) -> float:
        """Return the requests per second that a replica carries among so many of its kind."""
        return self.engines[key].rate(self.batch(key, together))

    def carries(self, counts: Mapping[VariantKey, int]) -> float:
        """Return the requests per second that replicas of several variants carry together.

        The gateway gives each replica its part of the requests in progress. Each variant can bear a different load of
        the whole. The harmonic mean of these loads counts, weighted by the requests that each variant serves: if a
        variant that gets too many requests serves few of all requests, few requests are late.
        """
        fleet = tuple(counts.items())
        if fleet in self.sums:
            return self.sums[fleet]
        together = sum(counts.values())
        rated = [
            (counts[key], engine, self.weights[key], self.batch(key, together) / self.weights[key])
            for key, engine in self.engines.items()
            if counts.get(key)
        ]
        load = lowest = min([bearable for _, _, _, bearable in rated], default=0.0)
        if len(rated) > 1:
            parts = [(count * engine.rate(lowest * weight), bearable) for count, engine, weight, bearable in rated]
            load = sum([part for part, _ in parts]) / sum([part / bearable for part, bearable in parts])
        carried = [count * engine.rate(min(engine.most, load * weight)) for count, engine, weight, _ in rated]
        total = self.sums[fleet] = sum(carried, 0.0)
        return total

    def answers(self, counts: Mapping[VariantKey, int]) -> float:
        """Return the requests per second that replicas get through with all their places taken."""
        return sum([counts.get(key, 0) * engine.rate(engine.most) for key, engine in self.engines.items()], 0.0)


class ModelObservation(Struct, frozen=True, gc=False):
    """What happened at a model since the last cycle."""

    need: Need  # what arrives and waits, without what replicas carry; ``hold`` says why nothing can be told
    before: DemandMemory  # what was remembered
    after: DemandMemory  # what to remember; the same as ``before`` if nothing can be told
    changes: Sequence[VariantChange] = ()  # what each variant did; empty if nothing can be told


Observed = Mapping[ModelKey, ModelObservation]


def measure(
    models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float, observations: Observed
) -> tuple[list[Need], Memory]:
    """Return the needs of models in requests per second, in their order, and the memory.

    A model of which nothing is known yet gets the need of the percentage analyzer. Its summary also says why the demand
    is not known, and an objection of either analyzer counts.
    """
    needs, memories = [], {entry.key: entry for entry in memory.demand}
    handovers = _handovers(models, observations)
    for model in models:
        agreed = objectives_of(model, policy)
        handover = 0.0 if computes(model.key.role, DECODE) else handovers.get(model.key.whole, 0.0)
        need, memories[model.key] = need_of(model, observations[model.key], agreed, handover)
        needs.append(need)
    memory = replace(memory, demand=tuple(memories.values()))
    unknown = {index: need.hold.message for index, need in enumerate(needs) if need.hold is not None}
    if unknown:
        substitutes, memory = percentage.measure(
            [models[index] for index in unknown], memory, policy, now, observations
        )
        for (index, reason), substitute in zip(unknown.items(), substitutes, strict=True):
            words = f"{substitute.summary}; demand is not known: {reason}".removeprefix("; ")
            needs[index] = replace(
                substitute,
                summary=words,
                objection=substitute.objection or needs[index].objection,
                unusable=needs[index].unusable,
                aims=needs[index].aims,
            )
    return needs, memory


def _handovers(models: Sequence[ModelReadings], observations: Observed) -> dict[ModelKey, float]:
    """Return by model in roles how long first tokens take at its decode pods, in seconds: the longest of its roles.

    A prompt that is computed comes to a decode pod, which gets its KV cache and computes one step.
    """
    handovers: dict[ModelKey, float] = {}
    for model in models:
        if not computes(model.key.role, PREFILL):
            key = model.key.whole
            handovers[key] = max(handovers.get(key, 0.0), observations[model.key].after.first.usual)
    return handovers


def need_of(
    model: ModelReadings, observation: ModelObservation, agreed: AgreedObjectives = NOTHING_ASKED, handover: float = 0.0
) -> tuple[Need, DemandMemory]:
    """Return the need of a model that was observed, within its objectives, and what to remember.

    ``handover``: how long a first token takes after its prompt has left these pods, in seconds.
    """
    objectives, after = agreed.objectives, observation.after
    variability = observation.before.variability
    variants = [readings.progress.variant for readings in model.variants]
    engines = _engines(variants, observation, objectives, handover)
    kinds = {variant.key: engine for variant, engine in zip(variants, engines, strict=True) if engine is not None}
    sizes_known = _sizes_known(after, [variant.role for variant in variants])
    aims = {variant.key: Aim(objectives, agreed.words) for variant in variants}
    if sizes_known and observation.before.at is not None:
        # What replicas can reach is known from earlier cycles, too, so it stays while nothing is measured.
        aims |= {key: _aim(engine, key, agreed, variability) for key, engine in kinds.items()}
    need = replace(observation.need, aims=aims, slow=_slow(observation, kinds))
    if not observation.changes:
        return need, after
    after = replace(after, unevenness=_unevenness(after.unevenness, engines, observation.changes))
    if need.hold is not None or need.rate is None:
        return need, after
    if not sizes_known or not kinds:
        absence = Absence(Reason.METRICS_INCOMPLETE, "nothing is known yet of what its replicas carry")
        unusable = (
            "" if any(variant_change.kv_tokens for variant_change in observation.changes) else _cache_unknown(model)
        )
        return replace(need, hold=absence, objection="", unusable=unusable), after
    # Until loads are measured, WVA assumes that they are in proportion to the sequences that fit into a replica.
    loads = {entry.key: entry.load for entry in after.variants}
    ratios = [loads[key] / engine.most for key, engine in kinds.items() if loads[key]]
    scale = sum(ratios) / len(ratios) if ratios else 1.0
    if len(kinds) < len(variants):
        # A variant that was never seen counts like the best other one, with a speed in proportion to its price.
        prices = {variant.key: max(variant.cost, 1e-9) for variant in variants}
        best = max(kinds, key=lambda key: kinds[key].rate(kinds[key].batch(0.25)) / prices[key])
        kinds = {
            key: kinds.get(key) or kinds[best].faster(_ASSUMED * price / prices[best]) for key, price in prices.items()
        }
        aims = {key: _aim(engine, key, agreed, variability) for key, engine in kinds.items()}
    weights = {key: loads[key] or scale * engine.most for key, engine in kinds.items()}
    fleet = FleetCapacity(kinds, weights, after.unevenness)
    present = max(1, sum([variant.current_replicas for variant in variants]))
    capacities = {}
    for variant, engine in zip(variants, engines, strict=True):
        basis, limit = (CapacityBasis.BORROWED, "") if engine is None else (CapacityBasis.OBSERVED, engine.limit)
        capacities[variant.key] = Capacity(fleet.alone(variant.key, present), basis, limit)
    ceiling = sum([fleet.batch(readings.key, present) * readings.progress.serving for readings in model.variants])
    # The capacity for sizes that few requests have shown is uncertain. So what it is short of is not sure to pile up:
    # after a change of sizes, nothing is ordered to drain what the replicas can get through late.
    # Of engines that compute prompts only, the time of a prompt is measured. So what they get through is always known.
    few_requests = min(after.prompt.many, after.answer.many) < _FEW_REQUESTS
    answers = fleet.answers if few_requests or not computes(model.key.role, DECODE) else None
    rate = replace(need.rate, answers=answers, ceiling=ceiling)
    return replace(need, capacities=capacities, carries=fleet.carries, rate=rate, aims=aims), after


def _engines(
    variants: Sequence[Variant], observation: ModelObservation, objectives: Objectives, handover: float
) -> list[EngineModel | None]:
    """Return what is known of a replica of each variant, None where nothing was learned yet.

    Where no replica has reported in this cycle, it is what earlier cycles have shown.
    """
    after, variability = observation.after, observation.before.variability
    sizes = (after.prompt.usual, after.answer.usual, after.held.usual)
    entries = {entry.key: entry for entry in after.variants}
    known = [entries.get(variant.key, VariantDemand(variant.key)) for variant in variants]
    caches = [change.kv_tokens for change in observation.changes] or [entry.kv_tokens for entry in known]
    engines: list[EngineModel | None] = []
    for variant, fit, kv_tokens in zip(variants, [entry.fit for entry in known], caches, strict=True):
        if computes(variant.role, DECODE):
            engines.append(engine_of(fit, variant.parameters, kv_tokens, sizes, variability, objectives))
        else:
            engines.append(prompt_engine_of(fit, variant.parameters, sizes[0], variability, objectives, handover))
    return engines


def _slow(observation: ModelObservation, kinds: Mapping[VariantKey, EngineModel]) -> dict[VariantKey, str]:
    """Return in words which pods are slower than others of their variant, by variant that has some."""
    prompt = max(observation.after.prompt.usual, 1.0)
    told = {
        entry.key: slow_pods(entry.pods, kinds[entry.key], prompt, entry.fit)
        for entry in observation.after.variants
        if entry.key in kinds and entry.fit.shortest
    }
    return {key: words for key, words in told.items() if words}


def _unevenness(unevenness: float, engines: Sequence[EngineModel | None], changes: Sequence[VariantChange]) -> float:
    """Return how far the loads of replicas of a variant differ, compared with chance: 0 not at all, 1 as by chance.

    While requests wait, and while pods come and go, loads differ for other reasons. Requests are whole: if there is one
    request for two replicas, one of them has it, however even the gateway is. So this least difference is subtracted on
    both sides. Where few requests are in progress, little is left then, and it counts for little.
    """
    for engine, variant_change in zip(engines, changes, strict=True):
        pods = len(variant_change.loads)
        calm = not variant_change.moved and variant_change.waiting <= _FEW_WAIT * variant_change.running
        if engine is None or pods <= 1 or not calm:
            continue
        mean = sum(variant_change.loads) / pods
        fraction = mean % 1.0
        least_variance = fraction * (1.0 - fraction) * pods / (pods - 1)
        slowdown = variant_change.step / variant_change.gaps / engine.base if variant_change.gaps else 1.0
        by_chance = mean * max(1.0, slowdown) - least_variance
        variance = sum([(load - mean) ** 2 for load in variant_change.loads]) / (pods - 1) - least_variance
        weight = _UNEVENNESS_MEMORY * min(4, pods - 1) / max(_FULL_WEIGHT, by_chance)
        unevenness += weight * (max(0.0, min(3.0 * by_chance, variance)) - unevenness * by_chance)
    return max(0.0, min(1.5, unevenness))


def _sizes_known(memory: DemandMemory, roles: Sequence[str]) -> bool:
    """Tell whether the sizes of requests are known that count for pods of these roles.

    Prompts are already computed when they come to pods that compute nothing but answers.
    """
    prompts = memory.prompt.many > 0.0 or not any(computes(role, PREFILL) for role in roles)
    held = memory.held.many > 0.0 or not any(computes(role, DECODE) for role in roles)
    return prompts and held and memory.answer.many > 0.0


def objectives_of(model: ModelReadings, policy: Policy) -> AgreedObjectives:
    """Return the objectives of a model, from the policy and the annotations of all its variants, those at zero too."""
    asked = [readings.progress.variant.asked for readings in (*model.variants, *model.asleep)]
    return policy.objectives_for(
        model.key, [*(objectives for objectives in asked if objectives is not None), *model.asked]
    )


def _aim(engine: EngineModel, key: VariantKey, agreed: AgreedObjectives, variability: float) -> Aim:
    """Return the objectives that are planned for with a variant.

    If nobody asked for any, the words do not say which cannot be reached.
    """
    asked, reached = agreed.objectives, engine.reached(variability)
    if reached is asked:
        return Aim(reached, agreed.words)
    planned, beyond = {}, []
    for name, words in (("ttft_seconds", "the first token"), ("itl_seconds", "the time between tokens")):
        wanted, nearest = getattr(asked, name), getattr(reached, name)
        planned[name] = wanted if nearest <= wanted else preferred(nearest)
        if nearest > wanted:
            beyond.append(f"{words} within {time_in_words(wanted)}: {time_in_words(planned[name])} is the nearest")
    unreachable = f"no number of replicas of {key.name} reaches {' and '.join(beyond)}" if agreed.words else ""
    return Aim(replace(asked, **planned), agreed.words, unreachable)


def observed(model: ModelReadings, memory: DemandMemory, now: float) -> ModelObservation:
    """Return what happened at a model since the last cycle. ``now`` is in seconds since the epoch."""
    obstacle = model.failure
    if obstacle is None and memory.at == now:
        obstacle = "no time has passed since the last measurement"
    if obstacle is not None:
        return ModelObservation(_nothing(model.key, obstacle), memory, memory)
    if memory.at is not None and now < memory.at:
        # The clock was set back: forget everything that has a time, and keep what has been learned.
        reset = [replace(entry, pods=(), away=()) for entry in memory.variants]
        memory = replace(memory, at=None, variants=tuple(reset), owed=0.0)
    last = now if memory.at is None else memory.at
    by_key = {entry.key: entry for entry in memory.variants}
    entries = [by_key.get(readings.key) or VariantDemand(readings.key) for readings in model.variants]
    changes = _changes(model, entries, last, now)
    pods = [pod for readings in model.variants for pod in readings.replicas]
    if pods and not any(variant_change.has_report for variant_change in changes):
        causes = [f" ({pod.pod}: {pod.counters_detail})" for pod in pods if pod.counters_detail]
        reason = f"no Ready pod tells anything{min(causes, default='')}"
        nothing = replace(_nothing(model.key, reason), unusable=min(causes, default="").strip(" ()"))
        return ModelObservation(nothing, memory, memory)
    known = _with_sizes(memory, changes, decodes_only=not computes(model.key.role, PREFILL))
    queue = None if model.queue is None else model.queue.size.fresh_value
    queue = memory.queue if queue is None else queue
    arrived = sum([variant_change.arrived for variant_change in changes])
    left = sum([variant_change.left for variant_change in changes])
    owed = memory.owed if memory.owed > 0.0 else memory.owed * at_once(now - last)
    arrived = arrived + queue - memory.queue - owed
    rate = max([sum([pod.rate for item in group for pod in item.pods]) for group in (entries, changes)])
    after = replace(
        known,
        at=now,
        variants=_learned_variants(model, entries, changes, known, now),
        queue=queue,
        owed=min(max(0.0, -arrived), _OWED_SECONDS * rate) + memory.owed - owed - left,
    )
    if memory.at is None:
        # Perhaps the controller was started again and has lost its memory.
        first_need = _nothing(model.key, "this is the first measurement", "nothing shrinks in the first cycle")
        return ModelObservation(first_need, memory, after, changes)
    need = _measured(model.key, max(0.0, arrived), changes, now - last, before=memory, after=after)
    return ModelObservation(need, memory, after, changes)


def _changes(model: ModelReadings, entries: Sequence[VariantDemand], last: float, now: float) -> list[VariantChange]:
    """Return what the pods of each variant have done since the last cycle. ``entries``: what is remembered of them."""
    before = [{pod.name: pod for pod in entry.pods} for entry in entries]
    away = [{pod.name: pod for pod in entry.away} for entry in entries]
    replicas = [readings.ready_pods for readings in model.variants]
    parts = spread(list(zip(replicas, before, strict=True)), last, now)
    uneven = still_uneven([pod for variant_pods in replicas for pod in variant_pods], now)
    return [
        change(
            variant_pods,
            pods,
            expected,
            kv_tokens(variant_pods),
            last,
            now,
            away=earlier,
            sequences=sequences_of(readings.progress.variant.parameters),
            uneven=uneven,
        )
        for readings, variant_pods, pods, earlier, expected in zip(
            model.variants, replicas, before, away, parts, strict=True
        )
    ]


def _away(readings: VariantReadings, entry: VariantDemand, reported: Sequence[PodMemory]) -> tuple[PodMemory, ...]:
    """Return the pods of a variant that were Ready, exist perhaps, and have told nothing since: those of ``reported``.

    A pod that is not Ready may be one of them if it is old enough.
    """
    ready = {pod.pod for pod in readings.ready_pods}
    told = {pod.name for pod in reported if not pod.untold}
    oldest = readings.progress.variant.oldest_unready_since
    left = [
        pod
        for pod in (*entry.pods, *entry.away)
        if not pod.untold
        and pod.name not in told
        and (pod.name in ready or (oldest is not None and pod.counters.at >= oldest))
    ]
    return tuple(sorted(left, key=lambda pod: (-pod.counters.at, pod.name))[:_MOST_AWAY])


def _with_sizes(memory: DemandMemory, changes: Sequence[VariantChange], *, decodes_only: bool) -> DemandMemory:
    """Return the memory with what a cycle has shown of requests: their lengths, and how long first tokens take."""
    running = sum([variant_change.running for variant_change in changes])
    prompt = memory.prompt.with_more(
        sum([variant_change.prompt_tokens for variant_change in changes]),
        sum([variant_change.prompts for variant_change in changes]),
    )
    answer = memory.answer.with_more(
        sum([variant_change.answer_tokens for variant_change in changes]),
        sum([variant_change.answers for variant_change in changes]),
    )
    held = memory.held.with_more(
        _SEEN_PART * sum([variant_change.held for variant_change in changes]),
        _SEEN_PART * running,
    )
    first = memory.first
    # While requests wait at decode pods, first tokens take longer there because of that.
    if decodes_only and sum([variant_change.waiting for variant_change in changes]) <= _FEW_WAIT * running:
        first = first.with_more(
            sum([variant_change.first_seconds for variant_change in changes]),
            sum([variant_change.firsts for variant_change in changes]),
        )
    # The squared variation of the lengths of prompts
    variability, lengths = memory.variability, [pair for variant_change in changes for pair in variant_change.lengths]
    prompts = sum([number for number, _ in lengths])
    if prompts >= 1.0 and prompt.usual >= 1.0:
        squares = sum([(tokens - number * prompt.usual) ** 2 for number, tokens in lengths])
        surprise = min(5.0, squares / (prompt.usual * prompt.usual * prompts)) - variability
        variability = max(0.0, min(_MOST_VARIED, variability + min(1.0, len(lengths) / _PAIRS) * surprise))
    return replace(memory, prompt=prompt, answer=answer, held=held, variability=variability, first=first)


def _learned_variants(
    model: ModelReadings,
    entries: Sequence[VariantDemand],
    changes: Sequence[VariantChange],
    known: DemandMemory,
    now: float,
) -> tuple[VariantDemand, ...]:
    """Return what is remembered of each variant with what its engines did. ``known``: the lengths of requests."""
    learned_entries = []
    for readings, entry, variant_change, load in zip(
        model.variants, entries, changes, _loads(entries, changes), strict=True
    ):
        variant, fit = readings.progress.variant, entry.fit
        if not computes(variant.role, DECODE):
            fit = learned_prompts(fit, variant_change, variant.parameters, known.variability, now)
        elif known.held.many:
            fit = learned(fit, variant_change, held=known.held.usual, now=now)
        cache = variant_change.kv_tokens or entry.kv_tokens
        away = _away(readings, entry, variant_change.pods)
        learned_entries.append(VariantDemand(entry.key, fit, variant_change.pods, load, cache, away))
    return tuple(learned_entries)


def _loads(entries: Sequence[VariantDemand], changes: Sequence[VariantChange]) -> list[float]:
    """Return the requests that replicas of each variant have in progress, relative to those of other variants."""
    loads = [entry.load for entry in entries]
    means = [sum(variant_change.loads) / max(1, len(variant_change.loads)) for variant_change in changes]
    positive = [mean for mean in means if mean > 0.0]
    if not (len(positive) > 1 and min(positive) >= _FEWEST_IN_FLIGHT):
        return loads
    shares = [mean / sum(positive) for mean in means]
    return [
        old + _LOAD_MEMORY * (share - old) if old and share else share or old
        for old, share in zip(loads, shares, strict=True)
    ]


def _measured(
    key: ModelKey,
    arrived: float,
    changes: Sequence[VariantChange],
    seconds: float,
    *,
    before: DemandMemory,
    after: DemandMemory,
) -> Need:
    """Return the need for the requests that arrived in so many seconds; how many replicas it takes is not known yet."""
    demand = arrived / seconds
    pods = [pod for variant_change in changes for pod in variant_change.pods]
    complete = all(variant_change.complete for variant_change in changes)
    return Need(
        key,
        UNIT,
        demand,
        demand,
        demand,
        {},
        DemandRate(
            error=sqrt(max(demand, 1.0 / seconds) / seconds),
            backlog=sum([variant_change.waiting for variant_change in changes]) + after.queue,
            refused=sum([variant_change.refused for variant_change in changes]) / seconds,
            scraped=sum([pod.rate for pod in pods]) + max(0.0, after.queue - before.queue) / seconds,
            unsettled=any(variant_change.moved for variant_change in changes),
            in_progress=sum([pod.running + pod.waiting for pod in pods]) + after.queue,
        ),
        objection="" if complete else "not every pod has told of itself lately",
        recalls=True,
        summary=f"{demand:.3g} requests/s of {after.prompt.usual:.0f} + {after.answer.usual:.0f} tokens",
    )


def _cache_unknown(model: ModelReadings) -> str:
    """Return in words why the size of the KV cache of no replica is known."""
    sizes = [
        (pod.pod, pod.engine.kv_capacity_tokens) for variant in model.variants for pod in variant.replicas if pod.engine
    ]
    return next((f"{pod}: {size.detail or 'no series vllm:cache_config_info'}" for pod, size in sizes), "")


def _nothing(key: ModelKey, reason: str, objection: str = "") -> Need:
    """Return a need that says why there is no answer."""
    return Need(key, UNIT, 0.0, 0.0, 0.0, {}, hold=Absence(Reason.METRICS_INCOMPLETE, reason), objection=objection)


def kv_tokens(replicas: Sequence[ReplicaMetrics]) -> float:
    """Return the size of a replica's KV cache in tokens, 0 if none reports it; where they differ, the median."""
    reported = [replica.engine.kv_capacity_tokens.value or 0.0 for replica in replicas if replica.engine is not None]
    sizes = sorted([size for size in reported if size >= 1.0])
    return sizes[(len(sizes) - 1) // 2] if sizes else 0.0
