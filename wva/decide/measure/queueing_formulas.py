"""A replica as a queue: what it takes within latency targets. Formulas: docs/design/queueing-formulas.md.

From the bottom up: how long an engine takes for requests of one size (``ServiceTimes``), the rate at which requests one
by one meet targets (``assure``), and how far variants of different speed behind one router may be used (``usage``).

A replica computes n requests at once, and everything that it does takes a time that is linear in n.

A target for the mean latency is met by about half of the requests. Where requests one by one shall meet it, the
latencies at a load that is exceeded rarely are compared. Everything is in closed form, so that all replicas of a fleet
take a few dozen operations on columns of numpy. At a rate x the mean number of requests in a replica is N = x * base /
(1 - x * slope), since a request takes base + slope * n ms among n. Their variance is N / (1 - x * slope), less where a
router evens out several replicas, and more where requests differ in size.

A router sends requests to the replica that is used least, so that all replicas have the same share of their sequences
in use, the slow ones too. The slow ones therefore limit how far all others may be used, unless the few requests that
they serve too slowly are within what may miss the targets. A variant that never meets them counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from wva.decide.amounts import LARGEST
from wva.decide.measure.demand_engine import EngineModel
from wva.model.records import replace
from wva.model.service import MAX_BATCH_SIZE, PerformanceProfile

SHORTEST: Final = 1e-6
LONGEST: Final = 1e12
"""Bounds of a service time in ms, beyond which rates would have no meaning in floating point."""
ATTAINMENT: Final = 0.95
"""Share of the requests that shall meet their targets."""
MISSED: Final = (1 - ATTAINMENT) / 2
"""Share of the requests that may miss a target while the load is steady. As many may miss it because load rises too
fast."""
DEVIATIONS: Final = 2.0
"""Standard deviations above its mean that a load exceeds with this probability."""
UNEVEN: Final = 0.35
"""Share of the variance that a router does not even out: it does not know how long answers will be."""
MOST_USED: Final = 0.97
"""Share of the highest rate that may be used at all."""
_ROUNDS: Final = 4
_POINTS: Final = 64  # rates of an interval that are tried at once, in so many rounds: to 1e-7 of it
_BEYOND: Final = 1 + 1e-5  # a rate that is beyond the limit that was found, by more than its error
SEQUENCES, ITL, TTFT = "sequences", "ITL", "TTFT"
"""What limits a replica: how many requests it computes at once, or a target."""
MISSED_BY_SLOW: Final = 0.6 * (1 - ATTAINMENT)
"""Share of the requests that replicas which are too slow may serve."""
WORTH: Final = 0.85
"""A slow variant is left out if the others alone cost less than this share."""
_STEPS: Final = 12  # halvings of a share of the sequences: to a five-thousandth of it
_LEAST: Final = 1e-9
Numbers = NDArray[np.float64]


class Target(Struct, frozen=True, gc=False):
    """Wanted time to first token and inter-token latency in ms, and tokens per second; 0 means no target.

    At most the share ``use`` of the highest rate of a replica is planned with.
    """

    ttft: float = 0.0
    itl: float = 0.0
    tps: float = 0.0
    use: float = 1.0


class ServiceTimes(Struct, frozen=True, gc=False):
    """One replica for requests of one size. Times in ms, of a request among n others; at most ``size`` at once.

    A request takes ``base`` + ``slope`` * n, its prompt ``prefill`` + ``prefill_slope`` * n, a decode step ``decode`` +
    ``decode_slope`` * n. ``first`` is 1 where the first token takes a decode step. A prompt keeps others waiting for
    ``work``.
    """

    base: float
    slope: float
    prefill: float
    prefill_slope: float
    decode: float
    decode_slope: float
    first: float
    size: float
    work: float

    @property
    def most(self) -> float:
        """Requests per ms with as many at once as it computes."""
        return self.size / (self.base + self.slope * self.size)

    @property
    def usable(self) -> bool:
        """Whether rates have a meaning in floating point."""
        return self.base >= SHORTEST and self.base + self.slope * self.size <= LONGEST


def bounded(target: Target) -> Target:
    """Return a target with every number between 0 and ``LARGEST``."""
    ttft, itl, tps = [min(max(0.0, each), LARGEST) for each in (target.ttft, target.itl, target.tps)]
    return replace(target, ttft=ttft, itl=itl, tps=tps)


def known_service(profile: PerformanceProfile, prompt: float, answer: float, size: float) -> ServiceTimes | None:
    """Return a replica with parameters that the user gives, None where these cannot be true.

    ``prompt`` and ``answer`` are in tokens; at most ``size`` requests are computed at once.
    """
    alpha, beta, gamma, delta = profile.alpha, profile.beta, profile.gamma, profile.delta
    if not (min(alpha, beta, gamma, delta) >= 0.0 and max(alpha, beta, gamma, delta) <= LONGEST):
        return None
    growth, steps = delta * prompt, max(answer, 1.0) - 1.0
    slope = growth + steps * beta
    # Here n counts the request itself.
    base = gamma + steps * alpha + slope
    found = ServiceTimes(base, slope, gamma + growth, growth, alpha + beta, beta, 0.0, size, 0.0)
    return found if found.usable else None


def learned_service(engine: EngineModel, size: float) -> ServiceTimes | None:
    """Return a replica as it was learned, None where that cannot be true; ``size`` requests at once at most."""
    step, prompt = 1000.0 * engine.base, 1000.0 * engine.prefill
    slope = 1000.0 * engine.slope + prompt / engine.answer
    prefill, decode = engine.prompt_steps * step + prompt, step + 1000.0 * engine.slope
    base = prefill + engine.answer * decode
    found = ServiceTimes(base, slope * (1.0 + engine.answer), prefill, slope, decode, slope, 1.0, size, prompt)
    return found if found.usable else None


def known_batch(profile: PerformanceProfile, usual: float, answer: float) -> float:
    """Return how many requests a replica computes at once: as many tokens of answers as the profile says.

    ``usual`` is the number where the profile does not say any.
    """
    if profile.max_batch_size <= 0:
        return usual
    if profile.at_tokens <= 0:
        return float(profile.max_batch_size)
    batch = profile.max_batch_size * profile.at_tokens / max(answer, 1.0)
    return float(min(max(math.floor(batch), 1), MAX_BATCH_SIZE))


class Assured(Struct, frozen=True, gc=False):
    """What a replica takes: ``rate`` in requests per second, with the share ``used`` of its sequences, and its limit.

    ``itl`` and ``ttft`` are the latencies in ms that hardly any request exceeds at that rate, ``least_itl`` and
    ``least_ttft`` those of a request that is alone. ``feasible`` is false where one of these is above its target: then
    the rate is the one at the limit that is left. A request takes ``base`` + ``slope`` * n ms among n, and ``size`` are
    computed at once.
    """

    rate: float
    used: float
    itl: float
    ttft: float
    least_itl: float
    least_ttft: float
    limit: str
    feasible: bool
    base: float
    slope: float
    size: float

    def rate_at(self, used: float) -> float:
        """Return the requests per second while this share of the sequences is in use."""
        inside = used * self.size
        return 1000 * inside / (self.base + self.slope * inside)


def assure(services: Sequence[ServiceTimes], targets: Sequence[Target], pooled: Sequence[float]) -> list[Assured]:
    """Return for each replica and its target what it takes; ``pooled``: among how many a router evens out the load."""
    if not services:
        return []
    rows = [
        (*(each.base, each.slope, each.prefill, each.prefill_slope, each.decode, each.decode_slope, each.first),
         *(each.size, each.work, max(1.0, among), target.ttft or np.inf, target.itl or np.inf, target.use))
        for each, target, among in zip(services, targets, pooled, strict=True)
    ]  # fmt: skip
    columns: Numbers = np.array(rows, dtype=np.float64).T
    base, slope, size, wanted_ttft, wanted_itl, use = columns[[0, 1, 7, 10, 11, 12]]
    _, _, least_itl, least_ttft = _latencies(columns, np.zeros(len(rows)))
    possible_itl, possible_ttft = least_itl <= wanted_itl, least_ttft <= wanted_ttft
    bound_itl, bound_ttft = np.where(possible_itl, wanted_itl, np.inf), np.where(possible_ttft, wanted_ttft, np.inf)
    most = np.where(possible_ttft, np.inf, size)
    # What holds at a rate holds at all lower ones.
    top = np.minimum(use, MOST_USED) * size / (base + slope * size)
    rate, width = np.zeros(len(rows)), top
    places = np.arange(1, _POINTS + 1)[:, None] / _POINTS
    for _ in range(_ROUNDS):
        tried = rate + width * places
        _, inside, itl, ttft = _latencies(columns, tried)
        holds = (itl <= bound_itl) & (ttft <= bound_ttft) & (inside <= most)
        held = np.logical_and.accumulate(holds, axis=0).sum(axis=0)
        rate, width = rate + width * (held / _POINTS), np.where(held < _POINTS, width / _POINTS, 0.0)
    mean, inside, itl, ttft = _latencies(columns, rate)
    by_itl = (rate < top) & (_latencies(columns, rate * _BEYOND)[2] > bound_itl)
    full = (rate >= top) | (inside >= size)
    limits = np.where(by_itl, ITL, np.where(full, SEQUENCES, TTFT))
    numbers = (rate * 1000, mean / size, itl, ttft, least_itl, least_ttft)
    found = (*numbers, limits, possible_itl & possible_ttft, base, slope, size)
    return [Assured(*row) for row in zip(*[column.tolist() for column in found], strict=True)]


def _latencies(columns: Numbers, rate: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return for rates per ms how many requests a replica has: the mean, and the number that is rarely exceeded.

    And the inter-token latency and the time to the first token in ms that are rarely exceeded. At the rate 0 a request
    is alone. The time to the first token consists of the wait for a place, the prompts before it, and its own prompt.
    All places are taken with the probability of Halfin and Whitt, for few places with that of Sakasegawa; then the wait
    has an exponential tail.
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
    left = np.maximum(size / (base + slope * size) - rate, 1e-12)
    place = np.log(np.maximum(taken / MISSED, 1.0)) / (pooled * left)
    used = np.minimum(rate * work, MOST_USED)
    behind = work / (2 * (1 - used)) * np.log(np.maximum(used / MISSED, 1.0))
    return mean, inside, itl, place + behind + prefill + prefill_slope * computed + first * itl


class FleetVariant(Struct, frozen=True, gc=False):
    """A variant in a fleet: what a replica takes. It costs ``cost``; there are ``lowest`` to ``highest`` of them."""

    assured: Assured
    cost: float = 1.0
    lowest: int = 0
    highest: float = math.inf

    @property
    def used(self) -> float:
        """The share of its sequences that may be in use; 0 where the targets are out of reach."""
        return self.assured.used if self.assured.feasible else 0.0


def usage(kinds: Sequence[FleetVariant], demand: float) -> float:
    """Return how far replicas are used in the cheapest fleet for a demand in requests per second, 0 if there is none.

    Kinds that may be used less are left out of it, but for those that must stay. Where these serve too many requests
    too slowly, the others are used less, so that there are more of them.
    """
    found = []
    uses = [(kind.used, kind) for kind in kinds]
    for level in sorted({use for use, _ in uses if use > 0}):
        slow = [kind for use, kind in uses if 0 < use < level]
        # The highest use up to the level at which slow replicas that must stay serve few enough of all requests
        stay = [kind for kind in slow if kind.lowest]
        used, high, tried = max([kind.used for kind in stay], default=level), level, level
        for _ in range(_STEPS + 1):
            if used >= high:
                break
            slowly = math.fsum([kind.lowest * kind.assured.rate_at(tried) for kind in stay])
            used, high = (tried, high) if slowly <= MISSED_BY_SLOW * demand else (used, tried)
            tried = (used + high) / 2
        cost = math.fsum([kind.cost * kind.lowest for kind in slow])
        left = demand - math.fsum([kind.assured.rate_at(used) * kind.lowest for kind in stay])
        rates = [(max(kind.assured.rate_at(used), _LEAST), kind) for use, kind in uses if use >= level]
        for rate, kind in sorted(rates, key=lambda each: each[1].cost / each[0]):
            count = max(float(kind.lowest), min(left / rate, kind.highest))
            cost, left = cost + count * kind.cost, max(0.0, left - count * rate)
        found.append((left > 1e-9 * demand, cost / WORTH if slow else cost, used))
    return min(found, default=(True, 0.0, 0.0))[-1]
