"""How long a replica takes for requests of one size, from parameters that are given or learned. No numpy.

A replica computes n requests at once, and everything it does takes a time that is linear in n. Formulas:
docs/design/queueing-formulas.md#service-times.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from wva.decide.amounts import LARGEST
from wva.decide.measure.demand_engine import Engine
from wva.model.records import replace
from wva.model.service import MAX_BATCH_SIZE, PerformanceProfile

SHORTEST: Final = 1e-6
LONGEST: Final = 1e12
"""Bounds of a service time in ms, beyond which rates would have no meaning in floating point."""


class Target(Struct, frozen=True, gc=False):
    """Wanted time to first token and inter-token latency in ms, and tokens per second; 0 means no target.

    At most the share ``use`` of the highest rate of a replica is planned with.
    """

    ttft: float = 0.0
    itl: float = 0.0
    tps: float = 0.0
    use: float = 1.0


class Service(Struct, frozen=True, gc=False):
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


def known_service(profile: PerformanceProfile, prompt: float, answer: float, size: float) -> Service | None:
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
    found = Service(base, slope, gamma + growth, growth, alpha + beta, beta, 0.0, size, 0.0)
    return found if found.usable else None


def learned_service(engine: Engine, size: float) -> Service | None:
    """Return a replica as it was learned, None where that cannot be true; ``size`` requests at once at most."""
    step, prompt = 1000.0 * engine.base, 1000.0 * engine.prefill
    slope = 1000.0 * engine.slope + prompt / engine.answer
    prefill, decode = engine.prompt_steps * step + prompt, step + 1000.0 * engine.slope
    base = prefill + engine.answer * decode
    found = Service(base, slope * (1.0 + engine.answer), prefill, slope, decode, slope, 1.0, size, prompt)
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
