"""What the queueing formulas work on and what they find: targets, replicas as queues, and a model that is sized.

Only records, so that a decision can carry them without numpy.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from wva.model.variant import VariantKey

SHORTEST, LONGEST = 1e-6, 1e12
"""Bounds of a service time in ms, beyond which rates would have no meaning in floating point."""


class Target(Struct, frozen=True, gc=False):
    """Wanted time to first token and inter-token latency in ms, and tokens per second; 0 means no target."""

    ttft: float = 0.0
    itl: float = 0.0
    tps: float = 0.0
    use: float = 1.0  # at most this share of the highest rate of a replica is planned with


class ServiceTimes(Struct, frozen=True, gc=False):
    """One replica for requests of one size.

    Each time in ms is that of a request alone, plus a slope for each other request.
    """

    base: float  # of a whole request
    slope: float
    prefill: float  # of its prompt
    prefill_slope: float
    decode: float  # of a decode step
    decode_slope: float
    first: float  # 1 if the first token takes a decode step, else 0
    size: float  # the most requests that it computes at once
    work: float  # for how long a prompt keeps other requests waiting

    @property
    def most(self) -> float:
        """Requests per ms while it computes as many at once as it can."""
        return self.size / (self.base + self.slope * self.size)

    @property
    def usable(self) -> bool:
        """Whether rates have a meaning in floating point."""
        return self.base >= SHORTEST and self.base + self.slope * self.size <= LONGEST


class Assured(Struct, frozen=True, gc=False):
    """What a replica takes within its targets."""

    service: ServiceTimes
    rate: float  # in requests per second
    used: float  # the share of its sequences that may be in use; 0 if the targets are out of reach
    itl: float  # the latencies in ms that hardly any request exceeds at that rate
    ttft: float
    least_itl: float  # those of a request that is alone
    least_ttft: float
    limit: str  # what keeps the rate from being higher
    feasible: bool  # whether a request that is alone meets the targets; else the rate follows from the other limits

    def rate_at(self, used: float) -> float:
        """Return the requests per second while this share of the sequences is in use."""
        inside = used * self.service.size
        return 1000 * inside / (self.service.base + self.service.slope * inside)


class QueueModel(Struct, frozen=True):
    """What the formulas were given for a model, and what they found for its variants.

    ``demand`` is in requests per second, ``answer`` in tokens per request.
    """

    demand: float
    answer: float
    target: Target
    variants: Mapping[VariantKey, Assured]
