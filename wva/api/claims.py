"""The controller that decides on a variant, as its status shows it: the ``Claimed`` condition."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from wva.api.variantautoscaling import ConditionType, VariantAutoscaling

CLAIM_REASON: Final = "ClaimedByController"
_TEXT: Final = re.compile(r"decided by controller (?P<name>[^\s,]+)(, instance (?P<instance>\S+))?")


@dataclass(frozen=True, slots=True)
class Claimant:
    """A controller: the processes that compete for one Lease.

    ``name`` is namespace and name of that Lease, ``instance`` its CONTROLLER_INSTANCE or empty.
    """

    name: str
    instance: str = ""

    def __str__(self) -> str:
        """Return how it is called in messages."""
        return f"{self.name}, instance {self.instance}" if self.instance else self.name

    @property
    def text(self) -> str:
        """The message of the condition, which ``claimant_of`` reads."""
        return f"decided by controller {self}"


def claimant_of(va: VariantAutoscaling) -> Claimant | None:
    """Return who decided last according to the status; None when it does not say."""
    condition = va.status.condition(ConditionType.CLAIMED)
    match = None if condition is None else _TEXT.fullmatch(condition.message)
    return None if match is None else Claimant(match["name"], match["instance"] or "")
