"""The Kubernetes events and log lines about a decision.

WVA records an event for each change of the desired number, with the reason and the steps that led to it. It writes one
log line per variant and cycle. While the safety net is active it also writes the line of
docs/metrics.md#the-safety-net.
"""

from __future__ import annotations

from typing import Final

from structlog.typing import FilteringBoundLogger

from wva.api.core import ObjectReference
from wva.api.kinds import VARIANT_AUTOSCALINGS
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.kube.cache import Store
from wva.kube.events import EventRecorder
from wva.model.decision import Decision, Reason, Source
from wva.model.variant import VariantKey
from wva.publish.obstacles import HOLD_EVENT, LIMITED_EVENT, Announcement, limitation

SCALE_UP_EVENT: Final = "ScaleUpRecommended"
SCALE_DOWN_EVENT: Final = "ScaleDownRecommended"
CHANGES: Final = frozenset({SCALE_UP_EVENT, SCALE_DOWN_EVENT})
"""Reasons of events about a changed number: the recorder posts these first and does not limit them."""
RESUME_EVENT: Final = "DesiredReplicasMeasured"
UNREACHABLE_EVENT: Final = "ObjectiveUnreachable"
CLAIMED_TWICE_EVENT: Final = "VariantClaimedTwice"

SAFETY_NET_MESSAGE: Final = "Safety net activated: emitted fallback metrics"
_EVENT_CHARACTERS: Final = 1000
"""The API server accepts so long a message, with room for characters beyond ASCII."""


class Announcer:
    """Records events on VariantAutoscalings that are still there."""

    def __init__(self, variants: Store[VariantAutoscaling], recorder: EventRecorder) -> None:
        """Find the objects in ``variants``."""
        self._variants = variants
        self._recorder = recorder

    def __call__(self, key: VariantKey, type_: str, reason: str, message: str) -> None:
        """Record an event on a variant; every type but ``Warning`` is ``Normal``."""
        va = self._variants.get(Key(key.namespace, key.name))
        if va is None:
            return
        metadata = va.metadata
        reference = ObjectReference(
            VARIANT_AUTOSCALINGS.api_version,
            VARIANT_AUTOSCALINGS.kind,
            metadata.name,
            metadata.namespace,
            metadata.uid,
            metadata.resource_version,
        )
        self._recorder.event(reference, "Warning" if type_ == "Warning" else "Normal", reason, message)


def announcements(old: Decision | None, new: Decision) -> list[Announcement]:
    """Return the events for the step from one decision of a variant to the next."""
    events: list[Announcement] = []
    previous = old.desired if old is not None else new.previous
    if previous is not None and previous != new.desired:
        reason = SCALE_UP_EVENT if new.desired > previous else SCALE_DOWN_EVENT
        events.append(Announcement("Normal", reason, _with_steps(f"desired replicas {previous} -> {new.desired}", new)))
    limited = limitation(new)
    if limited and (old is None or limitation(old) != limited):
        events.append(Announcement("Warning", LIMITED_EVENT, _with_steps(limited, new)))
    beyond, beyond_before = (
        "" if decision is None or decision.aim is None else decision.aim.beyond for decision in (new, old)
    )
    if beyond and not beyond_before:
        events.append(Announcement("Warning", UNREACHABLE_EVENT, beyond))
    was_held = old is not None and old.held and old.reason is not Reason.NOT_DECIDED
    if new.held and (old is None or not was_held or (on_safety_net(new) and not on_safety_net(old))):
        events.append(Announcement("Warning", HOLD_EVENT, _with_steps(new.reason.value, new)))
    elif was_held and not new.held:
        events.append(Announcement("Normal", RESUME_EVENT, new.message))
    return events


def _with_steps(event: str, decision: Decision) -> str:
    """Return what happened, why (cut if too long), and the steps from the analyzer to the number."""
    steps = f" (steps: {decision.way})" if decision.way else ""
    room = max(0, _EVENT_CHARACTERS - len(steps))
    return f"{event}: {decision.message}"[:room] + steps


def on_safety_net(decision: Decision) -> bool:
    """Tell whether WVA keeps the number without any measurement (docs/metrics.md#the-safety-net)."""
    return decision.held and decision.source in {Source.PREVIOUS_DESIRED, Source.CURRENT_REPLICAS}


def log_decision(logger: FilteringBoundLogger, decision: Decision) -> None:
    """Write the canonical line of one variant and cycle."""
    logger.info(
        "variant_decided",
        variant=str(decision.key),
        model=decision.model.model_id,
        accelerator=decision.accelerator,
        current=decision.current,
        desired=decision.desired,
        previous=decision.previous,
        action=decision.action.value,
        reason=decision.reason.value,
        source=decision.source.value,
        coverage=f"{decision.coverage.fresh}/{decision.coverage.expected}",
        message=decision.message,
        steps=[
            f"{step.stage}: {step.before} -> {step.after} ({step.reason})" + (f" [{step.limit}]" if step.limit else "")
            for step in decision.steps
        ],
        limited_by=[step.limited_by for step in decision.limits],
        fewer=[step.fewer for step in decision.limits],
    )
    if on_safety_net(decision):
        logger.warning(
            SAFETY_NET_MESSAGE,
            event_name="safety_net_activated",
            variant=decision.key.name,
            namespace=decision.key.namespace,
            currentReplicas=decision.current,
            desiredReplicas=decision.desired,
            accelerator=decision.accelerator,
            fallbackSource=decision.source.value,
            reason=decision.message,
        )
