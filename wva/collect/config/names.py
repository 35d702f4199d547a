"""Under which names each kind of ConfigMap is looked for.

The first name is the one of the settings, which is the canonical one unless an operator chose another: that is how the
names of Helm and kustomize installations come in. The others are names of older guides and samples. Of several
ConfigMaps of a kind in one namespace the first name wins and the others are told that they are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wva.settings import Settings


class MapKind(StrEnum):
    """What a ConfigMap is about, in the words of the log."""

    SATURATION = "saturation"
    SCALE_TO_ZERO = "scale-to-zero"
    QUEUEING = "queueing model"
    SERVICE_CLASSES = "service class"
    ACCELERATOR_COSTS = "accelerator cost"
    PROFILES = "performance"


CANONICAL: Final = {
    MapKind.SATURATION: "wva-saturation-scaling-config",
    MapKind.SCALE_TO_ZERO: "wva-model-scale-to-zero-config",
    MapKind.QUEUEING: "wva-queueing-model-config",
    MapKind.SERVICE_CLASSES: "service-classes-config",
    MapKind.ACCELERATOR_COSTS: "accelerator-unit-costs",
    MapKind.PROFILES: "wva-model-performance-config",
}
ALIASES: Final = {
    MapKind.SATURATION: ("saturation-scaling-config", "capacity-scaling-config"),
    MapKind.SCALE_TO_ZERO: ("model-scale-to-zero-config",),
    MapKind.SERVICE_CLASSES: ("serviceclass",),
}
LOCAL_KINDS: Final = (MapKind.SATURATION, MapKind.SCALE_TO_ZERO, MapKind.QUEUEING)
"""The kinds that a namespace may have for itself."""


@dataclass(frozen=True, slots=True)
class MapNames:
    """The names of each kind, the winning one first."""

    of: dict[MapKind, tuple[str, ...]]

    @staticmethod
    def from_settings(settings: Settings) -> MapNames:
        """Return the names that an operator has chosen, then the canonical ones, then the aliases."""
        chosen = {
            MapKind.SATURATION: settings.saturation_config_map_name,
            MapKind.SCALE_TO_ZERO: settings.scale_to_zero_config_map_name,
            MapKind.QUEUEING: settings.queueing_model_config_map_name,
            MapKind.SERVICE_CLASSES: settings.service_class_config_map_name,
        }
        return MapNames(
            {
                kind: tuple(dict.fromkeys((chosen.get(kind, canonical), canonical, *ALIASES.get(kind, ()))))
                for kind, canonical in CANONICAL.items()
            }
        )

    def kinds_of(self, name: str, *, local: bool) -> tuple[MapKind, ...]:
        """Return what a ConfigMap of this name is about, in a namespace of others (``local``) or in our own."""
        kinds: Iterable[MapKind] = LOCAL_KINDS if local else self.of
        return tuple(kind for kind in kinds if name in self.of[kind])

    @property
    def local(self) -> tuple[str, ...]:
        """Return every name that counts in a namespace of others."""
        return tuple(dict.fromkeys(name for kind in LOCAL_KINDS for name in self.of[kind]))
