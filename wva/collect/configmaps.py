"""The saturation ConfigMap: text in, complete and valid Policy out, with everything that was wrong beside it.

Each entry is merged before it is judged: override over ``default`` over the built-in values, so an override may name
a single threshold. A bad entry is rejected alone. A bad ``default`` leaves the last good one in force: a typing error
must not move the thresholds of a whole cluster. Nothing is dropped in silence: every rejected entry is an EntryError
with what was found, what was expected and what is in force instead; what is merely useless is a warning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import ValidationError

from wva.collect.entries import BadEntryError, PlainScalar, read_mapping
from wva.collect.promql import validate_namespace
from wva.collect.saturation_entry import EXPECTED, FIELDS, SaturationEntry
from wva.model.policy import Compatibility, Policy, SaturationOverride, SaturationPolicy

DEFAULT_ENTRY: Final = "default"
TOKEN_ANALYZER: Final = "saturation"  # noqa: S105 - tokens of a language model, not a secret
"""The original's name for its token analyzer; an entry that names it is judged by its rules as well."""
TOKEN_SCALE_UP_THRESHOLD: Final = 0.85
TOKEN_SCALE_DOWN_BOUNDARY: Final = 0.70

_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class EntryError:
    """Why an entry was rejected; all texts are for people.

    ``field`` is empty when it is about all of the entry. ``model_id`` and ``namespace`` are what the entry is for, as
    far as it could be read: empty for the default entry, and for an entry that is no YAML mapping.
    """

    key: str
    field: str
    value: str
    expected: str
    in_force: str
    model_id: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        """Return one sentence."""
        place = f"{self.key}.{self.field}" if self.field else self.key
        return f"{place}: got {self.value or 'nothing'}, expected {self.expected}; in force: {self.in_force}"


@dataclass(frozen=True, slots=True)
class SaturationConfig:
    """The policy to decide with, the rejected entries, and warnings about accepted ones."""

    policy: Policy
    errors: tuple[EntryError, ...] = ()
    warnings: tuple[str, ...] = ()


def parse_saturation(data: Mapping[str, str], *, previous: Policy | None = None) -> SaturationConfig:
    """Return the policy of a saturation ConfigMap (surface.md 3.2).

    ``previous`` is the policy in force: its default stays when the new one is invalid. Without one the built-in values
    stay. Never raises, whatever the texts.
    """
    reader = _Reader(previous or Policy())
    return reader.read(data)


class _Reader:
    """State of one pass over a ConfigMap."""

    def __init__(self, previous: Policy) -> None:
        self._previous = previous
        self._errors: list[EntryError] = []
        self._warnings: list[str] = []

    def read(self, data: Mapping[str, str]) -> SaturationConfig:
        default, compatibility = self._default(data)
        overrides = []
        for key in sorted(data):
            if key != DEFAULT_ENTRY:
                override = self._override(key, data[key], default)
                if override is not None:
                    overrides.append(override)
        policy = Policy(default, self._first_of_each(overrides), compatibility)
        return SaturationConfig(policy, tuple(self._errors), tuple(self._warnings))

    def _default(self, data: Mapping[str, str]) -> tuple[SaturationPolicy, Compatibility | None]:
        if DEFAULT_ENTRY not in data:
            return SaturationPolicy(), None
        try:
            entry = _validate(self._fields(DEFAULT_ENTRY, data[DEFAULT_ENTRY]))
            merged = _merge(entry, SaturationPolicy())
        except BadEntryError as problem:
            self._errors.append(_entry_error(DEFAULT_ENTRY, problem, in_force=self._previous.saturation))
            return self._previous.saturation, self._previous.compatibility
        if entry.model_id is not None or entry.namespace is not None:
            self._warn(DEFAULT_ENTRY, "model_id and namespace have no effect: this entry applies to every model")
        if entry.enable_limiter:
            self._warn(DEFAULT_ENTRY, "enableLimiter has no effect: there is no limiter yet")
        self._warn_of_analyzer(DEFAULT_ENTRY, entry)
        return merged, entry.compatibility

    def _override(self, key: str, text: str, default: SaturationPolicy) -> SaturationOverride | None:
        fields: dict[str, str] = {}
        try:
            fields = self._fields(key, text)
            entry = _validate(fields)
            model_id, namespace = _identity(entry)
            merged = _merge(entry, default)
        except BadEntryError as problem:
            error = _entry_error(key, problem, in_force=default)
            named = {name: _shown(fields.get(name, "")) for name in ("model_id", "namespace")}
            self._errors.append(replace(error, **named))
            return None
        self._warn_of_analyzer(key, entry)
        for name, value in (("compatibility", entry.compatibility), ("enableLimiter", entry.enable_limiter)):
            if value:
                self._warn(key, f"{name} has no effect here: it is read from {DEFAULT_ENTRY} only")
        return SaturationOverride(key, model_id, namespace, merged)

    def _warn_of_analyzer(self, key: str, entry: SaturationEntry) -> None:
        """Say that another analyzer is not there. v0.5.1 ran the percentage analyzer, too, whatever the name."""
        if entry.analyzer_name:
            text = f"analyzerName {entry.analyzer_name} has no effect: the percentage analyzer decides, with this entry"
            self._warn(key, text)

    def _fields(self, key: str, text: str) -> dict[str, str]:
        fields, unknown = read_mapping(text, fields=FIELDS)
        if unknown:
            self._warn(key, f"unknown fields are ignored: {', '.join(unknown)}")
        return fields

    def _first_of_each(self, overrides: list[SaturationOverride]) -> tuple[SaturationOverride, ...]:
        """Keep the first override (by key) of each model; the others are named in a warning."""
        first: dict[tuple[str, str | None], SaturationOverride] = {}
        for override in overrides:
            winner = first.setdefault((override.model_id, override.namespace), override)
            if winner is not override:
                self._warn(override.name, f"has no effect: {winner.name} is for the same model and comes first")
        return tuple(first.values())

    def _warn(self, key: str, text: str) -> None:
        self._warnings.append(f"{_shown(key)}: {_shown(text)}")


def _validate(fields: dict[str, str]) -> SaturationEntry:
    """Return the entry with these fields. Raises BadEntryError for the first field that does not fit."""
    try:
        return SaturationEntry.model_validate(fields)
    except ValidationError as error:
        name = str(error.errors(include_url=False, include_context=False)[0]["loc"][0])
        raise BadEntryError(EXPECTED[name], field_name=name, value=_as_written(fields[name])) from error


def _identity(entry: SaturationEntry) -> tuple[str, str | None]:
    if not entry.model_id:
        raise BadEntryError("the model that this override is for", field_name="model_id")
    if not entry.namespace:
        return entry.model_id, None
    try:
        return entry.model_id, validate_namespace(entry.namespace)
    except ValueError as error:
        raise BadEntryError("a namespace", field_name="namespace", value=entry.namespace) from error


def _merge(entry: SaturationEntry, base: SaturationPolicy) -> SaturationPolicy:
    """Lay the given fields of an entry over a policy, then judge the result. Raises BadEntryError."""
    given = {name: value for name, value in entry.thresholds().items() if value is not None}
    merged = replace(base, **given)
    if merged.kv_cache_threshold < merged.kv_spare_trigger:
        raise BadEntryError(
            f"at least kvSpareTrigger ({merged.kv_spare_trigger:g})",
            field_name="kvCacheThreshold",
            value=f"{merged.kv_cache_threshold:g}",
        )
    up = TOKEN_SCALE_UP_THRESHOLD if entry.scale_up_threshold is None else entry.scale_up_threshold
    down = TOKEN_SCALE_DOWN_BOUNDARY if entry.scale_down_boundary is None else entry.scale_down_boundary
    if entry.analyzer_name == TOKEN_ANALYZER and up <= down:
        raise BadEntryError(f"above scaleDownBoundary ({down:g})", field_name="scaleUpThreshold", value=f"{up:g}")
    return merged


def _entry_error(key: str, problem: BadEntryError, *, in_force: SaturationPolicy) -> EntryError:
    field, value = _shown(problem.field_name), _shown(problem.value)
    return EntryError(_shown(key), field, value, problem.expected, _value_in_force(problem.field_name, in_force))


def _value_in_force(field_name: str, policy: SaturationPolicy) -> str:
    in_force = {
        "kvCacheThreshold": policy.kv_cache_threshold,
        "queueLengthThreshold": policy.queue_length_threshold,
        "kvSpareTrigger": policy.kv_spare_trigger,
        "queueSpareTrigger": policy.queue_spare_trigger,
    }
    if field_name in in_force:
        return f"{in_force[field_name]:g}"
    if field_name == "transitionDeadline":
        return f"{policy.transition_deadline_seconds:g}s"
    return ", ".join(f"{name} {value:g}" for name, value in in_force.items() if math.isfinite(value))


def _as_written(value: str) -> str:
    """Return a value with its quotes, which may be what is wrong with it."""
    return value if isinstance(value, PlainScalar) else f'"{value}"'


def _shown(text: str) -> str:
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return "".join(character if character.isprintable() else "?" for character in cut)
