"""The ConfigMap of the queueing model: for whom it decides, and what for (surface.md 3.5).

An entry switches the queueing analyzer on for its model, ``default`` for every model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from wva.collect.config.entry import DEFAULT_ENTRY, EntryForm
from wva.collect.config.fields import EXPECTED_BOOLEAN, EXPECTED_COUNT, Boolean, Count, ModelFields
from wva.collect.config.layers import Layers, Resolved, Rules
from wva.collect.config.reading import BadEntryError
from wva.model.policy import DEFAULT_SLO_MULTIPLIER, QueueingOverride, QueueingPolicy, QueueingRules


class QueueingFields(ModelFields):
    """One entry; None means not given."""

    slo_multiplier: Count | None = Field(default=None, alias="sloMultiplier")
    tuning_enabled: Boolean | None = Field(default=None, alias="tuningEnabled")
    target_ttft: Count | None = Field(default=None, alias="targetTTFT")
    target_itl: Count | None = Field(default=None, alias="targetITL")


EXPECTED: Final = {
    "model_id": "a model id",
    "namespace": "a namespace",
    "sloMultiplier": "a number above 1, or 0 for the default of 3, without quotes",
    "tuningEnabled": EXPECTED_BOOLEAN,
    "targetTTFT": EXPECTED_COUNT,
    "targetITL": EXPECTED_COUNT,
}


def _merge(layers: Layers[QueueingFields]) -> QueueingPolicy:
    """Lay entries over the built-in values, then judge the result. Raises BadEntryError."""
    multiplier = _first(layer.slo_multiplier for layer in layers) or DEFAULT_SLO_MULTIPLIER
    ttft = _first(layer.target_ttft for layer in layers) or 0.0
    itl = _first(layer.target_itl for layer in layers) or 0.0
    if multiplier <= 1:
        raise BadEntryError(EXPECTED["sloMultiplier"], field_name="sloMultiplier", value=f"{multiplier:g}")
    if (ttft > 0) != (itl > 0):
        name, other, value = ("targetITL", "targetTTFT", itl) if ttft > 0 else ("targetTTFT", "targetITL", ttft)
        raise BadEntryError(f"above 0 because {other} is: both targets or neither", field_name=name, value=f"{value:g}")
    tuning = next((layer.tuning_enabled for layer in layers if layer.tuning_enabled is not None), True)
    return QueueingPolicy(multiplier, tuning, ttft, itl)


def _first(values: Iterator[float | None]) -> float | None:
    return next((value for value in values if value is not None), None)


def _in_force(field_name: str, policy: QueueingPolicy) -> str:
    words = {
        "sloMultiplier": f"{policy.slo_multiplier:g}",
        "tuningEnabled": str(policy.tuning_enabled).lower(),
        "targetTTFT": f"{policy.target_ttft_milliseconds:g}",
        "targetITL": f"{policy.target_itl_milliseconds:g}",
    }
    return words.get(field_name) or ", ".join(f"{name} {value}" for name, value in words.items())


def _remarks(key: str, entry: QueueingFields, local: bool) -> Iterator[str]:  # noqa: ARG001, FBT001 - one signature
    if key == DEFAULT_ENTRY and (entry.model_id is not None or entry.namespace is not None):
        yield "model_id and namespace have no effect: this entry applies to every model"


RULES: Final = Rules(EntryForm(QueueingFields, EXPECTED), _merge, _in_force, _remarks, pairs=True)


def rules_of(resolved: Resolved[QueueingFields, QueueingPolicy]) -> QueueingRules:
    """Return the entries that hold as a decision reads them."""
    overrides = tuple(
        QueueingOverride(entry.key, entry.model_id, entry.namespace, policy) for entry, policy in resolved.overrides
    )
    return QueueingRules(resolved.default, overrides)
