"""What an analyzer found out about a model, as optimizers ask for it.

Stands between the stages, so that they do not know each other: an analyzer fills it, an optimizer asks it whether the
model should grow, whether replicas on their way would be enough, and what speaks against fewer replicas.

Spare is what a replica can still take before it counts as saturated: K - kv (share of the KV cache) and Q - queue
(requests), floored at 0. Saturated replicas count with a spare of 0: the load they carry has to go somewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wva.decide.settling import Progress
from wva.decide.wording import replicas
from wva.model.absence import Absence
from wva.model.decision import MetricsVerdict
from wva.model.metrics import Coverage
from wva.model.policy import SaturationPolicy
from wva.model.variant import ModelKey, VariantKey

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

    def mean_with_idle(self, idle: int, *, threshold: float) -> float | None:
        """Mean if ``idle`` replicas without load joined, None when none reports."""
        return (self.total + idle * threshold) / (self.count + idle) if self.count else None

    def needed(self, *, target: float, serving: int) -> int:
        """Return how many replicas would each have a usage of ``target`` if ``serving`` ones shared it equally.

        The ratio that an HPA forms. A target of 0 can never be reached: twice as many then.
        """
        if not self.count or self.used <= 0:
            return 0
        if target <= 0:
            return 2 * serving
        return math.ceil(serving * (self.used / self.count) / target - _ROUNDING)


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

    def needed(self, policy: SaturationPolicy, *, serving: int) -> int:
        """Return how many replicas bring the mean of both signals back to its trigger; ``serving`` share the load."""
        kv_target = policy.kv_cache_threshold - policy.kv_spare_trigger
        queue_target = policy.queue_length_threshold - policy.queue_spare_trigger
        return max(
            self.kv.needed(target=kv_target, serving=serving), self.queue.needed(target=queue_target, serving=serving)
        )


@dataclass(frozen=True, slots=True)
class VariantAssessment:
    """One active variant: where it stands, and what its replicas report."""

    progress: Progress
    coverage: Coverage
    verdict: MetricsVerdict
    kv: Spare
    queue: Spare

    @property
    def key(self) -> VariantKey:
        """Identity of the variant."""
        return self.progress.variant.key

    @property
    def cost(self) -> float:
        """Cost of one replica."""
        return self.progress.variant.cost

    @property
    def level(self) -> int:
        """Replicas that exist or are asked for."""
        return max(self.progress.base, self.progress.current)

    @property
    def room(self) -> tuple[float, float]:
        """Mean spares, to order variants of the same cost; one that nobody knows sorts as the fullest."""
        kv, queue = self.kv.mean, self.queue.mean
        return (-math.inf if kv is None else kv, -math.inf if queue is None else queue)

    @property
    def unread(self) -> int:
        """Ready replicas without both signals fresh, apart from new ones that only just came."""
        return self.progress.ready - self.coverage.fresh - self.progress.silent

    @property
    def countable(self) -> bool:
        """Whether Ready pods and replicas agree, or the difference has lasted for too long to wait for it."""
        progress = self.progress
        return progress.ready == progress.current or (progress.overdue and progress.ready < progress.current)


@dataclass(frozen=True, slots=True)
class ModelAssessment:
    """One model with its variants, sorted by key. ``hold`` says why nothing can be decided, if so.

    ``evidence`` is what all its replicas report. ``newest`` is what the youngest ones alone do, while the samples of
    the older ones still reach back to a time before these served; None otherwise.
    """

    key: ModelKey
    policy: SaturationPolicy
    variants: tuple[VariantAssessment, ...]
    evidence: Evidence
    newest: Evidence | None = None
    hold: Absence | None = None

    @property
    def kv(self) -> Spare:
        """Spare KV of all replicas."""
        return self.evidence.kv

    @property
    def queue(self) -> Spare:
        """Spare queue of all replicas."""
        return self.evidence.queue

    @property
    def reporting(self) -> int:
        """Replicas with at least one fresh signal."""
        return self.evidence.reporting

    @property
    def saturated(self) -> int:
        """Replicas with a fresh signal at its threshold."""
        return self.evidence.saturated

    @property
    def ready(self) -> int:
        """Ready replicas of all variants."""
        return sum(variant.progress.ready for variant in self.variants)

    @property
    def in_flight(self) -> int:
        """Replicas of all variants to count on although they do not serve yet."""
        return sum(variant.progress.in_flight for variant in self.variants)

    @property
    def unread(self) -> tuple[VariantAssessment, ...]:
        """The variants with Ready replicas that cannot be judged."""
        return tuple(variant for variant in self.variants if variant.unread)

    @property
    def complete(self) -> bool:
        """Whether every replica of the model is known and reports both signals freshly."""
        known = all(variant.coverage.fresh == variant.progress.ready for variant in self.variants)
        return known and self.ready > 0 and all(variant.countable for variant in self.variants)

    @property
    def level(self) -> int:
        """Replicas of all variants, counting those asked for."""
        return sum(variant.level for variant in self.variants)

    def growth_wish(self) -> str | None:
        """Return in words why the model should grow, None when it should not."""
        return self.evidence.growth_wish(self.policy)

    def shortage(self) -> int:
        """Return how many replicas are missing beside those that serve and those on their way; at least 1.

        If only the newest replicas can tell, the older ones count as just right, and the answer is at most half as many
        as there are: what is new gets most of the requests, and looks busier than all will be.
        """
        told = self.newest or self.evidence
        missing = told.needed(self.policy, serving=told.reporting) - told.reporting - self.in_flight
        return max(1, missing if self.newest is None else min(missing, math.ceil(self.level / 2)))

    def saturated_with_idle(self, idle: int) -> bool:
        """Whether the model would still want to grow if ``idle`` replicas without load joined."""
        policy = self.policy
        kv = self.kv.mean_with_idle(idle, threshold=policy.kv_cache_threshold)
        queue = self.queue.mean_with_idle(idle, threshold=policy.queue_length_threshold)
        return _below(kv, policy.kv_spare_trigger) or _below(queue, policy.queue_spare_trigger)

    def shrink_objection(self, removed: int) -> str | None:
        """Return in words why ``removed`` replicas fewer cannot carry the load; None when they can.

        Only meaningful while the evidence is complete. The order of operations is that of engine.md 3.5.
        """
        if self.saturated:
            return f"{self.saturated} of {self.ready} replicas saturated"
        count, left = self.ready, self.ready - removed
        if left < 1:
            return f"none of {replicas(count)} would be left to serve"
        policy = self.policy
        factor = count / left
        load_kv = (policy.kv_cache_threshold - (self.kv.mean or 0.0)) * factor
        spare_kv = policy.kv_cache_threshold - load_kv
        if not spare_kv >= policy.kv_spare_trigger:
            return _too_little("KV", left, spare_kv, policy.kv_spare_trigger)
        load_queue = (policy.queue_length_threshold - (self.queue.mean or 0.0)) * factor
        spare_queue = policy.queue_length_threshold - load_queue
        if not spare_queue >= policy.queue_spare_trigger:
            return _too_little("queue", left, spare_queue, policy.queue_spare_trigger)
        return None


def _below(mean: float | None, trigger: float) -> bool:
    return mean is not None and mean < trigger


def _shortage(signal: str, spare: Spare, trigger: float) -> str:
    return f"mean spare {signal} {spare.mean:.4g} below trigger {trigger:.4g} on {replicas(spare.count)}"


def _too_little(signal: str, left: int, spare: float, trigger: float) -> str:
    return f"on {replicas(left)} the mean spare {signal} would be {spare:.4g}, below trigger {trigger:.4g}"
