"""From VariantAutoscalings and their scale targets to the variants of a cycle.

A VariantAutoscaling becomes a variant if it belongs to this controller, is not being deleted, and has a target that
exists and is not contested. The values that must survive a restart (the number, the start of a hold, the start of a
model load) are read back from the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from wva.api.core import Pod
from wva.api.meta import Key, parse_time
from wva.api.variantautoscaling import ACCELERATOR_LABEL, ConditionType, OptimizedAlloc, VariantAutoscaling
from wva.collect.bounds import bounds_of
from wva.collect.claims import Claims
from wva.collect.faults import Faults
from wva.collect.gpus import gpus_per_replica
from wva.collect.resolution import resolve
from wva.collect.stores import CollectStores
from wva.collect.surplus import model_id_fits
from wva.collect.vllm_arguments import vllm_parameters
from wva.model.variant import DEFAULT_COST, Bounds, ModelKey, Variant, VariantKey
from wva.numbers import REPLICAS, NumberError, Real
from wva.slices import Slices
from wva.targets import ScaleTarget, pods_of

UNSCHEDULABLE_SECONDS: Final = 60.0
"""How long the scheduler may look for a node before a pod counts as one that will not come: a node that an autoscaler
adds takes longer, but until then its replica serves no requests either."""

COST: Final = Real(0, 1_000_000_000)
"""A cost beyond is a typing error, and sums of such costs would not tell variants apart."""
_EXPECTED_COST: Final = Real(0, COST.maximum, above=True).expected

_EVERYTHING: Final = Claims()


@dataclass(frozen=True, slots=True)
class AcceptedVariant:
    """A variant with its pods: of each replica the one that serves, unless it has ended."""

    variant: Variant
    pods: tuple[Pod, ...]


async def accepted_in_slices(
    stores: CollectStores,
    *,
    only: Iterable[Key] | None = None,
    claims: Claims = _EVERYTHING,
    now: float | None = None,
    as_started: Callable[[Variant, float], Variant] | None = None,
    faults: Faults | None = None,
) -> list[AcceptedVariant]:
    """Return every variant that this controller decides on, or those of ``only`` that it does, with its pods.

    ``now`` is in seconds since the epoch; without it no pod counts as unschedulable, and no start from zero and
    no claim of another controller counts. ``as_started`` returns a variant with a start that
    the caches do not show yet. A variant that cannot be read is noted in ``faults``, and what is known of it in any
    case is returned: its number and its replicas.

    Other tasks run meanwhile. Each variant is as it was at one moment; one that comes meanwhile is left to the next
    time.
    """
    faults = Faults() if faults is None else faults
    slices, accepted = Slices(), []
    vas = stores.variant_autoscalings
    for va in vas.list() if only is None else [va for key in only if (va := vas.get(key)) is not None]:
        await slices.rest()
        found = _read(va, stores, claims, now, as_started, faults)
        if found is not None:
            accepted.append(found)
    return accepted


def _read(
    va: VariantAutoscaling,
    stores: CollectStores,
    claims: Claims,
    now: float | None,
    as_started: Callable[[Variant, float], Variant] | None,
    faults: Faults,
) -> AcceptedVariant | None:
    """Return a variant, or what is known in any case if it cannot be read; None if it is not ours."""
    key, what = _model_key(va), f"reading variant {va.metadata.name}"
    if not faults.attempt(key, what, lambda: _ours(va, claims, now), default=False):
        return None
    try:
        return _accepted(va, stores, now, as_started)
    except Exception as error:  # noqa: BLE001 - the other variants are read all the same
        faults.note(key, what, error)
        return bare_variant(va, stores)


def _model_key(va: VariantAutoscaling) -> ModelKey:
    return ModelKey(va.metadata.namespace, va.spec.model_id)


def _ours(va: VariantAutoscaling, claims: Claims, now: float | None) -> bool:
    return not va.metadata.deleting and model_id_fits(va) and claims.mine(va, now)


def _accepted(
    va: VariantAutoscaling,
    stores: CollectStores,
    now: float | None,
    as_started: Callable[[Variant, float], Variant] | None,
) -> AcceptedVariant | None:
    target = resolve(va, vas=stores.variant_autoscalings, targets=stores.targets).target
    if target is None:
        return None
    pods = pods_of(target, stores.targets)
    variant = variant_of(va, target=target, pods=pods, bounds=bounds_of(va, stores.scalers), now=now)
    if as_started is not None and now is not None:
        variant = as_started(variant, now)
    return AcceptedVariant(variant, pods)


def bare_variant(va: VariantAutoscaling, stores: CollectStores) -> AcceptedVariant | None:
    """Return what must be known of a variant to hold it, None without a target: its number, and its replicas."""
    target = stores.targets.named(va)
    if target is None:
        return None
    allocation = va.status.desired_optimized_alloc
    variant = Variant(
        VariantKey(va.metadata.namespace, va.metadata.name),
        _model_key(va),
        target.metadata.name,
        accelerator=va.metadata.labels.get(ACCELERATOR_LABEL, ""),
        spec_replicas=target.spec_replicas,
        current_replicas=target.current_replicas,
        ready_replicas=target.ready_replicas,
        status_desired=None if allocation is None else REPLICAS.find(allocation.num_replicas),
        status_accelerator="" if allocation is None else allocation.accelerator,
    )
    return AcceptedVariant(variant, ())


def variant_of(
    va: VariantAutoscaling,
    *,
    target: ScaleTarget,
    pods: Collection[Pod],
    bounds: Bounds = Bounds(),  # noqa: B008 - frozen
    now: float | None = None,
) -> Variant:
    """Return the state of one variant; costs are unitless, times in seconds since the epoch."""
    allocation = _allocation_for(va, target)
    return Variant(
        key=VariantKey(va.metadata.namespace, va.metadata.name),
        model=_model_key(va),
        target=target.metadata.name,
        accelerator=va.metadata.labels.get(ACCELERATOR_LABEL, ""),
        cost=parse_cost(va.spec.variant_cost),
        spec_replicas=target.spec_replicas,
        current_replicas=target.current_replicas,
        ready_replicas=target.ready_replicas,
        status_desired=None if allocation is None else REPLICAS.find(allocation.num_replicas),
        status_accelerator="" if allocation is None else allocation.accelerator,
        settling_since=_settling_since(va),
        oldest_unready_since=_oldest_unready_since(pods),
        bounds=bounds,
        unschedulable_pods=0 if now is None else sum(_unschedulable(pod, now) for pod in pods),
        activated_at=_activated_at(pods),
        unplaced_pods=sum(not pod.spec.node_name and not pod.metadata.deleting for pod in pods),
        gpus_per_replica=gpus_per_replica(target.templates),
        parameters=vllm_parameters(target.template.spec.containers),
    )


def _allocation_for(va: VariantAutoscaling, target: ScaleTarget) -> OptimizedAlloc | None:
    """Return the number in the status, unless it was written for a former target of the same name.

    Both times have whole seconds. A number as old as the target says no more than the target itself.
    """
    allocation = va.status.desired_optimized_alloc
    if allocation is None:
        return None
    created, written = parse_time(target.metadata.creation_timestamp), parse_time(allocation.last_run_time)
    former = created is not None and written is not None and created >= written
    return None if former else allocation


def parse_cost(text: str) -> float:
    """Return the cost per replica, or the default when the text is no number of ``COST``."""
    cost = COST.find(text)
    return DEFAULT_COST if cost is None else cost


def cost_problems(va: VariantAutoscaling) -> list[str]:
    """Return a line for people about a cost that is not taken as it is written, or that makes costs meaningless."""
    text = va.spec.variant_cost
    cost = parse_cost(text)
    if cost > 0 and COST.find(text) is not None:
        return []
    words = f"{cost:g}" if cost > 0 else f"{cost:g}: it counts as free"
    return [str(NumberError("spec.variantCost", text, expected=_EXPECTED_COST, in_force=words))]


def _settling_since(va: VariantAutoscaling) -> float | None:
    progressing = va.status.condition(ConditionType.PROGRESSING)
    if progressing is None or progressing.status != "True":
        return None
    return parse_time(progressing.last_transition_time)


def _oldest_unready_since(pods: Iterable[Pod]) -> float | None:
    waiting = (pod.metadata for pod in pods if not pod.ready and not pod.metadata.deleting)
    created = (parse_time(metadata.creation_timestamp) for metadata in waiting)
    return min((time for time in created if time is not None), default=None)


def _activated_at(pods: Iterable[Pod]) -> float | None:
    """Return when the oldest pod was created: a target that was at zero before has no older one."""
    created = (parse_time(pod.metadata.creation_timestamp) for pod in pods)
    return min((time for time in created if time is not None), default=None)


def _unschedulable(pod: Pod, now: float) -> bool:
    """Tell whether the scheduler has found no node for a pod for too long to hope for one."""
    if pod.metadata.deleting or pod.spec.node_name:
        return False
    refused = next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)
    if refused is None or refused.status != "False" or refused.reason != "Unschedulable":
        return False
    since = parse_time(refused.last_transition_time) or parse_time(pod.metadata.creation_timestamp)
    return since is not None and now - since >= UNSCHEDULABLE_SECONDS
