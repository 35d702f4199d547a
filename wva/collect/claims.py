"""Which VariantAutoscalings this controller decides on: one rule for loops, reconciler and series.

A controller with an instance decides on the variants that are labelled for it; a controller without one decides on all
variants. Neither decides on variants in a namespace that is excluded by its annotation. If two controllers would take
the same variant, both would write its status in turns and publish two numbers. So one of them leaves it to the other:

- an instance that the variant is labelled for goes before a controller without an instance;
- between two of equal rank (the same instance twice, or none twice) the controller that has the variant keeps it.

The ``Claimed`` condition names the controller that has the variant. A controller renews ``lastRunTime`` in the status
of its variants at least every ten minutes. A claim that was not renewed for ALIVE_SECONDS has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from wva.api.claims import Claimant, claimant_of
from wva.api.meta import parse_time
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL, VariantAutoscaling

ALIVE_SECONDS: Final = 900.0
"""Longer than the heartbeat of the status by a margin for an API server in trouble."""


def no_namespace(namespace: str) -> bool:  # noqa: ARG001 - excludes none of any name
    """Exclude nothing."""
    return False


@dataclass(frozen=True, slots=True)
class Claims:
    """The rule as this controller applies it; without ``me`` it takes everything that no instance has.

    ``excluded`` tells whether a namespace wants to be left alone now.
    """

    me: Claimant = Claimant("")  # noqa: RUF009 - frozen
    excluded: Callable[[str], bool] = no_namespace

    def mine(self, va: VariantAutoscaling, now: float | None = None) -> bool:
        """Tell whether this controller decides on the VA at ``now`` (epoch seconds).

        Without a time rivals do not count.
        """
        return self.wanted(va) and (now is None or self.rival(va, now) is None)

    def wanted(self, va: VariantAutoscaling) -> bool:
        """Tell whether the VA is for this controller according to its label and its namespace."""
        if self.excluded(va.metadata.namespace):
            return False
        return not self.me.instance or _label(va) == self.me.instance

    def rival(self, va: VariantAutoscaling, now: float) -> Claimant | None:
        """Return the other controller that this one leaves the VA to at ``now`` (epoch seconds), if there is one."""
        other = claimant_of(va)
        if other is None or other.name == self.me.name or _silent_seconds(va, now) >= ALIVE_SECONDS:
            return None
        return other if self._goes_first(other, _label(va)) else None

    def _goes_first(self, other: Claimant, label: str) -> bool:
        """Tell whether a controller that has a VA with this label goes before this one, which would take it, too."""
        if self.me.instance:
            return other.instance == self.me.instance
        # With a label of any instance: its controller may be about to take what another one has just given up.
        return not other.instance or bool(label)

    def free_in_seconds(self, va: VariantAutoscaling, now: float) -> float:
        """Return when a rival's claim ends if it is not renewed."""
        return max(1.0, ALIVE_SECONDS - _silent_seconds(va, now))


def _label(va: VariantAutoscaling) -> str:
    return va.metadata.labels.get(CONTROLLER_INSTANCE_LABEL, "")


def _silent_seconds(va: VariantAutoscaling, now: float) -> float:
    """Return how long ago the status was renewed; infinite without a number, or when the time cannot be true."""
    allocation = va.status.desired_optimized_alloc
    renewed = None if allocation is None else parse_time(allocation.last_run_time)
    if renewed is None or renewed - now > ALIVE_SECONDS:
        return float("inf")
    return now - renewed
