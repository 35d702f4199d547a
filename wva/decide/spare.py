"""What some replicas of a model report, added up: how much room is left, and how many replicas more would leave enough.

Spare is what a replica can still take before it counts as saturated: K - kv (share of the KV cache) and Q - queue
(requests), floored at 0. Saturated replicas count with a spare of 0: the load they carry has to go somewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wva.decide.amounts import rounded_up
from wva.decide.wording import replicas
from wva.model.policy import SaturationPolicy

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Spare:
    """Spare of one signal, summed over the replicas that report it freshly; ``used`` is the sum of the usages."""

    count: int
    total: float
    used: float = 0.0

    @staticmethod
    def of(usages: Iterable[float], *, threshold: float) -> Spare:
        """Add up the spares; fsum makes the sum independent of the order."""
        known = list(usages)
        return Spare(len(known), math.fsum(max(0.0, threshold - usage) for usage in known), math.fsum(known))

    @property
    def mean(self) -> float | None:
        """Plain mean over the replicas, None when none reports."""
        return self.total / self.count if self.count else None

    def idle_needed(self, *, threshold: float, trigger: float) -> float:
        """Return how many replicas without load would have to join for a mean of the trigger; infinite if none do."""
        missing = self.count * trigger - self.total
        if missing <= _ROUNDING:
            return 0.0
        gain = threshold - trigger
        return rounded_up(missing / gain - _ROUNDING) if gain > 0 else math.inf

    def needed(self, *, target: float, serving: int, rise: float = 0.0) -> int:
        """Return how many replicas would each have a usage of ``target`` if ``serving`` ones shared it equally.

        The ratio that an HPA forms, after a mean ``rise``. A target of 0 can never be reached: twice as many then.
        """
        if not self.count or self.used <= 0:
            return 0
        if target <= 0:
            return 2 * serving
        return rounded_up(serving * (self.used / self.count + rise) / target - _ROUNDING)


@dataclass(frozen=True, slots=True)
class Rise:
    """By how much the two signals have risen from one cycle to the next, on average; 0 where they fell."""

    kv_usage: float = 0.0
    queue_length: float = 0.0


NO_RISE: Final = Rise()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What some replicas of a model report: the spares of both signals, and how many report and are saturated."""

    kv: Spare
    queue: Spare
    reporting: int
    saturated: int

    def growth_wish(self, policy: SaturationPolicy) -> str | None:
        """Return in words why there should be more replicas, None when there need not be."""
        if self.saturated == self.reporting:
            return f"{self.saturated} of {self.reporting} reporting replicas saturated"
        shortages = []
        if _below(self.kv.mean, policy.kv_spare_trigger):
            shortages.append(_shortage("KV", self.kv, policy.kv_spare_trigger))
        if _below(self.queue.mean, policy.queue_spare_trigger):
            shortages.append(_shortage("queue", self.queue, policy.queue_spare_trigger))
        return " and ".join(shortages) or None

    def idle_needed(self, policy: SaturationPolicy) -> float:
        """Return how many replicas without load would bring both means to their triggers; may be infinite."""
        return max(
            self.kv.idle_needed(threshold=policy.kv_cache_threshold, trigger=policy.kv_spare_trigger),
            self.queue.idle_needed(threshold=policy.queue_length_threshold, trigger=policy.queue_spare_trigger),
        )

    def missing(self, policy: SaturationPolicy, *, rise: Rise = NO_RISE) -> int:
        """Return how many replicas more bring the mean of both signals back to its trigger."""
        queue_target = policy.queue_length_threshold - policy.queue_spare_trigger
        needed = max(
            self.kv.needed(target=kv_target(policy), serving=self.reporting, rise=rise.kv_usage),
            self.queue.needed(target=queue_target, serving=self.reporting, rise=rise.queue_length),
        )
        return needed - self.reporting


def kv_target(policy: SaturationPolicy) -> float:
    """Return the KV usage that leaves exactly the trigger: above it a model grows."""
    return policy.kv_cache_threshold - policy.kv_spare_trigger


def _below(mean: float | None, trigger: float) -> bool:
    return mean is not None and mean < trigger


def _shortage(signal: str, spare: Spare, trigger: float) -> str:
    return f"mean spare {signal} {spare.mean:.4g} below trigger {trigger:.4g} on {replicas(spare.count)}"
