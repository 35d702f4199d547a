"""Variants of different speed behind one router: how far each may be used when all are used alike. No numpy.

A router sends requests to the replica that is used least, so that all replicas have the same share of their sequences
in use, the slow ones too. The slow ones therefore limit how far all others may be used, unless the few requests that
they serve too slowly are within what may miss the targets. A variant that never meets them counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from wva.decide.queueing.assured import ATTAINMENT, Assured

MISSED_BY_SLOW: Final = 0.6 * (1 - ATTAINMENT)
"""Share of the requests that replicas which are too slow may serve."""

WORTH: Final = 0.85
"""A slow variant is left out if the others alone cost less than this share."""

_STEPS: Final = 12
"""Halvings of a share of the sequences: to a five-thousandth of it."""
_LEAST: Final = 1e-9


class Kind(Struct, frozen=True, gc=False):
    """A variant in a fleet. A replica costs ``cost``; there are ``lowest`` to ``highest`` of them."""

    assured: Assured
    cost: float = 1.0
    lowest: int = 0
    highest: float = math.inf

    @property
    def used(self) -> float:
        """The share of its sequences that may be in use; 0 where the targets are out of reach."""
        return self.assured.used if self.assured.feasible else 0.0


def usage(kinds: Sequence[Kind], demand: float) -> float:
    """Return how far replicas are used in the cheapest fleet for a demand in requests per second, 0 if there is none.

    Kinds that may be used less are left out of it, but for those that must stay. Where these serve too many requests
    too slowly, the others are used less, so that there are more of them.
    """
    found = []
    uses = [(kind.used, kind) for kind in kinds]
    for level in sorted({use for use, _ in uses if use > 0}):
        slow = [kind for use, kind in uses if 0 < use < level]
        used = _bearable(slow, level, demand)
        cost = math.fsum([kind.cost * kind.lowest for kind in slow])
        left = demand - math.fsum([kind.assured.rate_at(used) * kind.lowest for kind in slow if kind.lowest])
        rates = [(max(kind.assured.rate_at(used), _LEAST), kind) for use, kind in uses if use >= level]
        for rate, kind in sorted(rates, key=lambda each: each[1].cost / each[0]):
            count = max(float(kind.lowest), min(left / rate, kind.highest))
            cost, left = cost + count * kind.cost, max(0.0, left - count * rate)
        found.append((left > 1e-9 * demand, cost / WORTH if slow else cost, used))
    return min(found, default=(True, 0.0, 0.0))[-1]


def _bearable(slow: Sequence[Kind], level: float, demand: float) -> float:
    """Return the highest use up to a level at which slow replicas that must stay serve few enough of all requests."""
    stay = [kind for kind in slow if kind.lowest]
    low, used = max([kind.used for kind in stay], default=level), level
    for _ in range(_STEPS + 1):
        if low >= level:
            break
        bears = math.fsum([kind.lowest * kind.assured.rate_at(used) for kind in stay]) <= MISSED_BY_SLOW * demand
        low, level = (used, level) if bears else (low, used)
        used = (low + level) / 2
    return low
