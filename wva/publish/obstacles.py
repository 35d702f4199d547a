"""Why a variant is not scaled: one table for the conditions, the events and the metric.

An obstacle is a reason that a condition of the variant gives. While the status has the reason, ``wva_variant_obstacle``
has a series with it. When the obstacle begins, the writer of the status records the event of the table. The events for
the reasons of a decision or of a start from zero are recorded with the decision instead, since they contain its steps.

The metric is read from the cached statuses, so it cannot differ from the conditions.

A further reason is a member of ``Reason`` (of a decision), ``TroubleReason`` (of everything else) or ``TargetReason``,
and a row here with its condition and its meaning. ``tests/publish/test_obstacles.py`` fails until it has both, and
until a situation in which it arises is in ``tests/publish/situations.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from wva.api.meta import Condition
from wva.api.variantautoscaling import ConditionType, TargetReason
from wva.config.declare import TARGET_KINDS
from wva.model.decision import Decision, Reason
from wva.model.trouble import TroubleReason

HOLD_EVENT: Final = "DesiredReplicasHeld"
LIMITED_EVENT: Final = "ScaleUpLimited"
REFUSED_EVENT: Final = TroubleReason.START_REFUSED.value
FAILED_EVENT: Final = TroubleReason.START_FAILED.value

PARTLY_LIMITED: Final = "PartlyLimited"
"""Reason of Limited when a limit keeps the number smaller than wanted, but the decision has another reason."""


class Announcement(NamedTuple):
    """A Kubernetes event to record on the VariantAutoscaling."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason why a variant is not scaled, the condition that gives it, the event, and what it means."""

    reason: str
    condition: ConditionType
    event: str
    meaning: str

    @property
    def status(self) -> str:
        """The status of the condition while the obstacle exists."""
        return "True" if self.condition is ConditionType.LIMITED else "False"


_MEANINGS: Final[tuple[tuple[ConditionType, str, dict[str, str]], ...]] = (
    (
        ConditionType.READY,
        "",
        {
            TargetReason.DEPLOYMENT_NOT_FOUND: "The Deployment in `spec.scaleTargetRef` does not exist.",
            TargetReason.TARGET_NOT_FOUND: f"The {' or '.join(TARGET_KINDS)} in `spec.scaleTargetRef` does not exist.",
            TargetReason.TARGET_CONFLICT: "Another VariantAutoscaling names the same target.",
            TargetReason.TARGET_UNSUPPORTED: "The controller does not scale targets of this kind.",
        },
    ),
    (
        ConditionType.OPTIMIZATION_READY,
        HOLD_EVENT,
        {
            Reason.METRICS_MISSING: "Replicas are Ready, but Prometheus has no samples that can be used. The message "
            "says under which name or with which labels it has them, if it does.",
            Reason.METRICS_STALE: "The samples are older than `PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD`.",
            Reason.METRICS_INVALID: "The samples have impossible values.",
            Reason.METRICS_INCOMPLETE: "Only some replicas report, or what they report does not suffice yet. "
            "The number does not fall.",
            Reason.PROMETHEUS_ERROR: "Prometheus did not answer.",
            Reason.NO_READY_REPLICAS: "No replica of the model is Ready.",
            Reason.ANALYSIS_FAILED: "The cycle ended with an error; see the log line `cycle_failed`.",
            Reason.MODEL_FAILED: "Reading or deciding this model ended with an error; see the log line "
            "`model_failed`. WVA decides all other models as usual.",
        },
    ),
    (
        ConditionType.LIMITED,
        LIMITED_EVENT,
        {
            Reason.GPU_LIMITED: "There are not enough GPUs, or a quota is used up. The message says whose limit it is.",
            Reason.ROLE_LIMITED: "Another role of the model is limited, and could use no more of this one. The message "
            "names that role.",
            Reason.NO_CANDIDATE: "The model is saturated, and none of its variants can grow. The message gives the "
            "reason of each variant.",
            Reason.BOUNDED: "The maximum of the scaler or of an annotation is reached.",
            PARTLY_LIMITED: "The number is smaller than wanted, and the decision has another reason. The message says "
            "whose limit it is.",
        },
    ),
    (
        ConditionType.LIMITED,
        "",
        {
            REFUSED_EVENT: "Requests wait for a model at zero replicas, and no variant may start.",
            FAILED_EVENT: "The controller could not scale the target from zero, and tries again.",
        },
    ),
    (
        ConditionType.QUERIES_ANSWERED,
        "",
        {
            TroubleReason.QUERY_FAILED: "Prometheus does not answer a query about the namespace, and WVA decides "
            "without the answer. The message names the query, the error and what is in force.",
        },
    ),
    (
        ConditionType.ENGINES_READABLE,
        "",
        {
            TroubleReason.ENGINE_SERIES_UNUSABLE: "Series that the default analyzer needs are missing or unusable, so "
            "the percentage analyzer decides. The message names them.",
            TroubleReason.MODEL_NAME_SHARED: "Another model seems to be served under the name of this one in the "
            "namespace, so each gets the load of the other. The message says what shows that.",
            TroubleReason.ROLE_UNKNOWN: "Other variants of the model say what their pods compute of a request, and "
            "this one does not.",
            TroubleReason.ENGINES_DORMANT: "Engines sleep (`vllm:engine_sleep_state`), so their pods count as "
            "no replicas.",
            TroubleReason.ENGINES_SLOW: "Pods take clearly longer for a token than others of the variant with as many "
            "requests. The message names them.",
        },
    ),
    (
        ConditionType.REPLICAS_ON_TIME,
        "",
        {
            TroubleReason.REPLICAS_LATE: "Replicas that the number asks for are not Ready within the transition "
            "deadline, or start slower than all before them while another variant can serve. Decisions count on them "
            "no longer.",
            TroubleReason.PODS_UNSCHEDULABLE: "The scheduler has found no node for pods of the target for a minute.",
            TroubleReason.CONTAINERS_FAILING: "Containers of pods end again and again, or cannot start "
            "(`CrashLoopBackOff`, `ImagePullBackOff`). The message has the first of them.",
            TroubleReason.SCALER_NOT_FOLLOWING: "After the transition deadline the target's `spec.replicas` is still "
            "below the number.",
            TroubleReason.SCALER_MISSING: "The same, and no HPA or ScaledObject names the target.",
        },
    ),
    (
        ConditionType.OBJECTIVES_MET,
        "",
        {
            TroubleReason.OBJECTIVE_MISSED: "Fewer requests of the model than asked for were served within its "
            "objectives, over the last hour and over the last five minutes. The message has the shares.",
        },
    ),
    (
        ConditionType.GATEWAY_READABLE,
        "",
        {
            TroubleReason.GATEWAY_UNREADABLE: "The queue of an InferencePool in front of the variant cannot be read, "
            "so the model stays at zero.",
            TroubleReason.QUEUE_MISSING: "The picker of an InferencePool in front of the variant has had requests and "
            "shows no queue, so it holds none. A request that it refuses starts the model, and is lost.",
            TroubleReason.SELECTOR_EMPTY: "An InferencePool of the namespace has an empty selector, and no other pool "
            "stands in front of the variant.",
            TroubleReason.NAMES_UNKNOWN: "Requests wait in an InferencePool in front of the variant under "
            "names that none of the models behind it has, so they start nothing.",
        },
    ),
    (
        ConditionType.INVENTORY_CONSISTENT,
        "",
        {
            TroubleReason.ACCELERATOR_UNKNOWN: "Limited mode: no node has the accelerator that the variant's label "
            "names.",
            TroubleReason.LABELS_DISAGREE: "Limited mode: the labels of a node do not agree with its GPUs.",
            TroubleReason.INVENTORY_UNKNOWN: "Limited mode: the nodes cannot be read.",
        },
    ),
    (
        ConditionType.ACTUATED,
        "",
        {
            TroubleReason.ACTUATION_SCALER: "Direct actuation: an HPA or a ScaledObject scales the target, too.",
            TroubleReason.ACTUATION_OWNED: "Direct actuation: another manager owns `spec.replicas` of the target.",
            TroubleReason.ACTUATION_FORBIDDEN: "Direct actuation: the controller may not write the target's scale.",
            TroubleReason.ACTUATION_FAILED: "Direct actuation: the controller could not write the target's scale, and "
            "tries again.",
            TroubleReason.ACTUATION_REWRITTEN: "Another writer has put the replicas of the target below the number "
            "twice or more within an hour. WVA orders no replicas for the requests that pile up because of it.",
            TroubleReason.ACTUATION_NO_CLIENT: "KEDA push: KEDA does not ask for the number, so nothing applies it.",
        },
    ),
)
"""Conditions, their event (if empty, the reason names the event), and what each reason means."""

OBSTACLES: Final = tuple(
    Obstacle(str(reason), condition, event or str(reason), meaning)
    for condition, event, meanings in _MEANINGS
    for reason, meaning in meanings.items()
)
"""Every reason why a variant is not scaled, or does not serve its users as it shall. ``NotDecidedYet`` is missing
because it ends with the first cycle."""

_BY_CONDITION: Final = {(obstacle.condition.value, obstacle.reason): obstacle for obstacle in OBSTACLES}
_CONDITIONS_OF_THE_DECISION: Final = frozenset({ConditionType.OPTIMIZATION_READY, ConditionType.LIMITED})


def limitation(decision: Decision) -> str:
    """Return the reason why the number is smaller than wanted; empty when it is not."""
    if decision.reason in {Reason.GPU_LIMITED, Reason.ROLE_LIMITED, Reason.NO_CANDIDATE}:
        return decision.reason.value
    if not decision.limits:
        return ""
    return Reason.BOUNDED.value if decision.reason is Reason.BOUNDED else PARTLY_LIMITED


def standing(conditions: Iterable[Condition]) -> Iterator[tuple[Obstacle, str]]:
    """Yield the obstacles that a status shows, with the message of each."""
    for condition in conditions:
        obstacle = _BY_CONDITION.get((condition.type, condition.reason))
        if obstacle is not None and condition.status == obstacle.status:
            yield obstacle, condition.message


def begun(before: Iterable[Condition], after: Iterable[Condition]) -> list[Announcement]:
    """Return the events for the obstacles that a new status shows and the former one did not."""
    former = {obstacle for obstacle, _ in standing(before)}
    return [
        Announcement("Warning", obstacle.event, message)
        for obstacle, message in standing(after)
        if obstacle not in former and obstacle.condition not in _CONDITIONS_OF_THE_DECISION
    ]
