"""``VariantAutoscaling`` (llmd.ai/v1alpha1): spec, status, condition types and reasons.

The API server enforces the schema in ``crd``. These structs have the part that the controller reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from wva.api.meta import Condition, ObjectMeta

GROUP: Final = "llmd.ai"
VERSION: Final = "v1alpha1"
KIND: Final = "VariantAutoscaling"
PLURAL: Final = "variantautoscalings"

ACCELERATOR_LABEL: Final = "inference.optimization/acceleratorName"
CONTROLLER_INSTANCE_LABEL: Final = "wva.llmd.ai/controller-instance"

DEFAULT_VARIANT_COST: Final = "10.0"
"""Cost of a replica when ``spec.variantCost`` is absent. It has no unit, because costs are only compared."""
DEFAULT_TARGET_KIND: Final = "Deployment"


class ConditionType(StrEnum):
    """Condition types that the controller owns."""

    TARGET_RESOLVED = "TargetResolved"
    METRICS_AVAILABLE = "MetricsAvailable"
    OPTIMIZATION_READY = "OptimizationReady"
    PROGRESSING = "Progressing"
    READY = "Ready"
    CONFIGURATION_VALID = "ConfigurationValid"
    CLAIMED = "Claimed"
    QUERIES_ANSWERED = "QueriesAnswered"
    ENGINES_READABLE = "EnginesReadable"
    REPLICAS_ON_TIME = "ReplicasOnTime"
    OBJECTIVES_MET = "ObjectivesMet"
    GATEWAY_READABLE = "GatewayReadable"
    INVENTORY_CONSISTENT = "InventoryConsistent"
    LIMITED = "Limited"
    ACTUATED = "Actuated"
    SHADOW = "Shadow"


class TargetReason(StrEnum):
    """Reasons of ``TargetResolved`` and, when it is False, of ``Ready``."""

    TARGET_FOUND = "TargetFound"
    TARGET_NOT_FOUND = "TargetNotFound"
    TARGET_CONFLICT = "TargetConflict"
    TARGET_UNSUPPORTED = "TargetUnsupported"
    DEPLOYMENT_NOT_FOUND = "DeploymentNotFound"
    VARIANT_ACCEPTED = "VariantAccepted"


class ScaleTargetRef(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``spec.scaleTargetRef``: what this variant scales, in the variant's own namespace.

    Without a kind, or with an empty one, it is a Deployment: such objects may have been stored by an older definition.
    """

    kind: str = DEFAULT_TARGET_KIND
    name: str = ""
    api_version: str = ""

    def __post_init__(self) -> None:
        """Put the default in place of an empty kind."""
        if not self.kind:
            force_setattr(self, "kind", DEFAULT_TARGET_KIND)


class VariantAutoscalingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec``."""

    scale_target_ref: ScaleTargetRef = ScaleTargetRef()
    model_id: str = msgspec.field(name="modelID", default="")
    variant_cost: str = DEFAULT_VARIANT_COST


class OptimizedAlloc(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``status.desiredOptimizedAlloc``: written with all three fields, or absent."""

    accelerator: str = ""
    num_replicas: int = 0
    last_run_time: str | None = None


class ActuationStatus(msgspec.Struct, frozen=True, gc=False):
    """``status.actuation``: whether exactly the decided replicas exist, all of them ready."""

    applied: bool = False


class VariantAutoscalingStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``status``."""

    current_replicas: int | None = None
    desired_optimized_alloc: OptimizedAlloc | None = None
    actuation: ActuationStatus | None = None
    conditions: tuple[Condition, ...] = ()
    role: str | None = None

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of that type, if it is set."""
        return next((condition for condition in self.conditions if condition.type == type_), None)


class VariantAutoscaling(msgspec.Struct, frozen=True, rename="camel"):
    """A variant: one scale target of a model on one accelerator type."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VariantAutoscalingSpec = VariantAutoscalingSpec()
    status: VariantAutoscalingStatus = VariantAutoscalingStatus()


CLAIM_REASON: Final = "ClaimedByController"
_TEXT: Final = re.compile(r"decided by controller (?P<name>[^\s,]+)(, instance (?P<instance>\S+))?")


@dataclass(frozen=True, slots=True)
class Claimant:
    """A controller: all processes that compete for one Lease.

    ``name`` is the namespace and name of that Lease; ``instance`` is its CONTROLLER_INSTANCE, or empty.
    """

    name: str
    instance: str = ""

    def __str__(self) -> str:
        """Return its name for messages."""
        return f"{self.name}, instance {self.instance}" if self.instance else self.name

    @property
    def text(self) -> str:
        """The message of the condition, which ``claimant_of`` reads."""
        return f"decided by controller {self}"


def claimant_of(va: VariantAutoscaling) -> Claimant | None:
    """Return the controller that decided last, by the status; None when the status names none."""
    condition = va.status.condition(ConditionType.CLAIMED)
    match = None if condition is None else _TEXT.fullmatch(condition.message)
    return None if match is None else Claimant(match["name"], match["instance"] or "")
