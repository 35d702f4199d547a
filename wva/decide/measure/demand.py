"""The demand analyzer: what arrives, in requests per second, and what one replica of each variant carries of it.

In: the variants of a model, what their Ready pods tell, the requests that wait at the gateway, and the memory. Out: a
``Need`` and the memory for the next cycle.

Where signals are missing, it does with less, step by step:

1. A pod whose last scrape failed is credited what it had before (``demand_arrivals``).
2. A pod without counters is counted from the means that it tells of the last minutes.
3. A variant of which nothing has been learned is taken to carry a little less for its price than the best other one.
4. Nothing is known of any variant, or no pod tells anything: there is no answer, ``Need.hold`` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Final

from msgspec import Struct

from wva.decide.measure.demand_arrivals import Change, change
from wva.decide.measure.demand_engine import USUAL_TARGETS, Engine, LatencyTargets, engine_of, learned
from wva.decide.measure.need import Capacity, Need
from wva.decide.measure.percentage import Percentage
from wva.decide.trust import ModelReadings
from wva.model.absence import Absence
from wva.model.capacity import CapacityBasis
from wva.model.decision import Reason
from wva.model.demand import DemandMemory, VariantDemand
from wva.model.memory import Memory
from wva.model.metrics import ReplicaMetrics
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.variant import ModelKey, Variant, VariantKey

UNIT: Final = "requests/s"
_FEWEST_IN_FLIGHT: Final = 3.0
_LOAD_MEMORY: Final = 0.05
_UNEVENNESS_MEMORY: Final = 0.03
_SEEN_PART: Final = 0.3
"""A request is in progress for several cycles, so that each look at it counts as this part of a request."""
_FEW_WAIT: Final = 0.05
_PAIRS: Final = 300.0
"""The variation of the lengths of prompts is a mean over about so many looks at a pod."""
_MOST_VARIED: Final = 1.0
_OWED_SECONDS: Final = 60.0
"""Arrivals that were counted too many are taken off later ones, at most those of this time (seconds)."""
_ASSUMED: Final = 0.9
"""For its price, a variant of which nothing is known carries this share of what the best other one carries."""


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What replicas carry together.

    ``weights``: requests that the gateway gives a replica, relative to replicas of other variants. ``batches`` and
    ``sums`` are what has been computed.
    """

    engines: Mapping[VariantKey, Engine]
    weights: Mapping[VariantKey, float]
    unevenness: float
    batches: dict[tuple[VariantKey, int], float] = field(default_factory=dict)
    sums: dict[tuple[tuple[VariantKey, int], ...], float] = field(default_factory=dict)

    def batch(self, key: VariantKey, together: int) -> float:
        """Return the batch that a replica may have in a fleet of this size."""
        found = self.batches.get((key, together))
        if found is None:
            alone = self.unevenness + max(0.0, 1.0 - self.unevenness) / max(1, together)
            found = self.batches[key, together] = self.engines[key].batch(alone)
        return found

    def alone(self, key: VariantKey, together: int) -> float:
        """Return the requests per second that a replica carries among so many of its kind."""
        return self.engines[key].rate(self.batch(key, together))

    def carries(self, counts: Mapping[VariantKey, int]) -> float:
        """Return the requests per second that replicas of several variants carry together.

        The gateway gives each replica its part of the requests in progress, and each kind bears another load of the
        whole. The harmonic mean of these loads counts, weighted by the requests that each kind serves: where few
        requests go to a kind that has too many, few are late.
        """
        asked = tuple(counts.items())
        found = self.sums.get(asked)
        if found is None:
            found = self.sums[asked] = self._carries(counts)
        return found

    def _carries(self, counts: Mapping[VariantKey, int]) -> float:
        together = sum(counts.values())
        rated = [
            (counts[key], engine, self.weights[key], self.batch(key, together) / self.weights[key])
            for key, engine in self.engines.items()
            if counts.get(key)
        ]
        if not rated:
            return 0.0
        load = lowest = min([own for _, _, _, own in rated])
        if len(rated) > 1:
            parts = [(count * engine.rate(lowest * weight), own) for count, engine, weight, own in rated]
            load = sum([part for part, _ in parts]) / sum([part / own for part, own in parts])
        return sum([count * engine.rate(min(engine.most, load * weight)) for count, engine, weight, _ in rated])


class Observation(Struct, frozen=True, gc=False):
    """What happened at a model since the last cycle.

    Attributes:
        need: what arrives and waits, without what replicas carry; ``hold`` says why nothing can be told.
        before: what was remembered.
        after: what to remember; ``before`` itself, where nothing can be told.
        changes: what each variant did; empty where nothing can be told.

    """

    need: Need
    before: DemandMemory
    after: DemandMemory
    changes: Sequence[Change] = ()


class Observations:
    """Observes each model once in a cycle, for all analyzers that count its requests.

    ``after`` is what to remember of each; an analyzer may put there what it has learned besides.
    """

    def __init__(self, memory: Memory) -> None:
        """``memory`` is what the last cycle left."""
        self._before = {entry.key: entry for entry in memory.demand}
        self.after: dict[ModelKey, DemandMemory] = {}
        self._found: dict[ModelKey, Observation] = {}

    def of(self, model: ModelReadings, now: float) -> Observation:
        """Return what happened at a model since the last cycle. ``now`` is in seconds since the epoch."""
        found = self._found.get(model.key)
        if found is None:
            before = self._before.get(model.key) or DemandMemory(model.key)
            found = self._found[model.key] = observed(model, before, now)
            self.after[model.key] = found.after
        return found


class Demand:
    """Measures in requests per second what arrives, and what replicas carry of it."""

    def __init__(self, observations: Observations) -> None:
        """``observations`` are those of this cycle."""
        self._observations = observations

    def measure(
        self, models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float
    ) -> tuple[list[Need], Memory]:
        """Return the needs of models, in their order, and what the next cycle must know.

        A model of which nothing is known yet gets the need of the percentage analyzer.
        """
        needs = []
        for model in models:
            need, self._observations.after[model.key] = measure(model, self._observations.of(model, now))
            needs.append(need)
        unknown = [model for model, need in zip(models, needs, strict=True) if need.hold is not None]
        if unknown:
            found, memory = Percentage().measure(unknown, memory, policy, now)
            instead = iter(found)
            needs = [need if need.hold is None else _instead(next(instead), need, need.hold.message) for need in needs]
        return needs, memory


def measure(
    model: ModelReadings, seen: Observation, targets: LatencyTargets = USUAL_TARGETS
) -> tuple[Need, DemandMemory]:
    """Return the need of a model that was observed, and what to remember."""
    need, after = seen.need, seen.after
    if not seen.changes:
        return need, after
    variants = [each.progress.variant for each in model.variants]
    sizes = (after.prompt.usual, after.answer.usual, after.held.usual)
    engines = [
        engine_of(entry.fit, variant.parameters, found.kv_tokens, sizes, targets, seen.before.variability)
        for variant, entry, found in zip(variants, after.variants, seen.changes, strict=True)
    ]
    after = replace(after, unevenness=_unevenness(after.unevenness, engines, seen.changes))
    if need.hold is not None:
        return need, after
    if not min(after.prompt.many, after.answer.many, after.held.many) or not any(engines):
        why = Absence(Reason.METRICS_MISSING, "nothing is known yet of what its replicas carry")
        return replace(need, hold=why, objection=""), after
    fleet = _fleet(variants, engines, [entry.load for entry in after.variants], after.unevenness)
    present = max(1, sum([variant.current_replicas for variant in variants]))
    capacities = {
        variant.key: Capacity(fleet.alone(variant.key, present), CapacityBasis.BORROWED)
        if engine is None
        else Capacity(fleet.alone(variant.key, present), CapacityBasis.OBSERVED, engine.limit)
        for variant, engine in zip(variants, engines, strict=True)
    }
    return replace(need, capacities=capacities, carries=fleet.carries), after


def observed(model: ModelReadings, memory: DemandMemory, now: float) -> Observation:
    """Return what happened at a model since the last cycle. ``now`` is in seconds since the epoch."""
    if model.failure is not None:
        return Observation(_nothing(model.key, model.failure), memory, memory)
    if memory.at is not None and now < memory.at:
        # The clock was set back: what has a time begins anew, what has been learned stays.
        anew = [replace(entry, pods=()) for entry in memory.variants]
        memory = replace(memory, at=None, variants=tuple(anew), owed=0.0)
    last = now if memory.at is None else memory.at
    if memory.at is not None and now <= last:
        return Observation(_nothing(model.key, "no time has passed since the last measurement"), memory, memory)
    waiting = None if model.queue is None else model.queue.size.fresh_value
    waiting = memory.queue if waiting is None else waiting
    known = {entry.key: entry for entry in memory.variants}
    entries = [known.get(each.key) or VariantDemand(each.key) for each in model.variants]
    changes = [
        change(each.replicas, {pod.name: pod for pod in entry.pods}, kv_tokens(each.replicas), last, now)
        for each, entry in zip(model.variants, entries, strict=True)
    ]
    pods = [pod for each in model.variants for pod in each.replicas]
    if pods and not [found for found in changes if found.told]:
        causes = [f" ({pod.pod}: {pod.counters_detail})" for pod in pods if pod.counters_detail]
        why = f"no Ready pod tells anything{min(causes, default='')}"
        return Observation(_nothing(model.key, why), memory, memory)
    prompt, answer, held = memory.prompt, memory.answer, memory.held
    arrived = backlog = 0.0
    complete, moved = True, False
    for found in changes:
        arrived += found.arrived
        backlog += found.waiting
        complete, moved = complete and found.complete, moved or found.moved
        prompt = prompt.with_more(found.prompt_tokens, found.prompts)
        answer = answer.with_more(found.answer_tokens, found.answers)
        held = held.with_more(found.held * _SEEN_PART, found.running * _SEEN_PART)
    loads = _loads([entry.load for entry in entries], changes)
    told = [
        VariantDemand(
            entry.key,
            learned(entry.fit, found, held=held.usual, now=now) if held.many else entry.fit,
            found.pods,
            load,
        )
        for entry, found, load in zip(entries, changes, loads, strict=True)
    ]
    arrived = arrived + waiting - memory.queue - memory.owed
    rate = max([sum([pod.rate for each in kept for pod in each.pods]) for kept in (entries, changes)])
    after = DemandMemory(
        model.key,
        at=now,
        variants=tuple(told),
        prompt=prompt,
        answer=answer,
        held=held,
        queue=waiting,
        owed=min(max(0.0, -arrived), _OWED_SECONDS * rate),
        unevenness=memory.unevenness,
        variability=_variability(memory.variability, prompt.usual, changes),
    )
    if now <= last:
        # Perhaps the controller was started again, and has forgotten what was before.
        first = _nothing(model.key, "this is the first measurement", "nothing shrinks in the first cycle")
        return Observation(first, memory, after, changes)
    seconds = now - last
    demand = max(0.0, arrived) / seconds
    need = Need(
        model.key,
        UNIT,
        demand,
        demand,
        demand,
        {},
        backlog=backlog + waiting,
        foreseeable=True,
        error=sqrt(max(demand, 1.0 / seconds) / seconds),
        objection="" if complete else "not every pod has told of itself lately",
        unsettled=moved,
        recalls=True,
        summary=f"{demand:.3g} requests/s of {prompt.usual:.0f} + {answer.usual:.0f} tokens",
    )
    return Observation(need, memory, after, changes)


def _instead(need: Need, unknown: Need, why: str) -> Need:
    """Return the need of the percentage analyzer, which says why demand is not known, and objects if that does."""
    words = f"{need.summary}; demand is not known: {why}".removeprefix("; ")
    return replace(need, summary=words, objection=need.objection or unknown.objection)


def _nothing(key: ModelKey, why: str, objection: str = "") -> Need:
    """Return a need that says why there is no answer."""
    return Need(key, UNIT, 0.0, 0.0, 0.0, {}, hold=Absence(Reason.METRICS_MISSING, why), objection=objection)


def kv_tokens(replicas: Sequence[ReplicaMetrics]) -> float:
    """Return the size of a replica's KV cache in tokens, 0 if none tells; where they differ, that of most of them."""
    told = [replica.engine.kv_capacity_tokens.value or 0.0 for replica in replicas if replica.engine is not None]
    sizes = sorted([size for size in told if size >= 1.0])
    return sizes[(len(sizes) - 1) // 2] if sizes else 0.0


def _fleet(
    variants: Sequence[Variant], engines: Sequence[Engine | None], loads: Sequence[float], unevenness: float
) -> _Fleet:
    """Return what the variants are in a fleet.

    One that was never seen is like the best other one, but as fast as its price lets expect. What the gateway gives a
    replica is taken to follow from how many sequences fit, until it is measured.
    """
    usual = [load / engine.most for engine, load in zip(engines, loads, strict=True) if engine is not None and load]
    scale = sum(usual) / len(usual) if usual else 1.0
    kinds = {variant.key: engine for variant, engine in zip(variants, engines, strict=True) if engine is not None}
    if len(kinds) < len(variants):
        prices = {variant.key: max(variant.cost, 1e-9) for variant in variants}
        best = max(kinds, key=lambda key: kinds[key].rate(kinds[key].batch(0.25)) / prices[key])
        kinds = {
            key: kinds.get(key) or kinds[best].faster(_ASSUMED * price / prices[best]) for key, price in prices.items()
        }
    weights = {
        variant.key: load or scale * kinds[variant.key].most for variant, load in zip(variants, loads, strict=True)
    }
    return _Fleet(kinds, weights, unevenness)


def _loads(before: list[float], changes: Sequence[Change]) -> list[float]:
    """Return what replicas of each variant have in progress, relative to those of other variants; decayed."""
    means = [sum(found.loads) / len(found.loads) if found.loads else 0.0 for found in changes]
    both = [mean for mean in means if mean > 0.0]
    if len(both) <= 1 or min(both) < _FEWEST_IN_FLIGHT:
        return before
    shares = [mean / sum(both) for mean in means]
    return [
        old if not share else share if not old else old + _LOAD_MEMORY * (share - old)
        for old, share in zip(before, shares, strict=True)
    ]


def _unevenness(before: float, engines: Sequence[Engine | None], changes: Sequence[Change]) -> float:
    """Return how far the loads of replicas of a variant differ, against chance; decayed."""
    for engine, found in zip(engines, changes, strict=True):
        mean = sum(found.loads) / max(1, len(found.loads))
        # While requests wait, and while pods come and go, loads differ for other reasons.
        calm = not found.moved and found.waiting <= _FEW_WAIT * found.running
        if engine is None or len(found.loads) <= 1 or mean < _FEWEST_IN_FLIGHT or not found.gaps or not calm:
            continue
        variance = sum([(load - mean) ** 2 for load in found.loads]) / (len(found.loads) - 1)
        by_chance = mean * max(1.0, found.step / found.gaps / engine.base)
        weight = _UNEVENNESS_MEMORY * min(4, len(found.loads) - 1)
        before += weight * (min(3.0, variance / by_chance) - before)
    return max(0.0, min(1.5, before))


def _variability(before: float, usual: float, changes: Sequence[Change]) -> float:
    """Return the squared variation of the lengths of prompts, decayed. The sums of more prompts tell more of it."""
    lengths = [pair for found in changes for pair in found.lengths]
    prompts = sum([number for number, _ in lengths])
    if prompts < 1.0 or usual < 1.0:
        return before
    squares = sum([(tokens - number * usual) ** 2 for number, tokens in lengths])
    weight = min(1.0, len(lengths) / _PAIRS)
    return max(0.0, min(_MOST_VARIED, before + weight * (min(5.0, squares / (usual * usual * prompts)) - before)))
