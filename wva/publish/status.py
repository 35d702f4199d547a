"""What the status of a VariantAutoscaling should say, and the patch that makes it say so.

Pure: the object as the cache has it, what is known of its target, the last decision and ``now`` go in; a merge patch or
None comes out. None means that the status has no news. News are: another number or accelerator, a condition whose
status or reason changed, a first or removed condition, another message of one that names bad input. A message whose
numbers moved is not new; it travels with the next patch, at the latest with the heartbeat.

Another number of current replicas is news, but not the first one: an API server whose CustomResourceDefinition does not
have the field drops it, and every status would be written again and again. ``actuation`` says the same as Progressing.

Three things differ from v0.5.1: all conditions are persisted; ``desiredOptimizedAlloc`` is written whole or removed;
and nothing is written without news.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from wva.api.meta import Condition, format_time, parse_time
from wva.api.variantautoscaling import ConditionType, OptimizedAlloc, TargetReason, VariantAutoscaling
from wva.model.decision import Decision
from wva.model.variant import UNKNOWN_ACCELERATOR
from wva.publish.conditions import ConfigurationView, TargetView, conditions_of

HEARTBEAT_SECONDS: Final = 600.0
_MIN_ACCELERATOR_LENGTH: Final = 2
_TOLD_AT_ONCE: Final = frozenset(
    {
        ConditionType.CLAIMED,
        ConditionType.CONFIGURATION_VALID,
        ConditionType.GATEWAY_READABLE,
        ConditionType.INVENTORY_CONSISTENT,
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
    old, allocation = va.status.desired_optimized_alloc, None
    if decision is not None:
        # The schema refuses a shorter accelerator, and with it the whole patch.
        named = len(decision.accelerator) >= _MIN_ACCELERATOR_LENGTH
        allocation = OptimizedAlloc(decision.accelerator if named else UNKNOWN_ACCELERATOR, decision.desired)
    elif target.reason is TargetReason.TARGET_CONFLICT:
        # A conflict keeps what was said last: the workload is still there and its number must not be lost.
        allocation = old

    # All conditions: ours with their times, then those of others untouched.
    known = {condition.type: condition for condition in reversed(va.status.conditions)}
    conditions = []
    for said in conditions_of(va, target, decision, configuration, numbered=allocation is not None):
        before = known.get(said.type)
        same = before is not None and before.status == said.status and before.last_transition_time
        since = same or format_time(now)
        conditions.append(replace(said, last_transition_time=since, observed_generation=va.metadata.generation))
    conditions += [condition for condition in va.status.conditions if condition.type not in _OWNED]

    heartbeat = False
    if allocation is not None and old is not None:
        last = parse_time(old.last_run_time)
        heartbeat = last is None or now - last >= HEARTBEAT_SECONDS
    if not (
        heartbeat
        or {_essence(condition) for condition in va.status.conditions} != {_essence(each) for each in conditions}
        or (old and (old.accelerator, old.num_replicas))
        != (allocation and (allocation.accelerator, allocation.num_replicas))
        or va.status.current_replicas not in {None, target.current}
    ):
        return None

    status: dict[str, Any] = {
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": condition.last_transition_time,
                "observedGeneration": condition.observed_generation,
            }
            for condition in conditions
        ]
    }
    if target.current is not None or va.status.current_replicas is not None:
        status["currentReplicas"] = target.current
    if decision is not None:
        status["actuation"] = {"applied": decision.settling_since is None}
    elif va.status.actuation is not None:
        status["actuation"] = None
    if allocation is not None:
        status["desiredOptimizedAlloc"] = {
            "accelerator": allocation.accelerator,
            "numReplicas": allocation.num_replicas,
            "lastRunTime": format_time(now),
        }
    elif old is not None:
        status["desiredOptimizedAlloc"] = None
    return {"metadata": {"resourceVersion": va.metadata.resource_version}, "status": status}


def _essence(condition: Condition) -> tuple[str, str, str, int, str]:
    """Return what is news of a condition when it differs."""
    words = condition.message if condition.type in _TOLD_AT_ONCE else ""
    return condition.type, condition.status, condition.reason, condition.observed_generation, words
