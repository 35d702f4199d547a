"""What has been learned of the capacity of models.

``LearnedCapacity`` per model is made of a ``CapacityRecord`` per variant and a ``K2History`` per kind of engine and
length of answers. ``CapacityMemory`` holds those of all models and forgets what is too old.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wva.model.variant import ModelKey, VariantKey
from wva.model.vllm_parameters import VllmParameters

DEFAULT_SCALE_UP_THRESHOLD: Final = 0.85
DEFAULT_SCALE_DOWN_BOUNDARY: Final = 0.70

K2_WINDOW: Final = 10
RECORD_SECONDS: Final = 7 * 24 * 3600.0
HISTORY_SECONDS: Final = 24 * 3600.0
"""Ages at which records and histories are forgotten."""


class CapacityBasis(StrEnum):
    """What the capacity of a replica stands on, the firmest first."""

    OBSERVED = "observed"
    HISTORY = "history"
    DERIVED = "derived"
    KV_CACHE = "kv-cache"
    RECORD = "record"
    BORROWED = "borrowed"
    UNKNOWN = "unknown"


class LearnedFrom(StrEnum):
    """Where a record comes from."""

    LIVE = "live"
    DEPLOYMENT = "deployment"


class LengthBucket(StrEnum):
    """How long the answers are: what an engine carries depends on it."""

    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class CapacityRecord:
    """What is known of one variant's replicas, so that it can be judged while it has none.

    ``effective`` is what one replica carries in tokens (from a Deployment alone: its B). ``updated`` is in seconds
    since the epoch.
    """

    variant: VariantKey
    accelerator: str
    gpus_per_replica: int
    kv_tokens: int
    effective: int
    learned_from: LearnedFrom
    updated: float
    parameters: VllmParameters | None = None


@dataclass(frozen=True, slots=True, order=True)
class EngineKind:
    """Engines of a model that carry alike while answers are equally long."""

    accelerator: str
    gpus_per_replica: int
    tensor_parallel_size: int
    bucket: LengthBucket


@dataclass(frozen=True, slots=True)
class K2History:
    """The last tokens that engines of a kind held when computation was what bound them, oldest first."""

    kind: EngineKind
    values: tuple[int, ...]
    updated: float

    def append(self, value: int, *, now: float) -> K2History:
        """Return the history with one more value; beyond ten the oldest goes."""
        return K2History(self.kind, (*self.values, value)[-K2_WINDOW:], now)

    @property
    def mean(self) -> int:
        """Mean of the values, truncated."""
        return int(sum(self.values) / len(self.values)) if self.values else 0


@dataclass(frozen=True, slots=True)
class LearnedCapacity:
    """What has been learned of one model, and since when (seconds since the epoch). Sorted by variant and kind."""

    model: ModelKey
    since: float
    records: tuple[CapacityRecord, ...] = ()
    histories: tuple[K2History, ...] = ()

    def without_old(self, now: float) -> LearnedCapacity:
        """Return what is not too old to be used."""
        records = tuple(record for record in self.records if now - record.updated <= RECORD_SECONDS)
        histories = tuple(history for history in self.histories if now - history.updated <= HISTORY_SECONDS)
        return LearnedCapacity(self.model, self.since, records, histories)


@dataclass(frozen=True, slots=True)
class CapacityMemory:
    """What has been learned of all models, sorted by model."""

    models: tuple[LearnedCapacity, ...] = ()

    def of(self, model: ModelKey) -> LearnedCapacity | None:
        """Return what is known of a model, None when it is new."""
        position = bisect_left(self.models, model, key=lambda learned: learned.model)
        found = self.models[position : position + 1]
        return next((learned for learned in found if learned.model == model), None)

    def updated(self, learned: Iterable[LearnedCapacity], *, now: float) -> CapacityMemory:
        """Return the memory after a cycle: models that were analysed replaced, all others kept until too old."""
        current = {new.model: new.without_old(now) for new in learned}
        past = (kept.without_old(now) for kept in self.models if kept.model not in current)
        models = current | {kept.model: kept for kept in past if kept.records or kept.histories}
        return CapacityMemory(tuple(models[model] for model in sorted(models)))


NOTHING_LEARNED: Final = CapacityMemory()
