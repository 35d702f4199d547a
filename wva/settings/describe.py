"""The settings in force, one entry each: what ``wva config`` and ``/debug/config`` show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from wva.settings.load import Loaded, SourceName
from wva.settings.model import Settings
from wva.settings.origin import origin_of
from wva.settings.text import shown

Applies = Literal["live", "start"]


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """One setting: its canonical name, value and source.

    ``applies`` tells whether a change of the ConfigMap is followed ``live`` or at the next ``start``. Values are texts
    as a ConfigMap would have them; secrets are masked.
    """

    name: str
    value: str
    source: SourceName
    applies: Applies
    default: str
    flags: tuple[str, ...]
    keys: tuple[str, ...]


def describe(loaded: Loaded) -> list[SettingInForce]:
    """Return every setting, in the order of the documentation."""
    return [_entry(name, loaded.settings, loaded.sources) for name in Settings.model_fields]


def _entry(name: str, settings: Settings, sources: Mapping[str, SourceName]) -> SettingInForce:
    field = Settings.model_fields[name]
    origin = origin_of(field)
    flags = tuple(f"-{flag}" if len(flag) == 1 else f"--{flag}" for flag in origin.flags)
    keys = origin.keys if origin.places else ()
    return SettingInForce(
        name=(*keys, *flags)[0],
        value=shown(getattr(settings, name)),
        source=sources[name],
        applies="live" if origin.dynamic else "start",
        default=shown(field.default),
        flags=flags,
        keys=keys,
    )
