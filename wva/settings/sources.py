"""The layers of settings as pydantic-settings sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource


@dataclass(frozen=True, slots=True)
class Layers:
    """Values by field name, one mapping per source, most important first."""

    values: tuple[Mapping[str, Any], ...]


class LayerSource(PydanticBaseSettingsSource):
    """One layer: a mapping of field names to values that are known to be valid."""

    def __init__(self, settings_cls: type[BaseSettings], values: Mapping[str, Any]) -> None:
        """Serve ``values``."""
        super().__init__(settings_cls)
        self._values = values

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002 - base class
        """Return the value of one field."""
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return all values of the layer."""
        return dict(self._values)
