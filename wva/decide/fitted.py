"""Plans for models whose replicas together carry less than the sum of what each carries.

The allocator adds capacities up. But what replicas carry together depends on their number, and on the variants among
which a gateway spreads requests. So this module asks the analyzer what the plan really carries, scales the need by the
error of the sum, and asks the allocator again. A plan that carries too little cannot come again: its sum is below the
next need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wva.decide.allocate import AllocationPolicy, Plan, Stock, Want, allocate
from wva.decide.measure.need import Need
from wva.model.records import replace
from wva.model.variant import ModelKey

_ROUNDS: Final = 3
_ENOUGH: Final = 1.0 - 1e-9


def fitted(wants: Sequence[Want], needs: Mapping[ModelKey, Need], stock: Stock, policy: AllocationPolicy) -> Plan:
    """Return a plan whose replicas carry what each model wants, as ``Need.carried`` computes it.

    Without ``Need.carries`` capacities add up, and the first plan is the answer.
    """
    asked = {want.key: want for want in wants}
    plan = allocate(wants, stock, policy)
    open_ = [want for want in wants if want.need > 0.0 and needs[want.key].carries is not None]
    for turn in range(_ROUNDS):
        changed = False
        for want in open_:
            counts = {offer.key: plan.numbers[offer.key] for offer in want.offers}
            # Replicas without a known capacity keep their number, and carry no part of the need.
            still = {offer.key: counts[offer.key] for offer in want.offers if not offer.capacity > 0.0}
            carried = needs[want.key].carried(counts)
            carried -= needs[want.key].carried(still) if still else 0.0
            short = carried < want.need * _ENOUGH
            # The first plan may also have been too large. After that needs only grow, so that this ends.
            if carried > 0.0 and (short or turn == 0):
                total = sum([offer.capacity * counts[offer.key] for offer in want.offers])
                asked[want.key] = replace(want, need=want.need * total / carried)
                changed = True
        if not changed:
            break
        plan = allocate(list(asked.values()), stock, policy)
    return plan
