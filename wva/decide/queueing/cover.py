"""How many replicas of each variant carry a demand at the lowest cost, starting from the present ones. No numpy.

Growth goes to the variant with the lowest cost per request. The last replica goes to the variant that covers the rest
at the lowest cost. Replicas that do not come are given up first. Shrinking takes from the highest cost per request, as
long as the rest carries the demand with room to spare. Without that room the number would follow the load down, and up
again in the next cycle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from wva.decide.amounts import COUNTLESS, rounded_down, rounded_up
from wva.decide.balance import balanced
from wva.model.variant import VariantKey

SHRINK_SHARE: Final = 0.9
"""Share of the capacity that may be in use after a shrink."""

ROUNDING: Final = 1e-9
"""Share of an amount that is nothing but rounding."""

_NOBODY: Final = VariantKey("", "")


@dataclass(frozen=True, slots=True)
class Carrier:
    """A variant that carries ``rate`` requests per second per replica, all above 0.

    ``planned`` is the number to start from, ``counted`` how many of these can be relied upon, ``lowest`` and
    ``highest`` (None: unbounded) how far the number may go; ``grows``: whether more may be asked for. A replica takes
    ``cards`` GPUs of its ``accelerator``.
    """

    key: VariantKey
    cost: float
    rate: float
    planned: int
    counted: int
    lowest: int
    highest: int | None = None
    grows: bool = True
    cards: int = 1
    accelerator: str = ""

    @property
    def price(self) -> tuple[float, float, VariantKey]:
        """Order of growth: cost per request, cost, name."""
        return self.cost / self.rate, self.cost, self.key

    @property
    def room(self) -> float:
        """Replicas that may be added to the number to start from."""
        return room(self, self.planned)


def carried(carriers: Sequence[Carrier]) -> float:
    """Return the requests per second that can be relied upon."""
    return math.fsum(carrier.counted * carrier.rate for carrier in carriers)


def cover(demand: float, carriers: Sequence[Carrier], *, shrinks: bool) -> tuple[dict[VariantKey, int], float]:
    """Return a number per variant, and the requests per second that no variant can carry."""
    numbers = {carrier.key: carrier.planned for carrier in carriers}
    missing = demand - carried(carriers)
    if missing > ROUNDING * demand:
        return numbers, _grow(numbers, carriers, missing)
    if shrinks:
        _shrink(numbers, carriers, demand)
        numbers = spread(carriers, numbers)
    return numbers, 0.0


def spread(carriers: Sequence[Carrier], numbers: Mapping[VariantKey, int]) -> dict[VariantKey, int]:
    """Return the numbers with the change of equal variants shared among them, so that they differ by one at most.

    Equal are those that differ in name and number only.
    """
    groups: dict[Carrier, list[Carrier]] = {}
    for carrier in carriers:
        stuck = carrier.planned - carrier.counted
        groups.setdefault(replace(carrier, key=_NOBODY, planned=stuck, counted=0), []).append(carrier)
    shared = dict(numbers)
    for equal in groups.values():
        change = sum(numbers[carrier.key] - carrier.planned for carrier in equal)
        shared |= balanced({carrier.key: carrier.planned for carrier in equal}, change)
    return shared


def _grow(numbers: dict[VariantKey, int], carriers: Sequence[Carrier], missing: float) -> float:
    least = ROUNDING * missing
    while missing > least:
        open_ones = [carrier for carrier in carriers if room(carrier, numbers[carrier.key]) > 0]
        if not open_ones:
            return missing
        best = min(open_ones, key=lambda carrier: carrier.price)
        finishing = [carrier for carrier in open_ones if carrier.rate >= missing - least]
        last = min(finishing, key=lambda carrier: (carrier.cost, carrier.price), default=None)
        whole = rounded_down(missing / best.rate)
        if last is not None and last.cost <= best.cost * max(1, rounded_up(missing / best.rate - ROUNDING)):
            numbers[last.key] += 1
            return 0.0
        added = int(min(max(1, whole), room(best, numbers[best.key])))
        numbers[best.key] += added
        missing -= added * best.rate
        if added >= COUNTLESS:
            return max(0.0, missing)
    return 0.0


def room(carrier: Carrier, number: int) -> float:
    """Return how many replicas may be added to a number."""
    if not carrier.grows:
        return 0
    return math.inf if carrier.highest is None else carrier.highest - number


def _shrink(numbers: dict[VariantKey, int], carriers: Sequence[Carrier], demand: float) -> None:
    surplus = carried(carriers) - demand / SHRINK_SHARE
    if surplus < 0:
        return
    numbers.update({carrier.key: max(carrier.lowest, carrier.counted) for carrier in carriers})
    for carrier in sorted(carriers, key=lambda each: each.price, reverse=True):
        removed = min(rounded_down(surplus / carrier.rate + ROUNDING), numbers[carrier.key] - carrier.lowest)
        numbers[carrier.key] -= removed
        surplus -= removed * carrier.rate
