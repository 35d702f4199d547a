"""What stands in the way of a variant beside its own configuration, in the words of a condition."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class TroubleReason(StrEnum):
    """What can stand in the way of a variant: at the gateways, among the GPUs, and at its start from zero."""

    GATEWAY_UNREADABLE = "GatewayUnreadable"
    SELECTOR_EMPTY = "PoolSelectorEmpty"
    ACCELERATOR_UNKNOWN = "AcceleratorUnknown"
    LABELS_DISAGREE = "NodeLabelsDisagree"
    INVENTORY_UNKNOWN = "InventoryUnknown"
    START_REFUSED = "ScaleFromZeroRefused"
    START_FAILED = "ScaleFromZeroFailed"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A reason for machines and a message for people; both empty when nothing is wrong.

    The message names what is wrong, what was expected and what is in force meanwhile.
    """

    reason: str = ""
    message: str = ""

    def __bool__(self) -> bool:
        """Tell whether anything is wrong."""
        return bool(self.reason)


UNTROUBLED: Final = Trouble()
