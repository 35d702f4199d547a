"""The saturation ConfigMap: thresholds and analyzer of each model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from wva.collect.config.entry import DEFAULT_ENTRY, EntryError, EntryForm
from wva.collect.config.fields import (
    EXPECTED_BOOLEAN,
    EXPECTED_COUNT,
    EXPECTED_KEEP_WARM,
    EXPECTED_POSITIVE_SHARE,
    EXPECTED_SHARE,
    KEEP_WARM_WORDS,
    Boolean,
    Count,
    KeepWarm,
    ModelFields,
    PositiveShare,
    Seconds,
    Share,
    Text,
)
from wva.collect.config.layers import BEFORE, Layers, Reading, Resolved, Rules, read, resolve
from wva.collect.config.reading import BadEntryError
from wva.godurations import EXPECTED_DURATION
from wva.model.inventory import UnknownInventory
from wva.model.optimizers import ANALYZERS_BY_NAME, FITTING, Analyzer, Optimizer
from wva.model.policy import (
    DEFAULT_ANALYZER,
    Compatibility,
    Policy,
    SaturationOverride,
    SaturationPolicy,
    SaturationRules,
    analyzer_without_a_name,
)


class SaturationEntry(ModelFields):
    """One entry; None means not given."""

    kv_cache_threshold: Share | None = Field(default=None, alias="kvCacheThreshold")
    queue_length_threshold: Count | None = Field(default=None, alias="queueLengthThreshold")
    kv_spare_trigger: Share | None = Field(default=None, alias="kvSpareTrigger")
    queue_spare_trigger: Count | None = Field(default=None, alias="queueSpareTrigger")
    enable_limiter: Boolean | None = Field(default=None, alias="enableLimiter")
    unknown_inventory: UnknownInventory | None = Field(default=None, alias="unknownInventory")
    analyzer_name: Text | None = Field(default=None, alias="analyzerName")
    optimizer_name: Optimizer | None = Field(default=None, alias="optimizerName")
    scale_up_threshold: PositiveShare | None = Field(default=None, alias="scaleUpThreshold")
    scale_down_boundary: PositiveShare | None = Field(default=None, alias="scaleDownBoundary")
    compatibility: Compatibility | None = None
    transition_deadline_seconds: Seconds | None = Field(default=None, alias="transitionDeadline")
    keep_warm: KeepWarm | None = Field(default=None, alias="keepWarm")

    @property
    def analyzer(self) -> Analyzer | None:
        """The analyzer that it names, None when it names none; an unknown name means the percentage analyzer."""
        if self.analyzer_name is None:
            return None
        return ANALYZERS_BY_NAME.get(self.analyzer_name, Analyzer.PERCENTAGE)


EXPECTED: Final = {
    "model_id": "a model id",
    "namespace": "a namespace",
    "kvCacheThreshold": EXPECTED_SHARE,
    "queueLengthThreshold": EXPECTED_COUNT,
    "kvSpareTrigger": EXPECTED_SHARE,
    "queueSpareTrigger": EXPECTED_COUNT,
    "enableLimiter": EXPECTED_BOOLEAN,
    "unknownInventory": " or ".join(value.value for value in UnknownInventory),
    "analyzerName": ", ".join(name for name in ANALYZERS_BY_NAME if name),
    "optimizerName": ", ".join(value.value or '""' for value in Optimizer),
    "scaleUpThreshold": EXPECTED_POSITIVE_SHARE,
    "scaleDownBoundary": EXPECTED_POSITIVE_SHARE,
    "compatibility": " or ".join(value.value for value in Compatibility),
    "transitionDeadline": f"{EXPECTED_DURATION}, above zero",
    "keepWarm": EXPECTED_KEEP_WARM,
}
"""What each field takes, in words for people."""

_POLICY_FIELDS: Final = {
    "kvCacheThreshold": "kv_cache_threshold",
    "queueLengthThreshold": "queue_length_threshold",
    "kvSpareTrigger": "kv_spare_trigger",
    "queueSpareTrigger": "queue_spare_trigger",
    "scaleUpThreshold": "scale_up_threshold",
    "scaleDownBoundary": "scale_down_boundary",
    "transitionDeadline": "transition_deadline_seconds",
    "keepWarm": "keep_warm",
}
_GLOBAL_FIELDS: Final = {
    "compatibility": "compatibility",
    "enableLimiter": "enable_limiter",
    "unknownInventory": "unknown_inventory",
}
"""What is read from the global ``default`` alone."""
_MAIN_FIELDS: Final = ("kvCacheThreshold", "queueLengthThreshold", "kvSpareTrigger", "queueSpareTrigger")


def _merge(layers: Layers[SaturationEntry]) -> SaturationPolicy:
    """Lay entries over the built-in thresholds, then judge the result. Raises BadEntryError."""
    given: dict[str, float] = {}
    analyzer, optimizer = DEFAULT_ANALYZER, Optimizer.BY_ANALYZER
    for layer in reversed(layers):
        own, named = _given(layer), layer.optimizer_name
        given |= own
        if layer.analyzer is None:
            analyzer = analyzer_without_a_name(analyzer, own, named)
            optimizer = optimizer if named is None else named
        else:
            # An optimizer is not inherited by what names an analyzer: it was chosen for another.
            analyzer, optimizer = layer.analyzer, named or Optimizer.BY_ANALYZER
    merged = SaturationPolicy(**given, analyzer_name=analyzer, optimizer_name=optimizer)
    if not merged.kv_fits:
        raise BadEntryError(
            f"at least kvSpareTrigger ({merged.kv_spare_trigger:g})",
            field_name="kvCacheThreshold",
            value=f"{merged.kv_cache_threshold:g}",
        )
    up, down = merged.scale_up_threshold, merged.scale_down_boundary
    if not merged.tokens_fit:
        raise BadEntryError(f"above scaleDownBoundary ({down:g})", field_name="scaleUpThreshold", value=f"{up:g}")
    if not merged.optimizer_fits:
        able = " or ".join(each.value for each in FITTING[analyzer]) or '""'
        expected = f'{able}, which go with analyzerName "{analyzer.value or "percentage"}"'
        raise BadEntryError(expected, field_name="optimizerName", value=optimizer.value)
    return merged


def _given(entry: SaturationEntry) -> dict[str, float]:
    """Return the thresholds that an entry names, under their names in a policy."""
    values = {name: getattr(entry, name) for name in _POLICY_FIELDS.values()}
    return {name: value for name, value in values.items() if value is not None}


def _in_force(field_name: str, policy: SaturationPolicy) -> str:
    if field_name in _GLOBAL_FIELDS:
        return BEFORE
    if field_name == "analyzerName":
        return policy.analyzer_name or "percentage"
    if field_name == "optimizerName":
        return f'"{policy.optimizer_name}"'
    if field_name == "keepWarm" and policy.keep_warm in KEEP_WARM_WORDS:
        return KEEP_WARM_WORDS[policy.keep_warm]
    if field_name in _POLICY_FIELDS:
        unit = "s" if field_name in {"transitionDeadline", "keepWarm"} else ""
        return f"{getattr(policy, _POLICY_FIELDS[field_name]):g}{unit}"
    values = {name: getattr(policy, _POLICY_FIELDS[name]) for name in _MAIN_FIELDS}
    return ", ".join(f"{name} {value:g}" for name, value in values.items() if math.isfinite(value))


def _remarks(key: str, entry: SaturationEntry, local: bool) -> Iterator[str]:  # noqa: FBT001 - told by position
    if key == DEFAULT_ENTRY and (entry.model_id is not None or entry.namespace is not None):
        yield "model_id and namespace have no effect: this entry applies to every model"
    if key != DEFAULT_ENTRY or local:
        for name, field in _GLOBAL_FIELDS.items():
            if getattr(entry, field) is not None:
                place = "the global ConfigMap" if local else "this ConfigMap"
                yield f"{name} has no effect here: it is read from {DEFAULT_ENTRY} of {place} only"


def _unused(entry: SaturationEntry) -> Iterator[tuple[BadEntryError, str]]:
    """Yield an analyzer that there is none of: the rest of its entry holds, as it did in the original."""
    if entry.analyzer_name is not None and entry.analyzer_name not in ANALYZERS_BY_NAME:
        problem = BadEntryError(EXPECTED["analyzerName"], field_name="analyzerName", value=entry.analyzer_name)
        yield problem, "percentage, with the rest of the entry"


RULES: Final = Rules(EntryForm(SaturationEntry, EXPECTED), _merge, _in_force, _remarks, unused=_unused)


def rules_of(resolved: Resolved[SaturationEntry, SaturationPolicy]) -> SaturationRules:
    """Return the entries that hold as a decision reads them."""
    overrides = tuple(
        SaturationOverride(
            entry.key,
            entry.model_id,
            entry.namespace,
            policy,
            names_analyzer=entry.fields.analyzer is not None,
            given=tuple(_given(entry.fields).items()),
            names_optimizer=entry.fields.optimizer_name is not None,
        )
        for entry, policy in resolved.overrides
    )
    return SaturationRules(resolved.default, overrides)


def unknown_inventory_of(default: SaturationEntry | None) -> UnknownInventory:
    """Return what a GPU budget allows while the number of GPUs is unknown, as the global ``default`` says."""
    given = None if default is None else default.unknown_inventory
    return UnknownInventory.NO_GROWTH if given is None else given


@dataclass(frozen=True, slots=True)
class SaturationConfig:
    """The policy to decide with, the rejected entries, warnings about accepted ones, and what was read."""

    policy: Policy
    errors: tuple[EntryError, ...]
    warnings: tuple[str, ...]
    reading: Reading[SaturationEntry]


def parse_saturation(data: Mapping[str, str], *, previous: SaturationConfig | None = None) -> SaturationConfig:
    """Return the policy of a global saturation ConfigMap, taken for itself.

    ``previous`` is what came of the ConfigMap before: its good entries stay where the new ones are invalid. Without one
    the built-in values stay. Never raises, for any text.
    """
    reading = read(data, RULES, previous=None if previous is None else previous.reading)
    resolved = resolve(reading, RULES)
    rules, default = rules_of(resolved), reading.default
    policy = Policy(
        rules.default or SaturationPolicy(),
        rules.overrides,
        compatibility=None if default is None else default.compatibility,
        enable_limiter=bool(default and default.enable_limiter),
        unknown_inventory=unknown_inventory_of(default),
    )
    return SaturationConfig(policy, (*reading.errors, *resolved.errors), reading.warnings, reading)
