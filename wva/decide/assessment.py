"""What an analyzer found out about a model, as optimizers ask for it.

It separates the two stages: an analyzer fills it, and an optimizer asks it whether the model should grow, whether the
replicas on their way would be enough, and what the objections to fewer replicas are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wva.decide.settling import Progress
from wva.decide.spare import NO_RISE, Evidence, Rise, Spare, kv_target
from wva.decide.wording import replicas
from wva.model.absence import Absence
from wva.model.decision import MetricsVerdict
from wva.model.memory import Shrink
from wva.model.metrics import Coverage
from wva.model.policy import SaturationPolicy
from wva.model.variant import ModelKey, VariantKey

GROWTH_SPACING_SECONDS: Final = 30.0
"""How long replicas that were asked for may be on their way before more are."""

_CLEAR_OF_TRIGGER: Final = 0.85
"""The share of a usage, or of a load, that is clear of it: neither noise nor the removal of one replica leads there."""


class Pressure(StrEnum):
    """What has become of the load that the replicas hold, since the cycle before."""

    RISES = "rises"
    LASTS = "lasts"
    FALLS = "falls"


@dataclass(frozen=True, slots=True)
class History:
    """What earlier cycles, and the age of the replicas, add to the samples of now.

    ``filling`` replicas became Ready so recently that what they report says nothing; ``told`` is what the others do.
    ``pressure`` is None when it is unknown. ``regretted`` is a shrink that was too much.
    """

    filling: int = 0
    told: Evidence | None = None
    pressure: Pressure | None = None
    rise: Rise = NO_RISE
    regretted: Shrink | None = None


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
        """Mean spares, to order variants of the same cost; an unknown one sorts as the fullest."""
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
    history: History = History()

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

        If only the newest replicas can tell, the older ones count as just right: what is new gets most of the requests,
        and looks busier than all will be. If all have been there for long, what they hold will have risen once more by
        the time that others serve.
        """
        told, newest, policy = self.told, self.newest, self.policy
        if self.coming:
            missing = told.missing(policy) - self.coming
        elif newest is not None:
            missing = newest.missing(policy)
        else:
            missing = told.missing(policy, rise=self.history.rise)
        return max(1, min(missing, self._most))

    @property
    def told(self) -> Evidence:
        """What those replicas report that have been there for long enough to say anything."""
        return self.history.told or self.evidence

    @property
    def _most(self) -> int:
        """How many replicas may be added at once: as many as there are, fewer while an answer is under way."""
        half = math.ceil(self.level / 2)
        if self.in_flight:
            return int(min(half, self.told.idle_needed(self.policy) - self.coming))
        return half if self.history.filling or self.newest is not None else self.level

    @property
    def in_flight_seconds(self) -> float:
        """How long the youngest replicas on their way have been asked for; infinite when there are none."""
        ages = (variant.progress.age_seconds for variant in self.variants if variant.progress.in_flight)
        return min(ages, default=math.inf)

    @property
    def coming(self) -> int:
        """Replicas to count on whose effect is not measured yet: on their way, or serving since a moment ago."""
        return self.in_flight + self.history.filling

    @property
    def coming_suffice(self) -> bool:
        """Whether the model would not want to grow any more if those that are coming joined without load."""
        return self.told.idle_needed(self.policy) <= self.coming

    def start_objection(self, removed: int) -> str | None:
        """Return in words why a shrink by ``removed`` should not begin, None when it may.

        Usage grows faster than the load per replica: what is left has to stay clear of the trigger, and of the load at
        which a shrink was regretted.
        """
        objection = self.shrink_objection(removed)
        if objection is not None:
            return objection
        left, used, regretted = self.ready - removed, self.kv.used, self.history.regretted
        usage, limit = used / left, kv_target(self.policy) * _CLEAR_OF_TRIGGER
        if usage > limit:
            words = f"on {replicas(left)} the mean KV usage would be {usage:.4g}"
            return f"{words}, above {limit:.4g} and too near to the trigger"
        if regretted is not None and left <= regretted.replicas and used > regretted.kv_used * _CLEAR_OF_TRIGGER:
            return f"with {replicas(regretted.replicas)} it was regretted at hardly more load"
        return None

    def shrink_objection(self, removed: int) -> str | None:
        """Return in words why ``removed`` replicas fewer cannot carry the load; None when they can.

        Only meaningful while the evidence is complete. The order of operations is that of v0.5.1.
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


def _too_little(signal: str, left: int, spare: float, trigger: float) -> str:
    return f"on {replicas(left)} the mean spare {signal} would be {spare:.4g}, below trigger {trigger:.4g}"
