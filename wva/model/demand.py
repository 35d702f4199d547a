"""What is remembered of the demand for a model: what its pods counted, what was learned, and what came back.

Serialisable, small and bounded. Times are seconds since the epoch, rates are per second. None is not known, which is
not zero.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

from msgspec import Struct

from wva.model.metrics import EngineCounters
from wva.model.variant import ModelKey, VariantKey

LEVEL_STEP: Final = 1.2
"""Levels of demand are powers of this number."""

LONGEST_TOKENS: Final = 1e8
"""No request has more tokens."""
_USUAL: Final = 1500.0
"""Sizes are means over about so many requests."""
_RECENT: Final = 60.0
"""A shift of sizes shows in about so many requests."""
_SHIFT: Final = 1.3
"""A recent mean that differs by this factor, and by more than chance, replaces the usual one."""
_CHANCE: Final = 4.0
"""Standard errors of the recent mean that are no chance."""
_SAMPLES: Final = 30.0
_MOST_VARIED: Final = 5.0
_SMALLEST: Final = 1e-9


class PodMemory(Struct, frozen=True, gc=False):
    """The last counters of a pod, its requests then, its arrivals per second, and what was credited to it since.

    ``derived``: the pod tells no counters, these follow from means. ``age``: how old the counters were when they came
    first, in seconds.
    """

    name: str
    counters: EngineCounters
    running: float
    waiting: float
    rate: float = 0.0
    credited: float = 0.0
    derived: bool = False
    age: float = 0.0


class Mean(Struct, frozen=True, gc=False):
    """A mean over many requests and one over the last few, each with the requests behind it.

    ``varied`` is the squared variation of the sizes.
    """

    usual: float = 0.0
    many: float = 0.0
    recent: float = 0.0
    few: float = 0.0
    varied: float = 1.0

    def with_more(self, total: float, count: float) -> Mean:
        """Return it with so many requests of this total size. It begins anew when the last few differ much."""
        if count <= 0.0 or not 0.0 < total <= LONGEST_TOKENS * count:
            return self
        few, many = min(self.few, max(0.0, _RECENT - count)), min(self.many, max(0.0, _USUAL - count))
        recent = (self.recent * few + total) / (few + count)
        usual = (self.usual * many + total) / (many + count)
        few, many = few + count, many + count
        chance = _CHANCE * sqrt(self.varied / few) * max(usual, recent)
        if few >= _RECENT / 2.0 and not usual / _SHIFT < recent < usual * _SHIFT and abs(recent - usual) > chance:
            return Mean(recent, few, recent, few, self.varied)
        gap = total / count / max(usual, _SMALLEST) - 1.0
        surprise = min(_MOST_VARIED, count * gap * gap)
        return Mean(usual, many, recent, few, self.varied + (surprise - self.varied) / _SAMPLES)


class Fit(Struct, frozen=True, gc=False):
    """What has been learned of the steps of a variant's engines: decayed sums of a weighted least squares fit.

    ``rows`` are those of X'WX, each with its part of X'Wy behind it. ``shortest`` is the shortest step, in seconds.
    """

    rows: tuple[tuple[float, ...], ...] = ((0.0,) * 5,) * 4
    shortest: float = 0.0
    at: float = 0.0


class Slot(Struct, frozen=True, gc=False):
    """What was asked for in a time that ended ``at`` and was ``seconds`` long."""

    at: float
    seconds: float
    amount: float


class Block(Struct, frozen=True, gc=False):
    """A time as long as a replica takes to start: the demand foreseen at its begin, and the highest one in it."""

    begun: float
    foreseen: float
    peak: float


class Level(Struct, frozen=True, gc=False):
    """A level of demand by its number.

    ``left`` is when it was left, None while demand is there, and ``reached`` when it was reached last; ``returns`` are
    how long it took to come back, ``stays`` how long it was there, newest last.
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
    """What is remembered of a variant. ``load``: requests in a replica, relative to replicas of other variants."""

    key: VariantKey
    fit: Fit = Fit()
    pods: tuple[PodMemory, ...] = ()
    load: float = 0.0


class DemandMemory(Struct, frozen=True, gc=False):
    """What the demand analyzer remembers of a model.

    ``prompt`` and ``answer`` are tokens computed of a request, ``held`` those in the KV cache for it. ``queue`` is what
    waited at the gateway. ``owed`` are arrivals that were counted too many. ``unevenness``: how far the loads of
    replicas differ, 0 not at all, 1 as by chance. ``variability``: squared variation of the lengths of prompts.
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


class Foresight(Struct, frozen=True, gc=False):
    """What was foreseen of a model, and from what.

    ``begun`` and ``at`` are the first and the last cycle. ``rest`` is demand that is not in the ``slots`` yet.
    ``dispersion``: variance of the demand of a cycle over that of pure chance. ``reserved``: what was to be carried,
    newest last, each with its time and without what was less than a later one. ``start_ups``: how long the last pods of
    each variant took to become Ready, in seconds.
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
