"""The solution in words, as the original logged it: one line per server, one per type of card. No numpy.

Times are in ms, rates per minute. ``servTime`` is the inter-token latency, ``rho`` the share of time in which a replica
has any request, ``maxRPM`` what one replica takes within its targets, ``sol`` the number of candidates: the
allocations among which the solver chose for the server, or for the model of a variant, and 0 without an allocation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from wva.decide.queueing.targets import Target
from wva.model.inventory import Inventory
from wva.model.queueing import ModelOpinion, Plan, VariantOpinion
from wva.model.service import AcceleratorCost


def server_line(head: str, plan: Plan, *, accelerator: str, target: Target) -> str:
    """Return the line of a server; ``head`` says which one it is."""
    return (
        f"{head}sat={str(plan.saturated).lower()}, alloc={{acc={accelerator}; num={plan.replicas}; "
        f"maxBatch={plan.batch}; cost={plan.cost:.9g}, val={plan.value:.9g}, servTime={plan.itl:.9g}, "
        f"waitTime={plan.wait:.9g}, rho={plan.busy:.9g}, maxRPM={plan.max_rpm:.9g}}}; "
        f"slo-itl={target.itl:.9g}, slo-ttft={target.ttft:.9g}, slo-tps={target.tps:.9g}"
    )


def server_head(name: str, *, service_class: str, model: str, load: tuple[float, float], candidates: int) -> str:
    """Return the beginning of a server's line; ``load`` is requests per minute and tokens per answer."""
    rate, tokens = load
    return f"s={name}; c={service_class}; m={model}; rate={rate:.9g}; tk={tokens:.9g}; sol={candidates}, "


def type_lines(uses: Iterable[tuple[str, int, int, float]], *, total: float) -> tuple[str, ...]:
    """Return the accounts of the cards: type, count, limit and cost of each, and the cost of everything."""
    lines = tuple(f"name={name}, count={count}, limit={limit}, cost={cost:.9g}" for name, count, limit, cost in uses)
    return (*(("AllocationByType:", *lines) if lines else ()), f"totalCost={total:.9g}")


def fleet_trace(
    opinions: Sequence[ModelOpinion], inventory: Inventory | None, costs: Sequence[AcceleratorCost] = ()
) -> tuple[str, ...]:
    """Return what the model-based optimizer thinks of all models, for the log and ``wva decide --explain``.

    Types of cards go by the device that ``costs`` names for an accelerator, else by the accelerator.
    """
    devices = {cost.accelerator: cost.device for cost in costs if cost.device}
    lines = [_opinion_line(opinion, variant) for opinion in opinions for variant in opinion.variants]
    counts: dict[str, int] = {}
    spent: dict[str, list[float]] = {}
    for opinion in opinions:
        for variant in opinion.variants:
            if variant.plan is not None:
                counts[variant.accelerator] = counts.get(variant.accelerator, 0) + variant.plan.replicas * variant.cards
                spent.setdefault(variant.accelerator, []).append(variant.plan.cost)
    uses = [
        (devices.get(name, name), counts[name], _limit(inventory, name), math.fsum(spent[name]))
        for name in sorted(counts)
    ]
    total = math.fsum(cost for each in spent.values() for cost in each)
    return (*lines, *type_lines(uses, total=total))


def _opinion_line(opinion: ModelOpinion, variant: VariantOpinion) -> str:
    plan = variant.plan
    load = (0.0 if plan is None else plan.per_minute, opinion.output_tokens)
    head = server_head(
        f"{variant.key.name}:{variant.key.namespace}",
        service_class=opinion.class_name or "-",
        model=opinion.key.model_id,
        load=load,
        candidates=0 if plan is None else opinion.candidates,
    )
    if plan is None:
        return f"{head}no allocation ({variant.words})"
    target = Target(opinion.ttft_milliseconds, opinion.itl_milliseconds, opinion.tps)
    line = server_line(head, plan, accelerator=variant.accelerator, target=target)
    return f"{line}; {variant.denied} fewer than wanted by {variant.limited_by}" if variant.denied else line


def _limit(inventory: Inventory | None, accelerator: str) -> int:
    pool = None if inventory is None else inventory.pool_of(accelerator)
    return 0 if pool is None else pool.capacity
