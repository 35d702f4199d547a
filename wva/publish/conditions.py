"""The conditions of a VariantAutoscaling, in the order in which the status has them.

``api.variantautoscaling`` has their types. ``publish.obstacles`` lists the reasons for which WVA does not scale a
variant: to add a reason, begin there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from wva import log
from wva.api.meta import Condition
from wva.api.variantautoscaling import CLAIM_REASON, ConditionType, TargetReason, VariantAutoscaling
from wva.decide.amounts import replicas
from wva.model.decision import ENGINES_READABLE, Decision, MetricsVerdict, Reason
from wva.model.trouble import UNTROUBLED, Trouble
from wva.publish.obstacles import limitation
from wva.targets import DEFAULT

_MAX_MESSAGE_CHARACTERS: Final = 4096
_TARGET_CHARACTERS: Final = 40
"""Room for the words about the target after a reason that had to be cut."""

_ACCEPTED: Final = Trouble("ConfigurationAccepted", "all configuration for this variant is in force")
_ENGINES: Final = Trouble(ENGINES_READABLE.reason, ENGINES_READABLE.message)
_ANSWERED: Final = Trouble("QueriesAnswered", "every query about the namespace has an answer")
_READ: Final = Trouble("GatewayRead", "nothing is known to be wrong with the gateways in front of this variant")
_WRITTEN: Final = Trouble("NumberWritten", "nothing keeps the number from being written to the target")
_IN_TIME: Final = Trouble("ReplicasInTime", "no replica that the number asks for is late")
_SERVED: Final = Trouble("ServedInTime", "users are served within the objectives now, or were within the last hour")
_CONSISTENT: Final = Trouble("InventoryRead", "the nodes agree with what this variant says of its accelerator")


@dataclass(frozen=True, slots=True)
class TargetView:
    """The scale target: whether WVA can scale it, the reason and its message, and the replicas that exist.

    ``role`` is what its pods compute of a request, empty if they do not say it.
    """

    resolved: bool
    reason: TargetReason
    message: str
    name: str
    current: int | None = None
    kind: str = DEFAULT.resource.kind
    role: str = ""


@dataclass(frozen=True, slots=True)
class ConfigurationView:
    """The problems around a variant that its conditions report.

    ``message`` says why some of its configuration is not in force; it is empty when all of it is. ``claim`` names the
    controller that decides on the variant; without it there is no Claimed condition. ``queries``, ``gateway`` and
    ``inventory`` are the troubles of the queries about its namespace, of its gateways and of its GPUs. ``late`` says
    why replicas are not there in time, ``start`` why WVA cannot start it from zero, and ``actuation`` why it cannot
    write its number. ``served`` says whether its users get what they shall; None: there was no check yet, so the status
    keeps what it says. ``shadow``: its number is not for its target.
    """

    message: str = ""
    claim: str = ""
    queries: Trouble = UNTROUBLED
    gateway: Trouble = UNTROUBLED
    inventory: Trouble = UNTROUBLED
    late: Trouble = UNTROUBLED
    start: Trouble = UNTROUBLED
    actuation: Trouble = UNTROUBLED
    served: Trouble | None = UNTROUBLED
    shadow: bool = False


def conditions_of(
    va: VariantAutoscaling,
    target: TargetView,
    decision: Decision | None,
    configuration: ConfigurationView,
    *,
    numbered: bool,
) -> Iterator[Condition]:
    """Yield the conditions that the status should have, without times; ``numbered``: the status has a number."""
    yield _condition(ConditionType.TARGET_RESOLVED, target.resolved, target.reason, target.message)

    metrics = MetricsVerdict(False, "MetricsUnavailable", target.message) if decision is None else decision.metrics
    yield _condition(ConditionType.METRICS_AVAILABLE, metrics.available, metrics.reason, metrics.message)

    reason, message = target.reason, target.message
    if target.resolved:
        reason = TargetReason.VARIANT_ACCEPTED
    elif reason is TargetReason.TARGET_NOT_FOUND and (not target.name or target.kind == DEFAULT.resource.kind):
        reason = TargetReason.DEPLOYMENT_NOT_FOUND
        message = _absence(va, target.name) if target.name else message
    ready = _condition(ConditionType.READY, target.resolved, reason, message)
    if decision is None or not target.resolved:
        yield replace(ready, type=ConditionType.OPTIMIZATION_READY.value)
    else:
        steps = f"; steps: {decision.way}" if decision.way else ""
        objective_words = "" if decision.aim is None else decision.aim.summary
        objectives = f"; objectives: {objective_words}" if objective_words else ""
        room = max(0, _MAX_MESSAGE_CHARACTERS - len(objectives) - len(steps) - _TARGET_CHARACTERS)
        message = f"{decision.message[:room]}{objectives} (target: {decision.desired} replicas{steps})"
        yield _condition(ConditionType.OPTIMIZATION_READY, not decision.held, decision.reason, message)
    yield ready

    if configuration.shadow and decision is not None:
        message = f"would have {replicas(decision.desired)}; {decision.current} exist"
        yield _condition(ConditionType.SHADOW, True, "ShadowMode", message)
    elif va.status.condition(ConditionType.SHADOW) is not None:
        yield _condition(ConditionType.SHADOW, False, "Acting", "the number is for the target")

    if configuration.claim and numbered:
        # A claim needs a number: the time of the number says until when the claim is valid.
        yield _condition(ConditionType.CLAIMED, True, CLAIM_REASON, configuration.claim)

    if decision is None:
        yield _condition(ConditionType.PROGRESSING, False, "NoTarget", "nothing is being scaled")
    elif decision.settling_since is None:
        message = f"{decision.current} replicas exist, as desired"
        yield _condition(ConditionType.PROGRESSING, False, "Settled", message)
    else:
        message = f"{decision.current} replicas exist, {decision.desired} desired, not all of them ready"
        yield _condition(ConditionType.PROGRESSING, True, "Settling", message)

    start = configuration.start
    if decision is not None and start:
        yield _condition(ConditionType.LIMITED, True, start.reason, start.message)
    elif decision is not None and (limit := limitation(decision)):
        message = "; ".join(dict.fromkeys(step.limit for step in decision.limits)) or decision.message
        yield _condition(ConditionType.LIMITED, True, limit, message)
    elif decision is not None:
        message = "nothing keeps the number from being larger"
        yield _condition(ConditionType.LIMITED, False, "NotLimited", message)

    yield from _troubles(va, decision, configuration)


def _troubles(
    va: VariantAutoscaling, decision: Decision | None, configuration: ConfigurationView
) -> Iterator[Condition]:
    """Yield the conditions that the status gets when a problem appears, and keeps after it is solved."""
    invalid = Trouble("InvalidConfiguration", configuration.message) if configuration.message else UNTROUBLED
    verdict = ENGINES_READABLE if decision is None else decision.engines
    engines = UNTROUBLED if verdict.available else Trouble(verdict.reason, verdict.message)
    undecided = decision is not None and decision.reason is Reason.NOT_DECIDED
    # A process that has just started keeps what these conditions say until it has looked for itself.
    unseen = {
        ConditionType.ENGINES_READABLE: undecided,
        ConditionType.REPLICAS_ON_TIME: undecided,
        ConditionType.OBJECTIVES_MET: configuration.served is None,
    }
    served = configuration.served or UNTROUBLED
    if not served.known and va.status.condition(ConditionType.OBJECTIVES_MET) is None:
        served = UNTROUBLED  # most models without requests, or without objectives, have never missed any
    for type_, trouble, solved in (
        (ConditionType.CONFIGURATION_VALID, invalid, _ACCEPTED),
        (ConditionType.QUERIES_ANSWERED, configuration.queries, _ANSWERED),
        (ConditionType.ENGINES_READABLE, engines, _ENGINES),
        (ConditionType.REPLICAS_ON_TIME, configuration.late, _IN_TIME),
        (ConditionType.OBJECTIVES_MET, served, _SERVED),
        (ConditionType.GATEWAY_READABLE, configuration.gateway, _READ),
        (ConditionType.INVENTORY_CONSISTENT, configuration.inventory, _CONSISTENT),
        (ConditionType.ACTUATED, configuration.actuation, _WRITTEN),
    ):
        stored = va.status.condition(type_)
        if unseen.get(type_) and stored is not None:
            yield stored
        elif trouble or stored is not None:
            reported = trouble or solved
            yield _condition(type_, not trouble if reported.known else None, reported.reason, reported.message)


def _absence(va: VariantAutoscaling, name: str) -> str:
    """Return the text for a missing Deployment: deleted, if the status saw it since the last change of the spec."""
    deleted, ready = f"Target deployment '{name}' no longer exists", va.status.condition(ConditionType.READY)
    if ready is None:
        existed = False
    elif ready.message == deleted:
        existed = True
    else:
        existed = ready.status == "True" and ready.observed_generation == va.metadata.generation
    return deleted if existed else f"Target deployment '{name}' does not exist"


def _condition(type_: str, status: bool | None, reason: str, message: str) -> Condition:  # noqa: FBT001 - the status
    return Condition(
        type=str(type_),
        status="Unknown" if status is None else str(status),
        reason=str(reason),
        message=log.printable(message[:_MAX_MESSAGE_CHARACTERS])[:_MAX_MESSAGE_CHARACTERS],
    )
