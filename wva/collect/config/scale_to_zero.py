"""The scale-to-zero ConfigMap: which models may go to zero replicas, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from wva.collect.config.entry import DEFAULT_ENTRY, EntryForm
from wva.collect.config.fields import EXPECTED_BOOLEAN, Boolean, ModelFields, Seconds
from wva.collect.config.layers import Layers, Resolved, Rules
from wva.collect.retention import LONGEST_SECONDS
from wva.godurations import EXPECTED_DURATION
from wva.model.policy import ScaleToZeroEntry, ScaleToZeroRules

LONG_RETENTION_SECONDS: Final = 24 * 3600.0


class ScaleToZeroFields(ModelFields):
    """One entry; None means not given."""

    enable_scale_to_zero: Boolean | None = None
    retention_seconds: Seconds | None = Field(default=None, alias="retention_period")


EXPECTED: Final = {
    "model_id": "a model id",
    "namespace": "a namespace",
    "enable_scale_to_zero": EXPECTED_BOOLEAN,
    "retention_period": f"{EXPECTED_DURATION}, above zero",
}

Said = tuple[bool | None, float | None]
"""Enabled and retention in seconds, as far as an entry or its default says."""


def _merge(layers: Layers[ScaleToZeroFields]) -> Said:
    enabled = (layer.enable_scale_to_zero for layer in layers if layer.enable_scale_to_zero is not None)
    retention = (layer.retention_seconds for layer in layers if layer.retention_seconds is not None)
    return next(enabled, None), next(retention, None)


def _in_force(field_name: str, said: Said) -> str:
    enabled, retention = said
    words = {
        "enable_scale_to_zero": "WVA_SCALE_TO_ZERO" if enabled is None else str(enabled).lower(),
        "retention_period": "10m" if retention is None else f"{retention:g}s",
    }
    return words.get(field_name) or ", ".join(f"{name} {value}" for name, value in words.items())


def _remarks(key: str, entry: ScaleToZeroFields, local: bool) -> Iterator[str]:  # noqa: ARG001, FBT001 - one signature
    if key == DEFAULT_ENTRY and (entry.model_id is not None or entry.namespace is not None):
        yield "model_id and namespace have no effect: this entry applies to every model"
    if entry.retention_seconds is not None and entry.retention_seconds > LONG_RETENTION_SECONDS:
        if entry.retention_seconds > LONGEST_SECONDS:
            yield "retention_period is longer than 168h, as far as WVA looks back: the model never goes to zero"
        else:
            yield "retention_period is longer than 24h: idle models keep their accelerators for that long"


RULES: Final = Rules(EntryForm(ScaleToZeroFields, EXPECTED), _merge, _in_force, _remarks)


def rules_of(resolved: Resolved[ScaleToZeroFields, Said]) -> ScaleToZeroRules:
    """Return the entries that hold as a decision reads them: what an entry leaves out, ``default`` is asked for."""
    default = None if resolved.default is None else ScaleToZeroEntry(DEFAULT_ENTRY, "", None, *resolved.default)
    entries = tuple(
        ScaleToZeroEntry(
            entry.key,
            entry.model_id,
            entry.namespace,
            entry.fields.enable_scale_to_zero,
            entry.fields.retention_seconds,
        )
        for entry, _ in resolved.overrides
    )
    return ScaleToZeroRules(default, entries)
