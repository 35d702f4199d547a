"""The solution of the queueing formulas, as the Go controller logged it: the system's data, then one line per variant.

Rates are per minute, times in ms and latencies those that hardly any request exceeds. ``servTime`` is the time between
tokens, ``waitTime`` how long a request waits before its prompt is computed, ``rho`` the share of a replica's places
that are in use, each with the decided number. ``maxRPM`` is what one replica takes within the targets. ``sol`` is the
number of variants that could be sized, ``sat`` whether more arrives than the decided number takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from wva.decide.measure.queues import Assured, QueueModel
from wva.hindsight.cycle import Cycle
from wva.model.decision import Decision
from wva.model.policy import Policy
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey

MOST: Final = 50
"""Models, and lines of a kind about the system."""


def solution(cycle: Cycle) -> tuple[str, ...]:
    """Return the lines about the models that the queueing formulas sized; none without such a model."""
    outcome, snapshot, policy = cycle.outcome, cycle.recording.snapshot, cycle.recording.policy
    if not outcome.solved:
        return ()
    by_model: dict[ModelKey, list[Decision]] = {}
    for decision in outcome.decisions:
        if decision.model in outcome.solved:
            by_model.setdefault(decision.model, []).append(decision)
    shown_models = sorted(by_model)[:MOST]
    lines = [*_system(policy, {model.model_id for model in shown_models})]
    lines += [line for model in shown_models for line in _servers(outcome.solved[model], by_model[model], policy)]
    lines += [f"{len(by_model) - MOST} more models"] if len(by_model) > MOST else []
    return (
        *lines,
        *_by_type([decision for model in sorted(by_model) for decision in by_model[model]], snapshot, policy),
    )


def _system(policy: Policy, models: set[str]) -> Iterator[str]:
    """Yield the data that the user gave: prices, service classes and parameters."""
    for cost in policy.accelerator_costs[:MOST]:
        yield f"accelerator: name={cost.accelerator}, type={cost.device or cost.accelerator}, cost={cost.cost:.9g}"
    for target in policy.service_targets:
        if target.model_id in models:
            yield (
                f"serviceClass: name={target.class_name}, model={target.model_id}, priority={target.priority}, "
                f"slo-itl={target.itl_milliseconds:.9g}, slo-ttft={target.ttft_milliseconds:.9g}, "
                f"slo-tps={target.tps:.9g}"
            )
    for profile in policy.profiles:
        if profile.model_id in models:
            yield (
                f"model: name={profile.model_id}, acc={profile.accelerator}, accCount={profile.accelerator_count}, "
                f"alpha={profile.alpha:.9g}, beta={profile.beta:.9g}, gamma={profile.gamma:.9g}, "
                f"delta={profile.delta:.9g}, maxBatchSize={profile.max_batch_size}, atTokens={profile.at_tokens}"
            )


def _servers(model: QueueModel, decisions: Sequence[Decision], policy: Policy) -> Iterator[str]:
    """Yield a line for each variant of a model. Each gets the share of the load that its replicas could take."""
    capacities = {
        decision.key: decision.desired * sized.rate
        for decision in decisions
        if (sized := model.variants.get(decision.key))
    }
    total = math.fsum(capacities.values())
    for decision in decisions:
        service = policy.service_target_for(decision.model)
        rate = model.demand * capacities.get(decision.key, 0.0) / total if total > 0 else 0.0
        head = (
            f"s={decision.key.name}:{decision.key.namespace}; c={'-' if service is None else service.class_name}; "
            f"m={decision.model.model_id}; rate={60 * rate:.9g}; tk={model.answer:.9g}; sol={len(model.variants)}, "
        )
        sized = model.variants.get(decision.key)
        if sized is None:
            yield f"{head}no allocation (what one of its replicas takes is not known)"
            continue
        yield (
            f"{head}sat={str(model.demand > total).lower()}, alloc={{{_allocation(decision, sized, rate)}}}; "
            f"slo-itl={model.target.itl:.9g}, slo-ttft={model.target.ttft:.9g}, slo-tps={model.target.tps:.9g}"
        )


def _allocation(decision: Decision, sized: Assured, rate: float) -> str:
    from wva.decide.measure.queueing import under_load  # noqa: PLC0415 - imports numpy, which takes 20 MB

    count = max(1, decision.desired)
    load = under_load(sized.service, rate / count, math.sqrt(count))
    return (
        f"acc={decision.accelerator}; num={decision.desired}; maxBatch={sized.service.size:.9g}; "
        f"cost={decision.cost * decision.desired:.9g}, servTime={load.itl:.9g}, waitTime={load.wait:.9g}, "
        f"rho={load.used:.9g}, maxRPM={60 * sized.rate:.9g}"
    )


def _by_type(decisions: Sequence[Decision], snapshot: Snapshot, policy: Policy) -> Iterator[str]:
    """Yield how many accelerators of each type the models use, how many there are, and what they cost."""
    devices = {cost.accelerator: cost.device for cost in policy.accelerator_costs if cost.device}
    gpus_of = {variant.key: variant.gpus_per_replica for variant in snapshot.variants}
    counts: dict[str, int] = {}
    costs: dict[str, list[float]] = {}
    for decision in decisions:
        if decision.desired > 0:
            gpus = decision.desired * gpus_of.get(decision.key, 1)
            counts[decision.accelerator] = counts.get(decision.accelerator, 0) + gpus
            costs.setdefault(decision.accelerator, []).append(decision.cost * decision.desired)
    yield "AllocationByType:"
    for name in sorted(counts)[:MOST]:
        pool = None if snapshot.inventory is None else snapshot.inventory.pool_of(name)
        limit = "-" if pool is None else str(pool.capacity)
        cost = math.fsum(costs[name])
        yield f"name={devices.get(name, name)}, count={counts[name]}, limit={limit}, cost={cost:.9g}"
    yield f"totalCost={math.fsum([cost for costs_of_type in costs.values() for cost in costs_of_type]):.9g}"
