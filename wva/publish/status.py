"""The patch for the status of a VariantAutoscaling.

Only ``wva.controllers.VariantAutoscalingController`` writes it, if there is news. It looks after a change of the
variant, its target, its decision or the configuration, when a query begins or stops failing, and every heartbeat.

``status_patch`` returns None when the status has no news. News are: another number or accelerator, a new or removed
condition, another status or reason of a condition, and another message of a condition that names bad input. Changed
measurements in a message are not news: they wait for the next patch, at the latest for the heartbeat.

Another number of current replicas is news, and so is another role. A role where the status has none is no news: an API
server with an older CustomResourceDefinition drops the field, and WVA would write every status again and again.
``actuation`` says the same as Progressing.

Three things differ from v0.5.1: all conditions are persisted; ``desiredOptimizedAlloc`` is written whole or removed;
and nothing is written without news.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from wva.api.meta import Condition, format_time, parse_time
from wva.api.variantautoscaling import ConditionType, OptimizedAlloc, TargetReason, VariantAutoscaling
from wva.model.decision import Decision
from wva.model.variant import UNKNOWN_ACCELERATOR
from wva.publish.conditions import ConfigurationView, TargetView, conditions_of

HEARTBEAT_SECONDS: Final = 600.0
_MIN_ACCELERATOR_LENGTH: Final = 2
_IMMEDIATE_CONDITIONS: Final = frozenset(
    {
        ConditionType.CLAIMED,
        ConditionType.CONFIGURATION_VALID,
        ConditionType.ENGINES_READABLE,
        ConditionType.GATEWAY_READABLE,
        ConditionType.INVENTORY_CONSISTENT,
        ConditionType.REPLICAS_ON_TIME,
    }
)
"""Conditions whose messages carry no measurements: a new message is news."""
_OWNED: Final = frozenset(type_.value for type_ in ConditionType)


def status_patch(
    va: VariantAutoscaling,
    *,
    target: TargetView,
    decision: Decision | None,
    configuration: ConfigurationView,
    now: float,
) -> dict[str, Any] | None:
    """Return the merge patch for the status subresource, or None when there is nothing new to say."""
    stored_allocation, allocation = va.status.desired_optimized_alloc, None
    if decision is not None and not configuration.shadow:
        # The API server refuses the whole patch if the accelerator is shorter.
        long_enough = len(decision.accelerator) >= _MIN_ACCELERATOR_LENGTH
        allocation = OptimizedAlloc(decision.accelerator if long_enough else UNKNOWN_ACCELERATOR, decision.desired)
    elif target.reason is TargetReason.TARGET_CONFLICT:
        # Keep the last number: the workload still exists and its scaler needs the number.
        allocation = stored_allocation

    # First the conditions of WVA with their times, then those of other writers unchanged.
    stored_by_type = {condition.type: condition for condition in reversed(va.status.conditions)}
    conditions = []
    for condition in conditions_of(va, target, decision, configuration, numbered=allocation is not None):
        former = stored_by_type.get(condition.type)
        unchanged_since = former is not None and former.status == condition.status and former.last_transition_time
        since = unchanged_since or format_time(now)
        conditions.append(replace(condition, last_transition_time=since, observed_generation=va.metadata.generation))
    conditions += [condition for condition in va.status.conditions if condition.type not in _OWNED]

    heartbeat = False
    if allocation is not None and stored_allocation is not None:
        last = parse_time(stored_allocation.last_run_time)
        # A time in the future is from before a clock was set right: other controllers do not believe it.
        heartbeat = last is None or not -1.0 <= now - last < HEARTBEAT_SECONDS
    if not (
        heartbeat
        or {_essence(condition) for condition in va.status.conditions}
        != {_essence(condition) for condition in conditions}
        or (stored_allocation and (stored_allocation.accelerator, stored_allocation.num_replicas))
        != (allocation and (allocation.accelerator, allocation.num_replicas))
        or va.status.current_replicas not in {None, target.current}
        or (va.status.role or target.role) != target.role
    ):
        return None

    status: dict[str, Any] = {"conditions": to_builtins(conditions)}
    if target.current is not None or va.status.current_replicas is not None:
        status["currentReplicas"] = target.current
    if target.role or va.status.role is not None:
        status["role"] = target.role or None
    if decision is not None:
        status["actuation"] = {"applied": decision.settling_since is None}
    elif va.status.actuation is not None:
        status["actuation"] = None
    if allocation is not None:
        status["desiredOptimizedAlloc"] = to_builtins(replace(allocation, last_run_time=format_time(now)))
    elif stored_allocation is not None:
        status["desiredOptimizedAlloc"] = None
    return {"metadata": {"resourceVersion": va.metadata.resource_version}, "status": status}


def _essence(condition: Condition) -> tuple[str, str, str, int, str]:
    """Return the parts of a condition whose change is news."""
    message = condition.message if condition.type in _IMMEDIATE_CONDITIONS else ""
    return condition.type, condition.status, condition.reason, condition.observed_generation, message
