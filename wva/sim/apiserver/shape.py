"""How lists and maps of a kind merge: the part of a schema that strategic merge and server-side apply read.

Custom resources say it in their schema (``x-kubernetes-list-type``, ``x-kubernetes-list-map-keys``,
``x-kubernetes-map-type``). For the kinds of Kubernetes itself the name of a list decides its merge keys. This module
has a table of these names in place of the server's generated schemas; it covers what the product and its world write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from wva.sim.apiserver.kinds import KindSpec
from wva.sim.apiserver.objects import Json

_KEYS_BY_NAME: Final[dict[str, tuple[str, ...]]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "containerStatuses": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "secrets": ("name",),
    "taints": ("key",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_KEYS_OF_PORTS: Final = (("containerPort",), ("port",))
_SETS: Final = frozenset({"finalizers"})
_ATOMIC_MAPS: Final = frozenset({"selector", "scaleTargetRef"})


@dataclass(frozen=True, slots=True)
class Shape:
    """The merge rules at one place of an object; ``schema`` None means that the field's name decides."""

    schema: Mapping[str, Any] | None = None
    field: str = ""

    @classmethod
    def of(cls, spec: KindSpec) -> Shape:
        """Return the rules at the root of a kind's objects."""
        return cls(None if spec.built_in else spec.schema)

    def child(self, field: str) -> Shape:
        """Return the rules below ``field``."""
        if self.schema is None or (not self.field and field == "metadata"):
            return Shape(None, field)
        properties = self.schema.get("properties") or {}
        additional = self.schema.get("additionalProperties")
        child_schema = properties.get(field, additional if isinstance(additional, Mapping) else {})
        return Shape(child_schema, field)

    def item(self) -> Shape:
        """Return the rules of the items of this list."""
        return Shape(None if self.schema is None else self.schema.get("items") or {}, "")

    def keys(self, items: list[Json]) -> tuple[str, ...]:
        """Return the fields that identify an item of this list; empty when the list is replaced as a whole."""
        if self.schema is not None:
            if self.schema.get("x-kubernetes-list-type") == "map":
                return tuple(self.schema.get("x-kubernetes-list-map-keys", ()))
            return ()
        merge_keys = _KEYS_BY_NAME.get(self.field, ())
        if self.field == "ports":
            merge_keys = next((keys for keys in _KEYS_OF_PORTS if all(_has(item, keys) for item in items)), ())
        return merge_keys if all(_has(item, merge_keys) for item in items) else ()

    @property
    def is_set(self) -> bool:
        """Whether this list is a set of scalars."""
        if self.schema is not None:
            return self.schema.get("x-kubernetes-list-type") == "set"
        return self.field in _SETS

    @property
    def atomic_map(self) -> bool:
        """Whether this map is owned and replaced as a whole."""
        if self.schema is not None:
            return self.schema.get("x-kubernetes-map-type") == "atomic"
        return self.field in _ATOMIC_MAPS


def _has(item: Json, keys: tuple[str, ...]) -> bool:
    return isinstance(item, dict) and all(key in item for key in keys)
