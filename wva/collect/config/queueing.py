"""The ConfigMap of the queueing model: for which models it decides, and with which targets.

An entry switches the queueing analyzer on for its model, the entry ``default`` for every model. The global ``default``
also says how the model-based optimizer shares GPUs among all models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic import Field

from wva.collect.config.entry import DEFAULT_ENTRY, EntryForm
from wva.collect.config.fields import EXPECTED_BOOLEAN, EXPECTED_COUNT, Boolean, Count, ModelFields
from wva.collect.config.layers import BEFORE, Layers, Resolved, Rules
from wva.collect.config.reading import BadEntryError
from wva.model.optimizers import BY_BUDGET, BestEffort, SolverPolicy
from wva.model.policy import DEFAULT_SLO_MULTIPLIER, QueueingOverride, QueueingPolicy, QueueingRules
from wva.model.records import replace


class QueueingFields(ModelFields):
    """One entry; None means not given."""

    slo_multiplier: Count | None = Field(default=None, alias="sloMultiplier")
    tuning_enabled: Boolean | None = Field(default=None, alias="tuningEnabled")
    target_ttft: Count | None = Field(default=None, alias="targetTTFT")
    target_itl: Count | None = Field(default=None, alias="targetITL")
    unlimited: Boolean | None = None
    saturation_policy: BestEffort | None = Field(default=None, alias="saturationPolicy")
    delayed_best_effort: Boolean | None = Field(default=None, alias="delayedBestEffort")


EXPECTED: Final = {
    "model_id": "a model id",
    "namespace": "a namespace",
    "sloMultiplier": "a number above 1, or 0 for the default of 3, without quotes",
    "tuningEnabled": EXPECTED_BOOLEAN,
    "targetTTFT": EXPECTED_COUNT,
    "targetITL": EXPECTED_COUNT,
    "unlimited": EXPECTED_BOOLEAN,
    "saturationPolicy": ", ".join(value.value for value in BestEffort),
    "delayedBestEffort": EXPECTED_BOOLEAN,
}
_SOLVER_FIELDS: Final = {
    "unlimited": "unlimited",
    "saturationPolicy": "saturation_policy",
    "delayedBestEffort": "delayed_best_effort",
}
"""What is read from the global ``default`` alone: it is about all models at once."""


def _merge(layers: Layers[QueueingFields]) -> QueueingPolicy:
    """Lay entries over the built-in values, then judge the result. Raises BadEntryError."""
    given: dict[str, Any] = {}
    for layer in reversed(layers):
        given |= _given(layer)
    merged = replace(QueueingPolicy(), **given)
    ttft, itl = merged.target_ttft_milliseconds, merged.target_itl_milliseconds
    if merged.slo_multiplier <= 1:
        raise BadEntryError(EXPECTED["sloMultiplier"], field_name="sloMultiplier", value=f"{merged.slo_multiplier:g}")
    if not merged.targets_fit:
        name, other, value = ("targetITL", "targetTTFT", itl) if ttft > 0 else ("targetTTFT", "targetITL", ttft)
        raise BadEntryError(f"above 0 because {other} is: both targets or neither", field_name=name, value=f"{value:g}")
    return merged


def _given(entry: QueueingFields) -> dict[str, float | bool]:
    """Return what an entry names, under the names of a policy."""
    values: dict[str, float | bool | None] = {
        "slo_multiplier": DEFAULT_SLO_MULTIPLIER if entry.slo_multiplier == 0 else entry.slo_multiplier,
        "tuning_enabled": entry.tuning_enabled,
        "target_ttft_milliseconds": entry.target_ttft,
        "target_itl_milliseconds": entry.target_itl,
    }
    return {name: value for name, value in values.items() if value is not None}


def _in_force(field_name: str, policy: QueueingPolicy) -> str:
    if field_name in _SOLVER_FIELDS:
        return BEFORE
    words = {
        "sloMultiplier": f"{policy.slo_multiplier:g}",
        "tuningEnabled": str(policy.tuning_enabled).lower(),
        "targetTTFT": f"{policy.target_ttft_milliseconds:g}",
        "targetITL": f"{policy.target_itl_milliseconds:g}",
    }
    return words.get(field_name) or ", ".join(f"{name} {value}" for name, value in words.items())


def _remarks(key: str, entry: QueueingFields, local: bool) -> Iterator[str]:  # noqa: FBT001 - told by position
    if key == DEFAULT_ENTRY and (entry.model_id is not None or entry.namespace is not None):
        yield "model_id and namespace have no effect: this entry applies to every model"
    if key != DEFAULT_ENTRY or local:
        for name, field in _SOLVER_FIELDS.items():
            if getattr(entry, field) is not None:
                place = "the global ConfigMap" if local else "this ConfigMap"
                yield f"{name} has no effect here: it is read from {DEFAULT_ENTRY} of {place} only"


RULES: Final = Rules(EntryForm(QueueingFields, EXPECTED), _merge, _in_force, _remarks, pairs=True)


def solver_of(default: QueueingFields | None) -> SolverPolicy:
    """Return how the model-based optimizer shares GPUs, as the global ``default`` says."""
    if default is None:
        return BY_BUDGET
    return SolverPolicy(
        default.unlimited, bool(default.delayed_best_effort), default.saturation_policy or BestEffort.NONE
    )


def rules_of(resolved: Resolved[QueueingFields, QueueingPolicy]) -> QueueingRules:
    """Return the entries that hold as a decision reads them."""
    overrides = tuple(
        QueueingOverride(entry.key, entry.model_id, entry.namespace, policy, tuple(_given(entry.fields).items()))
        for entry, policy in resolved.overrides
    )
    return QueueingRules(resolved.default, overrides)
