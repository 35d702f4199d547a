"""Every setting of the process, each described once.

A field says its type, default and meaning; the ``Origin`` in its annotation says where it may be given. The fields
lie in one module for each concern and are one flat object here.
"""

from __future__ import annotations

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from wva.settings.decisions import DecisionSettings, IdentitySettings
from wva.settings.process import ProcessSettings
from wva.settings.prometheus import ConnectionSettings, MetricsCacheSettings
from wva.settings.sources import Layers, LayerSource


class Settings(  # the last base comes first in the order of fields
    IdentitySettings, DecisionSettings, MetricsCacheSettings, ConnectionSettings, ProcessSettings, BaseSettings
):
    """Every setting with its effective value. Durations are seconds."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base class's signature
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - same
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use the layers handed to ``load``, most important first, instead of pydantic's own environment reader."""
        layers = init_settings().get("layers")
        if not isinstance(layers, Layers):
            return (init_settings,)
        return tuple(LayerSource(settings_cls, layer) for layer in layers.values)
