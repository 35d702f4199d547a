"""What a replica of each variant costs, before anything is decided: every later step reads ``Variant.cost``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from wva.model.policy import Compatibility, Policy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import DEFAULT_COST, ModelKey, Variant


def priced(variants: Iterable[Variant], policy: Policy) -> tuple[Variant, ...]:
    """Return the variants, in their order, with the cost that counts.

    That is the cost that a variant gives. If no variant of a model gives one, it is the unit cost of the accelerator
    times the GPUs of a replica, provided that all of them are known: a unit cost and a default cost cannot be compared.
    v0.5.1 knew no unit costs.
    """
    all_variants = tuple(variants)
    if not policy.accelerator_costs or policy.compatibility is Compatibility.V0_5:
        return all_variants
    costs: dict[ModelKey, list[float | None]] = defaultdict(list)
    for variant in all_variants:
        unit = policy.accelerator_cost(variant.accelerator) if variant.cost == DEFAULT_COST else None
        costs[variant.model].append(None if unit is None else unit * max(1, variant.gpus_per_replica))
    known = {model: iter(model_costs) for model, model_costs in costs.items() if None not in model_costs}
    return tuple(
        [
            replace(variant, cost=cost)
            if variant.model in known and (cost := next(known[variant.model])) is not None
            else variant
            for variant in all_variants
        ]
    )


def stated(snapshot: Snapshot, policy: Policy) -> tuple[Snapshot, Policy]:
    """Return the same inputs, with the costs that count in the variants, and without unit costs."""
    if not policy.accelerator_costs:
        return snapshot, policy
    snapshot = replace(snapshot, variants=priced(snapshot.variants, policy))
    return snapshot, replace(policy, accelerator_costs=())
