"""Which namespaces may have ConfigMaps of their own, and where those ConfigMaps are."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wva.api.core import CONFIG_ENABLED_LABEL, EXCLUDE_ANNOTATION, ConfigMap, Namespace
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.kube.cache import Handler, Store


@dataclass(frozen=True, slots=True)
class LocalScope:
    """Tells all callers alike whether the ConfigMaps of a namespace count.

    ``watched`` is the only namespace that WVA watches, empty for all; ``wanted`` tells the variants of this controller
    from those of others. A namespace that cannot be read counts as neither excluded nor opted in.
    """

    watched: str
    wanted: Callable[[VariantAutoscaling], bool]
    namespaces: Store[Namespace]
    variant_autoscalings: Store[VariantAutoscaling]

    def refusal(self, namespace: str) -> str:
        """Return why the ConfigMaps of a namespace do not count, empty when they do; the first rule wins."""
        if self.watched:
            return "" if namespace == self.watched else f"only namespace {self.watched} is watched"
        known = self.namespaces.get(Key("", namespace))
        if self.excluded(namespace):
            return f"namespace {namespace} has the annotation {EXCLUDE_ANNOTATION}=true"
        if self.tracks(namespace) or (known is not None and known.config_enabled):
            return ""
        return (
            f"namespace {namespace} has neither a VariantAutoscaling of this controller "
            f"nor the label {CONFIG_ENABLED_LABEL}=true"
        )

    def excluded(self, namespace: str) -> bool:
        """Tell whether a namespace is excluded by its annotation; the only watched namespace cannot be."""
        known = None if self.watched else self.namespaces.get(Key("", namespace))
        return known is not None and known.excluded

    def tracks(self, namespace: str) -> bool:
        """Tell whether a VariantAutoscaling of this controller is in a namespace."""
        return any(self.wanted(va) for va in self.variant_autoscalings.list(namespace))


@dataclass(frozen=True, slots=True)
class ConfigMapStores:
    """The ConfigMaps of our own namespace, and those of other namespaces by their name."""

    own_namespace: str
    own: Store[ConfigMap]
    local: Mapping[str, Store[ConfigMap]]

    def get(self, key: Key) -> ConfigMap | None:
        """Return a ConfigMap, None when there is none."""
        store = self.own if key.namespace == self.own_namespace else self.local.get(key.name)
        return None if store is None else store.get(key)

    def list(self) -> list[ConfigMap]:
        """Return those of our own namespace, then the others."""
        others = [found for store in self.local.values() for found in store.list() if not self._is_own(found)]
        return [*self.own.list(), *others]

    def of(self, namespace: str) -> builtins.list[Key]:
        """Return the keys of the ConfigMaps in a namespace other than our own."""
        keys = (Key(namespace, name) for name in self.local)
        return [key for key in keys if namespace != self.own_namespace and self.local[key.name].get(key) is not None]

    def subscribe(self, handler: Handler[ConfigMap]) -> None:
        """Call a handler on each change; a ConfigMap of our own namespace is in both caches, and counts once."""

        def elsewhere(old: ConfigMap | None, new: ConfigMap | None) -> None:
            seen = new or old
            if seen is not None and not self._is_own(seen):
                handler(old, new)

        self.own.subscribe(handler)
        for store in self.local.values():
            store.subscribe(elsewhere)

    def _is_own(self, config_map: ConfigMap) -> bool:
        return config_map.metadata.namespace == self.own_namespace
