"""Which VariantAutoscalings this controller decides on: one rule for loops, reconciler and series.

A controller with an instance decides on the variants that are labelled for it; a controller without one decides on all
variants. Neither decides on variants in a namespace that is excluded by its annotation. If two controllers would take
the same variant, both would write its status in turns and publish two numbers. So one of the two controllers leaves the
variant to the other:

- a controller with the instance of the label goes before a controller without an instance;
- between two of equal rank (the same instance twice, or none twice) the controller that has the variant keeps it.

The ``Claimed`` condition names the controller that has the variant. A controller renews ``lastRunTime`` in the status
of its variants at least every ten minutes. A claim that was not renewed for ALIVE_SECONDS has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wva.api.meta import parse_time
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL, Claimant, VariantAutoscaling, claimant_of

ALIVE_SECONDS: Final = 900.0
"""Longer than the heartbeat of the status by a margin for an API server in trouble."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The rule for this controller; without ``me`` it decides on all variants that no instance has.

    ``excluded`` tells whether a namespace wants to be left alone now.
    """

    me: Claimant = Claimant("")  # noqa: RUF009 - frozen
    excluded: Callable[[str], bool] = lambda _namespace: False

    def mine(self, va: VariantAutoscaling, now: float | None = None) -> bool:
        """Tell whether this controller decides on the VA at ``now`` (epoch seconds); without a time no rival counts."""
        return self.wanted(va) and (now is None or self.rival(va, now) is None)

    def wanted(self, va: VariantAutoscaling) -> bool:
        """Tell whether the VA is for this controller according to its label and its namespace."""
        if self.excluded(va.metadata.namespace):
            return False
        return not self.me.instance or _label(va) == self.me.instance

    def rival(self, va: VariantAutoscaling, now: float) -> Claimant | None:
        """Return the other controller that has the VA at ``now`` (epoch seconds), None if this one may take it."""
        other = claimant_of(va)
        if other is None or other.name == self.me.name or _silent_seconds(va, now) >= ALIVE_SECONDS:
            return None
        if self.me.instance:
            return other if other.instance == self.me.instance else None
        # A rival with an instance counts only while the variant has a label: without one, that rival gives the variant
        # up.
        return other if not other.instance or _label(va) else None

    def free_in_seconds(self, va: VariantAutoscaling, now: float) -> float:
        """Return when a rival's claim ends if it is not renewed."""
        return max(1.0, ALIVE_SECONDS - _silent_seconds(va, now))


EVERYTHING: Final = Claims()


def _label(va: VariantAutoscaling) -> str:
    return va.metadata.labels.get(CONTROLLER_INSTANCE_LABEL, "")


def _silent_seconds(va: VariantAutoscaling, now: float) -> float:
    """Return how old the last renewal of the status is; infinite without a number, or if its time cannot be true."""
    allocation = va.status.desired_optimized_alloc
    renewed = None if allocation is None else parse_time(allocation.last_run_time)
    if renewed is None or renewed - now > ALIVE_SECONDS:
        return float("inf")
    return now - renewed
