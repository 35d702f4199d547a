"""What the ConfigMaps mean, after merging and validation: values that a decision can use without asking again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wva.model.variant import ModelKey

DEFAULT_TRANSITION_DEADLINE_SECONDS: Final = 600.0


class Compatibility(StrEnum):
    """Old behaviour that can be asked for by name.

    ``v0.5`` brings back the V1 target arithmetic with its transition rule (engine.md 3.4-3.6), missing or NaN sample =
    0 (2.3), and the number published without a decision (1.5); nothing else.
    """

    V0_5 = "v0.5"


@dataclass(frozen=True, slots=True)
class SaturationPolicy:
    """Thresholds of the percentage analyzer (engine.md 3), complete and valid.

    A replica is saturated at ``kv_cache_threshold`` (K, share of the KV cache) or ``queue_length_threshold`` (Q,
    waiting requests). The model grows when the mean spare KV is below ``kv_spare_trigger`` (k) or the mean spare
    queue below ``queue_spare_trigger`` (q). After ``transition_deadline_seconds`` an unfinished change stops counting
    as on its way.
    """

    kv_cache_threshold: float = 0.80
    queue_length_threshold: float = 5.0
    kv_spare_trigger: float = 0.1
    queue_spare_trigger: float = 3.0
    transition_deadline_seconds: float = DEFAULT_TRANSITION_DEADLINE_SECONDS


@dataclass(frozen=True, slots=True)
class SaturationOverride:
    """A complete policy for one model; ``namespace`` None applies to the model id in every namespace."""

    name: str
    model_id: str
    namespace: str | None
    policy: SaturationPolicy


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything configurable that a decision depends on. ``overrides`` are sorted by name."""

    saturation: SaturationPolicy = SaturationPolicy()
    overrides: tuple[SaturationOverride, ...] = ()
    compatibility: Compatibility | None = None

    def saturation_for(self, model: ModelKey) -> SaturationPolicy:
        """Return the thresholds of one model: its own override, else one for any namespace, else the default."""
        for namespace in (model.namespace, None):
            for override in self.overrides:
                if override.model_id == model.model_id and override.namespace == namespace:
                    return override.policy
        return self.saturation
