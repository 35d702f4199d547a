"""Troubles as values: missing data for a decision, obstacles of a variant, and causes of exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wva.model.decision import Reason


@dataclass(frozen=True, slots=True)
class Absence:
    """Why there is nothing to decide on: a reason to hold the number, and a message for people."""

    reason: Reason
    message: str


class TroubleReason(StrEnum):
    """What can stand in the way of a variant: at gateways, among GPUs or pods, at its start from zero, at a write."""

    GATEWAY_UNREADABLE = "GatewayUnreadable"
    QUEUE_MISSING = "QueueMissing"
    SELECTOR_EMPTY = "PoolSelectorEmpty"
    NAMES_UNKNOWN = "NamesUnknown"
    ACCELERATOR_UNKNOWN = "AcceleratorUnknown"
    LABELS_DISAGREE = "NodeLabelsDisagree"
    INVENTORY_UNKNOWN = "InventoryUnknown"
    START_REFUSED = "ScaleFromZeroRefused"
    START_FAILED = "ScaleFromZeroFailed"
    QUERY_FAILED = "QueryFailed"
    ENGINE_SERIES_UNUSABLE = "EngineSeriesUnusable"
    MODEL_NAME_SHARED = "ModelNameShared"
    ROLE_UNKNOWN = "RoleUnknown"
    ENGINES_DORMANT = "EnginesDormant"
    ENGINES_SLOW = "EnginesSlow"
    REPLICAS_LATE = "ReplicasLate"
    PODS_UNSCHEDULABLE = "PodsUnschedulable"
    CONTAINERS_FAILING = "ContainersFailing"
    SCALER_NOT_FOLLOWING = "ScalerNotFollowing"
    SCALER_MISSING = "ScalerMissing"
    ACTUATION_SCALER = "ScalerPresent"
    ACTUATION_OWNED = "ReplicasOwned"
    ACTUATION_FORBIDDEN = "ActuationForbidden"
    ACTUATION_FAILED = "ActuationFailed"
    ACTUATION_REWRITTEN = "ReplicasRewritten"
    ACTUATION_NO_CLIENT = "NoPushClient"
    OBJECTIVE_MISSED = "ObjectiveMissed"


QUEUE_UNKNOWN: Final = "QueueNotYetKnown"
"""A reason that hinders nothing: WVA does not know whether a picker holds requests before it holds the first one."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What stands in the way of a variant beside its own configuration, in the words of a condition.

    The reason is for machines, the message for people: it names what is wrong, what was expected and what is in force
    meanwhile. Both are empty when nothing is wrong. ``known`` is False while WVA cannot tell whether anything is wrong.
    """

    reason: str = ""
    message: str = ""
    known: bool = True

    def __bool__(self) -> bool:
        """Tell whether anything is wrong."""
        return bool(self.reason)


UNTROUBLED: Final = Trouble()


def some_of(names: Sequence[str], most: int = 3) -> str:
    """Return the first names for a message, and how many more there are: ``a, b, c and 2 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def cause_of(error: BaseException) -> str:
    """Return the class of an exception, and the innermost line of this program that it came through.

    The message of the exception is left out: it may have text of users in it, which may be secret or long. In a group
    the first exception counts.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    location, traceback = "", error.__traceback__
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module.startswith("wva."):
            location = f" in {module}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return f"{type(error).__name__}{location}"
