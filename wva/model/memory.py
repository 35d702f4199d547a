"""The memory that a cycle leaves to the next; times are in seconds since the epoch, rates per second, None is unknown.

After a restart numbers and clocks are rebuilt from the VA status and the pods: no clock is reset and no number jumps
when another process takes over. What analyzers had learned is learned again from the past (``wva.look_back``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec import Struct

from wva.model.means import Mean
from wva.model.metrics import EngineCounters
from wva.model.objectives import Objectives
from wva.model.records import split
from wva.model.variant import ModelKey, Variant, VariantKey
from wva.model.vllm_parameters import VllmParameters

K2_WINDOW: Final = 10
RECORD_SECONDS: Final = 7 * 24 * 3600.0
HISTORY_SECONDS: Final = 24 * 3600.0

_STEPS_HALF_LIFE_SECONDS: Final = 900.0

LEVEL_STEP: Final = 1.2
"""Levels of demand are powers of this number."""


class CapacityBasis(StrEnum):
    """How the capacity of a replica is known, the firmest basis first."""

    OBSERVED = "observed"
    HISTORY = "history"
    DERIVED = "derived"
    KV_CACHE = "kv-cache"
    RECORD = "record"
    BORROWED = "borrowed"
    UNKNOWN = "unknown"


class LearnedFrom(StrEnum):
    """Where a record comes from."""

    LIVE = "live"
    DEPLOYMENT = "deployment"


class LengthBucket(StrEnum):
    """How long the answers are: what an engine carries depends on it."""

    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class CapacityRecord:
    """What is known of one variant's replicas, so that it can be judged while it has none.

    ``effective`` is what one replica carries in tokens; from a Deployment alone it is ``batched_tokens``.
    """

    variant: VariantKey
    accelerator: str
    gpus_per_replica: int
    kv_tokens: int
    effective: int
    learned_from: LearnedFrom
    updated: float
    parameters: VllmParameters | None = None


@dataclass(frozen=True, slots=True, order=True)
class EngineKind:
    """Engines of a model that carry the same while answers are equally long."""

    accelerator: str
    gpus_per_replica: int
    tensor_parallel_size: int
    bucket: LengthBucket


@dataclass(frozen=True, slots=True)
class K2History:
    """The last numbers of tokens that engines of a kind held when computation limited them, oldest first."""

    kind: EngineKind
    values: tuple[int, ...]
    updated: float

    def append(self, value: int, *, now: float) -> K2History:
        """Return the history with one more value; beyond ten the oldest goes."""
        return K2History(self.kind, (*self.values, value)[-K2_WINDOW:], now)

    @property
    def mean(self) -> int:
        """Mean of the values, truncated."""
        return int(sum(self.values) / len(self.values)) if self.values else 0


@dataclass(frozen=True, slots=True)
class LearnedCapacity:
    """What has been learned of one model, and since when. Records are sorted by variant, histories by kind."""

    model: ModelKey
    since: float
    records: tuple[CapacityRecord, ...] = ()
    histories: tuple[K2History, ...] = ()

    def without_old(self, now: float) -> LearnedCapacity:
        """Return the entries that are not too old to be used."""
        records = tuple(record for record in self.records if now - record.updated <= RECORD_SECONDS)
        histories = tuple(history for history in self.histories if now - history.updated <= HISTORY_SECONDS)
        return LearnedCapacity(self.model, self.since, records, histories)


@dataclass(frozen=True, slots=True)
class CapacityMemory:
    """What has been learned of all models, sorted by model."""

    models: tuple[LearnedCapacity, ...] = ()

    def of(self, model: ModelKey) -> LearnedCapacity | None:
        """Return what is known of a model, None when it is new."""
        position = bisect_left(self.models, model, key=lambda learned: learned.model)
        entry = self.models[position] if position < len(self.models) else None
        return entry if entry is not None and entry.model == model else None

    def updated(self, learned: Iterable[LearnedCapacity], *, now: float) -> CapacityMemory:
        """Return the memory after a cycle: analysed models are replaced, all others are kept until they are too old."""
        current = {entry.model: entry.without_old(now) for entry in learned}
        past = (entry.without_old(now) for entry in self.models if entry.model not in current)
        models = current | {entry.model: entry for entry in past if entry.records or entry.histories}
        return CapacityMemory(tuple(models[model] for model in sorted(models)))


NOTHING_LEARNED: Final = CapacityMemory()


class PodSteps(Struct, frozen=True, gc=False):
    """What a pod has told of its steps lately: sums over the gaps between tokens, older ones counted for less.

    ``seconds``: the time in which it had some. ``taken``: the seconds of the gaps. ``batch``: the answers in progress
    meanwhile. ``prefilled``: the prompt tokens that were computed meanwhile.
    """

    seconds: float = 0.0
    gaps: float = 0.0
    taken: float = 0.0
    batch: float = 0.0
    prefilled: float = 0.0

    def with_more(self, seconds: float, gaps: float, taken: float, batch: float, prefilled: float) -> PodSteps:
        """Return the sums with those of some ``seconds`` more."""
        decay = 0.5 ** (seconds / _STEPS_HALF_LIFE_SECONDS)
        return PodSteps(
            decay * self.seconds + seconds,
            decay * self.gaps + gaps,
            decay * self.taken + taken,
            decay * self.batch + batch,
            decay * self.prefilled + prefilled,
        )


class PodMemory(Struct, frozen=True, gc=False):
    """The last counters of a pod, its requests then, its arrivals per second, and what was credited to it since.

    ``derived``: the pod has no counters, and these follow from means. ``age``, in seconds, is that of the counters when
    they first came. ``untold``: the pod is new and has not been scraped, so the counters are those that it began with.
    """

    name: str
    counters: EngineCounters
    running: float
    waiting: float
    rate: float = 0.0
    credited: float = 0.0
    derived: bool = False
    age: float = 0.0
    untold: bool = False
    steps: PodSteps = PodSteps()


class Fit(Struct, frozen=True, gc=False):
    """What has been learned of the steps of a variant's engines: decayed sums of a weighted least squares fit.

    ``rows`` are those of X'WX, each with its part of X'Wy behind it. ``shortest`` is the shortest step, in seconds.
    Engines that compute prompts only have no time between tokens. For these, WVA remembers how long prompts took
    (``prompt_seconds``), and how many tokens the engines computed in that time (``prompt_tokens``); both are decayed.
    """

    rows: tuple[tuple[float, ...], ...] = ((0.0,) * 5,) * 4
    shortest: float = 0.0
    at: float = 0.0
    prompt_seconds: float = 0.0
    prompt_tokens: float = 0.0


class Slot(Struct, frozen=True, gc=False):
    """The demand of a time that ended ``at`` and was ``seconds`` long.

    ``early``: it began with a short cycle, because the load of a model had risen, and no pod came or went in it.
    ``partial``: it ends with a short cycle that showed a jump, so it has demand from before and from after the jump.
    For seconds that are no slot yet it means that pods came or went, so their demand has to even out.
    """

    at: float
    seconds: float
    amount: float
    early: bool = False
    partial: bool = False


class Block(Struct, frozen=True, gc=False):
    """A time as long as the lead time: the demand foreseen at its begin, and the highest demand in it.

    Demand while replicas vanished counts as higher, in the ratio in which their capacity fell.
    """

    begun: float
    foreseen: float
    peak: float


class Level(Struct, frozen=True, gc=False):
    """A level of demand; ``number`` is its power of ``LEVEL_STEP``.

    ``left`` is when demand left the level, None while it is there, and ``reached`` when it reached it last.
    ``returns`` are how long demand took to come back, ``stays`` how long it was there, newest last.
    """

    number: int
    reached: float
    left: float | None = None
    returns: tuple[float, ...] = ()
    stays: tuple[float, ...] = ()

    @property
    def value(self) -> float:
        """The demand of the level, per second."""
        return float(LEVEL_STEP**self.number)


class VariantDemand(Struct, frozen=True, gc=False):
    """What the demand analyzer remembers of a variant.

    ``load``: requests in a replica, relative to replicas of other variants. ``kv_tokens``: the size of a replica's KV
    cache when one reported it last, 0 before that. ``away``: pods that were Ready, and may become Ready again.
    """

    key: VariantKey
    fit: Fit = Fit()
    pods: tuple[PodMemory, ...] = ()
    load: float = 0.0
    kv_tokens: float = 0.0
    away: tuple[PodMemory, ...] = ()


class DemandMemory(Struct, frozen=True, gc=False):
    """What the demand analyzer remembers of a model.

    ``prompt`` and ``answer`` are the tokens computed for a request, ``held`` those in the KV cache for it. ``queue`` is
    what waited at the gateway. ``owed`` is by how many arrivals too many were counted; below 0: too few.
    ``unevenness``: how far the loads of replicas differ, 0 not at all, 1 as by chance. ``variability``: squared
    variation of the lengths of prompts. ``first``: how long first tokens take at pods that get their prompts from
    others, in seconds.
    """

    key: ModelKey
    at: float | None = None
    variants: tuple[VariantDemand, ...] = ()
    prompt: Mean = Mean()
    answer: Mean = Mean()
    held: Mean = Mean()
    queue: float = 0.0
    owed: float = 0.0
    unevenness: float = 0.3
    variability: float = 0.0
    first: Mean = Mean()


class Correction(Struct, frozen=True, gc=False):
    """By which ``factor`` WVA asks for more than a model seems to need, because its users got less than was planned.

    A look compares the share of requests in time with the objective.

    ``calm``: from when on looks count; None before the first cycle. ``short``: whether the replicas did not carry the
    demand in the last cycle. ``demand``: the demand when it last changed clearly, per second. ``room``: the least
    number of times that the replicas have carried what is needed since the last look; None if they have not carried it.

    ``looked``: when WVA looked last. ``raised``: when it raised the factor last. ``requests``: how many requests the
    looks since then have shown, older ones counted for less. ``missed``: how many of them were late. ``sized``: the sum
    of the ``room`` over these late requests.

    Raises are judged together: ``judged`` is the room before them, 0 if there are none, ``first`` the factor before
    them, and ``late`` the share of late requests before them. ``vain``: until when WVA tries no raise.
    """

    factor: float = 1.0
    calm: float | None = None
    short: bool = False
    demand: float = 0.0
    room: float | None = None
    looked: float = 0.0
    raised: float = 0.0
    requests: float = 0.0
    missed: float = 0.0
    sized: float = 0.0
    judged: float = 0.0
    first: float = 1.0
    late: float = 0.0
    vain: float = 0.0


class LatePrice(Struct, frozen=True, gc=False):
    """What a replica costs while it is missed: ``worth`` times its price.

    ``looked``: when WVA last looked at the share of requests in time, in seconds since the epoch; 0 before that.
    ``requests``: how many requests the looks have shown, older ones counted for less; ``late``: how many of these were
    late.
    """

    worth: float = 15.0
    looked: float = 0.0
    requests: float = 0.0
    late: float = 0.0


class ShrinkTrial(Struct, frozen=True, gc=False):
    """A shrink: the numbers that have been asked for since, and what they seemed to carry at the time.

    ``at`` is in seconds since the epoch, ``carries`` in the unit of the demand.
    """

    numbers: tuple[tuple[VariantKey, int], ...]
    at: float
    carries: float


class Regret(Struct, frozen=True, gc=False):
    """A shrink that left too few replicas: their ``numbers``, and the ``room`` that they seemed to have.

    ``room``: how many times the demand that was too much for them they had seemed to carry. ``at`` is when that
    happened last, in seconds since the epoch, and ``times`` how often it has happened.
    """

    numbers: tuple[tuple[VariantKey, int], ...]
    room: float
    at: float
    times: int = 1


class Foresight(Struct, frozen=True, gc=False):
    """The forecast for a model, and the data behind it.

    ``begun`` and ``at`` are the times of the first and the last cycle. ``rest`` is demand that is not in the ``slots``
    yet. ``dispersion``: variance of the demand of a cycle over that of pure chance. ``reserved``: times, and the demand
    to be ready for at each, newest last, without amounts below a later one. ``start_ups``: how long the last pods of
    each variant took to become Ready, in seconds. ``regular``: how long the last cycle was that the fast lane had not
    woken for any model, in seconds; 0 before there is one. ``correction``: what users got against what was planned.
    ``asked`` are the numbers of the last cycle, ``trial`` is the last shrink, ``regret`` a shrink that left too few
    replicas. ``price`` is that of a missed replica. ``ready`` are the Ready replicas of the last cycle. ``objectives``
    are those for which ``correction`` and ``price`` were learned; None before that.
    """

    key: ModelKey
    begun: float | None = None
    at: float | None = None
    slots: tuple[Slot, ...] = ()
    rest: Slot | None = None
    dispersion: float = 1.0
    reserved: tuple[tuple[float, float], ...] = ()
    blocks: tuple[Block, ...] = ()
    levels: tuple[Level, ...] = ()
    start_ups: tuple[tuple[VariantKey, tuple[float, ...]], ...] = ()
    regular: float = 0.0
    correction: Correction = Correction()
    asked: tuple[tuple[VariantKey, int], ...] = ()
    trial: ShrinkTrial | None = None
    regret: Regret | None = None
    price: LatePrice = LatePrice()
    ready: tuple[tuple[VariantKey, int], ...] = ()
    objectives: Objectives | None = None


class VariantMemory(Struct, frozen=True, gc=False):
    """The last number of a variant, since when it has been unsettled, and the most Ready pods seen since then.

    ``settling_since`` is None while settled; then ``ready_replicas`` are those of the last cycle. ``decided`` is False
    if no cycle had data on the variant: then the number is only the replicas that existed, and WVA may use the present
    replicas instead.
    """

    key: VariantKey
    desired: int
    settling_since: float | None
    ready_replicas: int
    decided: bool = True


class PodPeak(Struct, frozen=True, gc=False):
    """What a replica has reported: KV usage (share) and queue length (requests), None if it was not fresh.

    ``at`` is when it was scraped last, in seconds since the epoch. Recordings of older versions do not have it.
    """

    pod: str
    kv_usage: float | None
    queue_length: float | None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Shrink:
    """A shrink of a model: the replicas that it leaves, and the demand before it in the unit of its analyzer.

    ``at`` is when it was decided, or when it was regretted. Recordings of older versions have no demand: any demand
    counts as higher.
    """

    replicas: int
    demand: float = 0.0
    at: float = 0.0


class ModelMemory(Struct, frozen=True, gc=False):
    """What is remembered of a model.

    The percentage analyzer compares ``peaks``, sorted by pod, with those of later scrapes. In a cycle without a new
    scrape it compares the peaks with the ``earlier`` ones, of the scrapes before. ``shrunk`` is the last shrink until
    it is regretted, ``regretted`` the last one after which the model wanted to grow. ``answered`` is the demand for
    which the replicas under way were asked for, in the unit of the analyzer; None when none are under way.
    """

    key: ModelKey
    peaks: tuple[PodPeak, ...] = ()
    shrunk: Shrink | None = None
    regretted: Shrink | None = None
    answered: float | None = None
    earlier: tuple[PodPeak, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """One entry per variant of the last cycle, sorted by key, and what WVA has learned of models.

    ``models`` has an entry for each model that the percentage analyzer remembers, sorted by key. ``failing`` are the
    models on which the last cycle could not decide, sorted. ``demand`` is that of models whose requests are counted.
    """

    variants: tuple[VariantMemory, ...] = ()
    capacity: CapacityMemory = NOTHING_LEARNED
    models: tuple[ModelMemory, ...] = ()
    failing: tuple[ModelKey, ...] = ()
    demand: tuple[DemandMemory, ...] = ()
    foreseen: tuple[Foresight, ...] = ()

    def by_key(self) -> dict[VariantKey, VariantMemory]:
        """Return the entries by variant."""
        return {entry.key: entry for entry in self.variants}

    def grouped(
        self, groups: Mapping[ModelKey, int], places: Mapping[VariantKey, int | None], count: int
    ) -> list[Memory]:
        """Return ``count`` memories, each with the models and the variants to which the mappings give its index."""
        variants = split(self.variants, lambda entry: places.get(entry.key), count)
        learned = split(self.capacity.models, lambda entry: groups.get(entry.model.whole), count)
        models = split(self.models, lambda entry: groups.get(entry.key.whole), count)
        failing = split(self.failing, groups.get, count)
        demand = split(self.demand, lambda entry: groups.get(entry.key.whole), count)
        foreseen = split(self.foreseen, lambda entry: groups.get(entry.key.whole), count)
        return [
            Memory(
                variants[index],
                CapacityMemory(learned[index]),
                models[index],
                failing[index],
                demand[index],
                foreseen[index],
            )
            for index in range(count)
        ]


def previous_of(variant: Variant, entry: VariantMemory | None) -> int | None:
    """Return the number published last, None if there is none or if it was 0.

    A number that was kept without any history does not count: it would undo a later change by another client. For a
    variant at zero replicas a number counts only if it was to start the variant and has not been reached yet.
    """
    remembered = entry.desired if entry is not None else 0
    if not variant.active:
        starting = entry is not None and entry.settling_since is not None and entry.ready_replicas == 0
        return remembered if starting and remembered > 0 else None
    if entry is not None and not entry.decided:
        return None
    if remembered > 0:
        return remembered
    status = variant.status_desired
    return status if status is not None and status > 0 else None
