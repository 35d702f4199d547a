"""Plans where several replicas do not carry the sum of what each carries.

The allocator adds capacities up. What replicas carry together depends on how many they are, and on which kinds a
gateway mixes. So its plan is measured with the analyzer's own function, the need is scaled by how far the sum was off,
and the allocator is asked again. A plan that carries too little cannot come again: its sum is below the next need.
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
            # What stands still is no part of what is wanted.
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
