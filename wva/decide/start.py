"""Which variant of a model at zero WVA starts when requests wait at the gateway, and with how many replicas.

WVA starts the cheapest variant that can be started; v0.5.1 started all of them. While a variant of the model runs or
starts, WVA starts no other: that variant serves the requests, and the optimizer decides about more replicas. A model
in roles needs a variant for each stage of a request.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from wva.decide.allocate import Stock
from wva.decide.amounts import replicas
from wva.decide.failed import in_one_step
from wva.model.decision import Decision, MetricsVerdict, Reason, Source, Step
from wva.model.inventory import Inventory
from wva.model.records import replace
from wva.model.roles import STAGES
from wva.model.variant import Variant
from wva.model.vllm_parameters import VllmParameters
from wva.numbers import MAX_REPLICAS

MESSAGE = "Scaled from zero due to pending requests"


@dataclass(frozen=True, slots=True)
class Budget:
    """The GPUs that may be used. ``inventory`` None means that they are unknown; ``detail`` says why."""

    inventory: Inventory | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Requests wait, and no variant can be started; ``reasons`` has one line per variant."""

    reasons: tuple[str, ...]


def roles_to_start(variants: Mapping[str, Sequence[Variant]]) -> frozenset[str]:
    """Return the roles of which a variant has to start before the model can serve a request.

    ``variants`` are those of the model, by role. The roles are the cheapest that compute the stages which no active
    variant computes. A variant that does not say its role is not started.
    """
    running = {role for role, of_role in variants.items() if any(variant.active for variant in of_role)}
    # The variants that may start; if none of a role may, ``activate`` says why.
    startable = {
        role: [variant for variant in of_role if variant.bounds.clamp(MAX_REPLICAS) > 0]
        for role, of_role in variants.items()
    }
    candidates = {role: startable[role] or of_role for role, of_role in variants.items() if role}
    missing = frozenset().union(*[STAGES[role] for role in candidates])
    missing = missing.difference(*[STAGES[role] for role in running if role])
    resting = sorted(candidates.keys() - running)
    costs = {role: (not startable[role], min([variant.cost for variant in candidates[role]])) for role in resting}
    enough = [
        (sum([costs[role][0] for role in chosen]), sum([costs[role][1] for role in chosen]), len(chosen), chosen)
        for count in range(len(resting) + 1)
        for chosen in combinations(resting, count)
        if missing <= frozenset().union(*[STAGES[role] for role in chosen])
    ]
    return frozenset(min(enough)[-1])


def activate(variants: Iterable[Variant], waiting: float, budget: Budget | None = None) -> Decision | Refusal | None:
    """Return the decision that starts a variant of one model for ``waiting`` requests.

    None: no request waits, or a variant serves or starts already. ``budget`` None means that GPUs are not limited.
    """
    candidates = sorted(variants, key=lambda variant: (variant.cost, variant.key))
    if not waiting > 0 or any(variant.active for variant in candidates):
        return None
    reasons: list[str] = []
    for variant in candidates:
        # The most replicas that the variant may have, and the obstacle if that is 0.
        room, obstacle = variant.bounds.clamp(MAX_REPLICAS), f"at the maximum 0 ({variant.bounds.maximum_origin})"
        if room > 0 and budget is not None:
            if budget.inventory is None:
                room, obstacle = 0, f"the GPU budget is not known ({budget.detail})"
            else:
                stock, gpus = Stock.of(budget.inventory, ()), max(1, variant.gpus_per_replica)
                free, binding = min((stock.free.get(name, -1), name) for name in stock.limits_of(variant))
                room = max(0, min(room, free // gpus))
                obstacle = f"{free} {'GPU' if free == 1 else 'GPUs'} left ({binding}), {gpus} needed"
                if free < 0:
                    obstacle = f"no node has accelerator {variant.known_accelerator}"
        if room == 0:
            reasons.append(f"{variant.key.name}: {obstacle}")
            continue
        # Enough replicas to compute all waiting requests at once, within the scaler's minimum and the room.
        at_once = max(1, (variant.parameters or VllmParameters()).max_num_seqs)
        needed = math.ceil(min(waiting / at_once, float(room)))
        desired = min(room, max(1, needed, variant.bounds.minimum or 0))
        words = f"{MESSAGE}: {waiting:g} waiting, {replicas(desired)} of the cheapest variant that can start"
        words += f" ({'; '.join(reasons)})" if reasons else ""
        metrics = MetricsVerdict(available=True, reason="ScaleFromZero", message=MESSAGE)
        decision = in_one_step(variant, Step("activate", words, 0, desired), Reason.SCALE_FROM_ZERO, metrics)
        return replace(decision, source=Source.MEASURED)
    return Refusal(tuple(reasons))
