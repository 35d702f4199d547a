"""Why a variant is not scaled: one table for the conditions, the events and the metric.

An obstacle is a reason that a condition of the variant gives. While the status says it, ``wva_variant_obstacle`` has a
series with this reason. When it begins, the event of the table is recorded. The writer of the status records it, except
for the reasons of a decision or of a start from zero: those are recorded with the decision, whose steps the event has.

The metric is read from the cached statuses, so it cannot differ from the conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from prometheus_client.samples import Sample

from wva.api.meta import Condition
from wva.api.variantautoscaling import ConditionType, TargetReason
from wva.model.decision import Decision, Reason
from wva.model.trouble import TroubleReason
from wva.model.variant import VariantKey
from wva.publish.leader_collector import Head, LeaderCollector

OBSTACLE: Final = "wva_variant_obstacle"
OBSTACLE_HELP: Final = "1 for each reason why the variant is not scaled, as its conditions give it; absent without any."
OBSTACLE_LABELS: Final = ("variant_name", "namespace", "reason")

HOLD_EVENT: Final = "DesiredReplicasHeld"
LIMITED_EVENT: Final = "ScaleUpLimited"
REFUSED_EVENT: Final = TroubleReason.START_REFUSED.value
FAILED_EVENT: Final = TroubleReason.START_FAILED.value

PARTLY_LIMITED: Final = "PartlyLimited"
"""Reason of Limited where the decision has another one: the number grew or stayed, and should be larger."""

Statuses = Callable[[], Iterable[VariantKey]]
ConditionsOf = Callable[[VariantKey], tuple[Condition, ...]]


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
        """The status of the condition while the obstacle is there."""
        return "True" if self.condition is ConditionType.LIMITED else "False"


_READY, _HELD, _LIMITED = ConditionType.READY, ConditionType.OPTIMIZATION_READY, ConditionType.LIMITED
_GATEWAY, _INVENTORY = ConditionType.GATEWAY_READABLE, ConditionType.INVENTORY_CONSISTENT


def _around(condition: ConditionType, reason: str, meaning: str) -> Obstacle:
    """Return an obstacle whose event has its name."""
    return Obstacle(reason, condition, reason, meaning)


OBSTACLES: Final = (
    _around(_READY, TargetReason.DEPLOYMENT_NOT_FOUND.value, "The Deployment in `spec.scaleTargetRef` does not exist."),
    _around(
        _READY,
        TargetReason.TARGET_NOT_FOUND.value,
        "The StatefulSet or LeaderWorkerSet in `spec.scaleTargetRef` does not exist.",
    ),
    _around(_READY, TargetReason.TARGET_CONFLICT.value, "Another VariantAutoscaling names the same target."),
    _around(_READY, TargetReason.TARGET_UNSUPPORTED.value, "The controller does not scale targets of this kind."),
    Obstacle(Reason.METRICS_MISSING.value, _HELD, HOLD_EVENT, "Replicas are Ready, but Prometheus has no samples."),
    Obstacle(
        Reason.METRICS_STALE.value,
        _HELD,
        HOLD_EVENT,
        "The samples are older than `PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD`.",
    ),
    Obstacle(Reason.METRICS_INVALID.value, _HELD, HOLD_EVENT, "The samples have impossible values."),
    Obstacle(
        Reason.METRICS_INCOMPLETE.value,
        _HELD,
        HOLD_EVENT,
        "Only some replicas report. The number may rise, but it does not fall.",
    ),
    Obstacle(Reason.PROMETHEUS_ERROR.value, _HELD, HOLD_EVENT, "Prometheus did not answer."),
    Obstacle(Reason.NO_READY_REPLICAS.value, _HELD, HOLD_EVENT, "No replica of the model is Ready."),
    Obstacle(
        Reason.ANALYSIS_FAILED.value,
        _HELD,
        HOLD_EVENT,
        "The cycle ended with an error; see the log line `cycle_failed`.",
    ),
    Obstacle(
        Reason.MODEL_FAILED.value,
        _HELD,
        HOLD_EVENT,
        "Reading or deciding this model ended with an error; see the log line `model_failed`. WVA decides all other "
        "models as usual.",
    ),
    Obstacle(
        Reason.GPU_LIMITED.value,
        _LIMITED,
        LIMITED_EVENT,
        "There are not enough GPUs, or a quota is used up. The message says whose limit it is.",
    ),
    Obstacle(
        Reason.NO_CANDIDATE.value,
        _LIMITED,
        LIMITED_EVENT,
        "The model is saturated, and none of its variants can grow. The message gives the reason of each variant.",
    ),
    Obstacle(
        Reason.BOUNDED.value, _LIMITED, LIMITED_EVENT, "The maximum of the scaler or of an annotation is reached."
    ),
    Obstacle(
        PARTLY_LIMITED,
        _LIMITED,
        LIMITED_EVENT,
        "The number is smaller than wanted, and the decision has another reason. The message says whose limit it is.",
    ),
    Obstacle(
        TroubleReason.START_REFUSED.value,
        _LIMITED,
        REFUSED_EVENT,
        "Requests wait for a model at zero replicas, and no variant may start.",
    ),
    Obstacle(
        TroubleReason.START_FAILED.value,
        _LIMITED,
        FAILED_EVENT,
        "The target could not be scaled from zero. The controller tries again.",
    ),
    _around(
        _GATEWAY,
        TroubleReason.GATEWAY_UNREADABLE.value,
        "The queue of an InferencePool in front of the variant cannot be read, so the model stays at zero.",
    ),
    _around(
        _GATEWAY,
        TroubleReason.SELECTOR_EMPTY.value,
        "An InferencePool of the namespace has an empty selector, and no other pool stands in front of the variant.",
    ),
    _around(
        _INVENTORY,
        TroubleReason.ACCELERATOR_UNKNOWN.value,
        "Limited mode: no node has the accelerator that the variant's label names.",
    ),
    _around(
        _INVENTORY,
        TroubleReason.LABELS_DISAGREE.value,
        "Limited mode: the labels of a node do not agree with its GPUs.",
    ),
    _around(_INVENTORY, TroubleReason.INVENTORY_UNKNOWN.value, "Limited mode: the nodes cannot be read."),
)
"""Every reason why a variant is not scaled. ``NotDecidedYet`` is none: it ends with the first cycle."""

_BY_CONDITION: Final = {(obstacle.condition.value, obstacle.reason): obstacle for obstacle in OBSTACLES}
_TOLD_WITH_THE_STATUS: Final = frozenset({_READY, _GATEWAY, _INVENTORY})
_OF_THE_DECISION: Final = frozenset({Reason.GPU_LIMITED, Reason.NO_CANDIDATE})


def limitation(decision: Decision) -> str:
    """Return the reason why the number is smaller than wanted; empty when it is not."""
    if decision.reason in _OF_THE_DECISION:
        return decision.reason.value
    if not decision.limits:
        return ""
    return Reason.BOUNDED.value if decision.reason is Reason.BOUNDED else PARTLY_LIMITED


def standing(conditions: Iterable[Condition]) -> Iterator[tuple[Obstacle, str]]:
    """Yield the obstacles that a status tells, with the message of each."""
    for condition in conditions:
        obstacle = _BY_CONDITION.get((condition.type, condition.reason))
        if obstacle is not None and condition.status == obstacle.status:
            yield obstacle, condition.message


def begun(before: Iterable[Condition], after: Iterable[Condition]) -> list[Announcement]:
    """Return the events for the obstacles that a new status tells and the former did not."""
    known = {obstacle for obstacle, _ in standing(before)}
    return [
        Announcement("Warning", obstacle.event, message)
        for obstacle, message in standing(after)
        if obstacle not in known and obstacle.condition in _TOLD_WITH_THE_STATUS
    ]


def _standing(conditions: Iterable[Condition]) -> list[tuple[Obstacle, str]]:
    return list(standing(conditions))


_HEADS: Final = (Head(OBSTACLE, OBSTACLE_HELP),)


class ObstacleCollector(LeaderCollector):
    """Yields a series for each variant and reason why it is not scaled."""

    def __init__(
        self, statuses: Statuses, *, conditions: ConditionsOf, leading: Callable[[], bool], instance: str = ""
    ) -> None:
        """``statuses`` returns the variants with a status, ``conditions`` those of one, none when it is not ours.

        ``instance`` adds the ``controller_instance`` label.
        """
        self._statuses = statuses
        self._conditions = conditions
        super().__init__(leading=leading, instance=instance)

    @property
    def heads(self) -> Sequence[Head]:
        """The one family."""
        return _HEADS

    def keys(self) -> Iterable[VariantKey]:
        """Return the variants with a status."""
        return self._statuses()

    def samples_of(self, key: VariantKey) -> Sequence[Sequence[Sample]]:
        """Return the samples of one variant."""
        found = self._read(key, lambda: _standing(self._conditions(key))) or []
        return [[self._sample(OBSTACLE, key, 1.0, reason=obstacle.reason) for obstacle, _ in found]]
