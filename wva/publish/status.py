"""What the status of a VariantAutoscaling should say, and the patch that makes it say so.

Pure: the object as the cache has it, what is known of its target, the last decision and ``now`` go in; a merge patch or
None comes out. None means that nothing new would be said. New are: another number or accelerator, a condition whose
status or reason changed, a first or removed condition, another message of one that names bad input. A message whose
numbers moved is not new; it travels with the next patch, at the latest with the heartbeat.

Another number of current replicas is news, but not the first one: an API server whose CustomResourceDefinition does not
have the field drops it, and every status would be written again and again. ``actuation`` says the same as Progressing.

Three things differ from v0.5.1: all conditions are persisted; ``desiredOptimizedAlloc`` is written whole or removed;
and nothing is written without news.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from wva import log
from wva.api.claims import CLAIM_REASON
from wva.api.meta import Condition, format_time, parse_time
from wva.api.variantautoscaling import ConditionType, OptimizedAlloc, TargetReason, VariantAutoscaling
from wva.model.decision import Decision
from wva.model.trouble import UNTROUBLED, Trouble
from wva.model.variant import UNKNOWN_ACCELERATOR
from wva.publish.obstacles import limitation
from wva.targets import DEFAULT

HEARTBEAT_SECONDS: Final = 600.0
_MIN_ACCELERATOR_LENGTH: Final = 2
_MAX_MESSAGE_CHARACTERS: Final = 4096
_TARGET_CHARACTERS: Final = 40


_ACCEPTED: Final = Trouble("ConfigurationAccepted", "all configuration for this variant is in force")
_READ: Final = Trouble("GatewayRead", "nothing is known to be wrong with the gateways in front of this variant")
_CONSISTENT: Final = Trouble("InventoryRead", "the nodes agree with what this variant says of its accelerator")
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


@dataclass(frozen=True, slots=True)
class TargetView:
    """What is known of the scale target: whether it can be scaled, why, in words, and the replicas that exist."""

    resolved: bool
    reason: TargetReason
    message: str
    name: str
    current: int | None = None
    kind: str = DEFAULT.resource.kind


@dataclass(frozen=True, slots=True)
class ConfigurationView:
    """Why configuration that concerns this variant is not in force; ``message`` empty when all of it is.

    ``claim`` says which controller decides; empty says nothing about it. ``gateway`` and ``inventory`` are what is
    wrong with the gateways in front of it and with the GPUs that it is counted against; ``start`` is what keeps it from
    being started from zero.
    """

    message: str = ""
    claim: str = ""
    gateway: Trouble = UNTROUBLED
    inventory: Trouble = UNTROUBLED
    start: Trouble = UNTROUBLED

    def troubles(self) -> tuple[tuple[ConditionType, Trouble, Trouble], ...]:
        """Return each type of condition that is there while something is wrong: what is, and what is said after it."""
        invalid = Trouble("InvalidConfiguration", self.message) if self.message else UNTROUBLED
        return (
            (ConditionType.CONFIGURATION_VALID, invalid, _ACCEPTED),
            (ConditionType.GATEWAY_READABLE, self.gateway, _READ),
            (ConditionType.INVENTORY_CONSISTENT, self.inventory, _CONSISTENT),
        )


def status_patch(
    va: VariantAutoscaling,
    *,
    target: TargetView,
    decision: Decision | None,
    configuration: ConfigurationView,
    now: float,
) -> dict[str, Any] | None:
    """Return the merge patch for the status subresource, or None when there is nothing new to say."""
    allocation = _allocation(va, target, decision)
    conditions = _merge(va, _wanted(va, target, decision, configuration, claimed=allocation is not None), now)
    old = va.status.desired_optimized_alloc
    changed = _conditions_news(va, conditions) or _allocation_news(old, allocation)
    moved = va.status.current_replicas is not None and va.status.current_replicas != target.current
    if not changed and not moved and not _heartbeat_due(va, allocation, now):
        return None
    status: dict[str, Any] = {"conditions": [_encode(condition) for condition in conditions]}
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


def _wanted(
    va: VariantAutoscaling,
    target: TargetView,
    decision: Decision | None,
    configuration: ConfigurationView,
    *,
    claimed: bool,
) -> list[Condition]:
    """Return the conditions that should be set, without times; ``claimed``: the status has a number."""
    wanted = [
        _condition(ConditionType.TARGET_RESOLVED, target.resolved, target.reason, target.message),
        _metrics_condition(target, decision),
        _optimization_condition(target, decision),
        _ready_condition(target),
    ]
    if configuration.claim and claimed:
        # Only with a number, whose time says how long the claim is good for.
        wanted.append(_condition(ConditionType.CLAIMED, True, CLAIM_REASON, configuration.claim))
    wanted.append(_progressing_condition(decision))
    if decision is not None:
        wanted.append(_limited_condition(decision, configuration.start))
    return [*wanted, *_trouble_conditions(va, configuration)]


def _condition(type_: str, status: bool, reason: str, message: str) -> Condition:  # noqa: FBT001 - it is the status
    return Condition(
        type=str(type_),
        status="True" if status else "False",
        reason=str(reason),
        message=log.printable(message[:_MAX_MESSAGE_CHARACTERS])[:_MAX_MESSAGE_CHARACTERS],
    )


def _metrics_condition(target: TargetView, decision: Decision | None) -> Condition:
    if decision is None:
        return _condition(ConditionType.METRICS_AVAILABLE, False, "MetricsUnavailable", target.message)
    verdict = decision.metrics
    return _condition(ConditionType.METRICS_AVAILABLE, verdict.available, verdict.reason, verdict.message)


def _optimization_condition(target: TargetView, decision: Decision | None) -> Condition:
    if decision is None or not target.resolved:
        return replace(_ready_condition(target), type=ConditionType.OPTIMIZATION_READY.value)
    steps = f"; steps: {decision.way}" if decision.way else ""
    room = _MAX_MESSAGE_CHARACTERS - len(steps) - _TARGET_CHARACTERS
    message = f"{decision.message[:room]} (target: {decision.desired} replicas{steps})"
    return _condition(ConditionType.OPTIMIZATION_READY, not decision.held, decision.reason, message)


def _ready_condition(target: TargetView) -> Condition:
    if target.resolved:
        return _condition(ConditionType.READY, True, TargetReason.VARIANT_ACCEPTED, target.message)
    if target.reason is TargetReason.TARGET_NOT_FOUND and (not target.name or target.kind == DEFAULT.resource.kind):
        message = f"Target deployment '{target.name}' does not exist" if target.name else target.message
        return _condition(ConditionType.READY, False, TargetReason.DEPLOYMENT_NOT_FOUND, message)
    return _condition(ConditionType.READY, False, target.reason, target.message)


def _limited_condition(decision: Decision, start: Trouble) -> Condition:
    """Return whether the variant should have more replicas than it may have, and whose limit that is."""
    if start:
        return _condition(ConditionType.LIMITED, True, start.reason, start.message)
    reason = limitation(decision)
    if not reason:
        return _condition(ConditionType.LIMITED, False, "NotLimited", "nothing keeps the number from being larger")
    words = "; ".join(dict.fromkeys(step.limit for step in decision.limits)) or decision.message
    return _condition(ConditionType.LIMITED, True, reason, words)


def _progressing_condition(decision: Decision | None) -> Condition:
    """Return whether the workload is still on its way to the number."""
    if decision is None:
        return _condition(ConditionType.PROGRESSING, False, "NoTarget", "nothing is being scaled")
    if decision.settling_since is None:
        message = f"{decision.current} replicas exist, as desired"
        return _condition(ConditionType.PROGRESSING, False, "Settled", message)
    message = f"{decision.current} replicas exist, {decision.desired} desired, not all of them ready"
    return _condition(ConditionType.PROGRESSING, True, "Settling", message)


def _trouble_conditions(va: VariantAutoscaling, configuration: ConfigurationView) -> Iterator[Condition]:
    """Yield the conditions that are there while something is wrong, and once it has been put right from then on."""
    for type_, trouble, after in configuration.troubles():
        if trouble or va.status.condition(type_) is not None:
            said = trouble or after
            yield _condition(type_, not trouble, said.reason, said.message)


def _merge(va: VariantAutoscaling, wanted: list[Condition], now: float) -> list[Condition]:
    """Return all conditions: ours with their times, then those of others untouched."""
    known = {condition.type: condition for condition in reversed(va.status.conditions)}
    merged = [_timed(condition, known.get(condition.type), va.metadata.generation, now) for condition in wanted]
    return merged + [condition for condition in va.status.conditions if condition.type not in _OWNED]


def _timed(condition: Condition, old: Condition | None, generation: int, now: float) -> Condition:
    same = old is not None and old.status == condition.status and old.last_transition_time
    since = old.last_transition_time if old is not None and same else format_time(now)
    return Condition(condition.type, condition.status, condition.reason, condition.message, since, generation)


def _conditions_news(va: VariantAutoscaling, conditions: list[Condition]) -> bool:
    def essence(condition: Condition) -> tuple[str, str, str, int, str]:
        words = condition.message if condition.type in _TOLD_AT_ONCE else ""
        return condition.type, condition.status, condition.reason, condition.observed_generation, words

    return {essence(condition) for condition in va.status.conditions} != {essence(entry) for entry in conditions}


def _allocation(va: VariantAutoscaling, target: TargetView, decision: Decision | None) -> OptimizedAlloc | None:
    if decision is None:
        # A conflict keeps what was said last: the workload is still there and its number must not be lost.
        return va.status.desired_optimized_alloc if target.reason is TargetReason.TARGET_CONFLICT else None
    accelerator = decision.accelerator
    if len(accelerator) < _MIN_ACCELERATOR_LENGTH:
        accelerator = UNKNOWN_ACCELERATOR  # the schema refuses shorter ones, and with it the whole patch
    return OptimizedAlloc(accelerator, decision.desired)


def _allocation_news(old: OptimizedAlloc | None, new: OptimizedAlloc | None) -> bool:
    if old is None or new is None:
        return old is not new
    return (old.accelerator, old.num_replicas) != (new.accelerator, new.num_replicas)


def _heartbeat_due(va: VariantAutoscaling, allocation: OptimizedAlloc | None, now: float) -> bool:
    old = va.status.desired_optimized_alloc
    if allocation is None or old is None:
        return False
    last = parse_time(old.last_run_time)
    return last is None or now - last >= HEARTBEAT_SECONDS


def _encode(condition: Condition) -> dict[str, Any]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
        "observedGeneration": condition.observed_generation,
    }
