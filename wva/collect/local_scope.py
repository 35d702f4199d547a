"""Which namespaces may have ConfigMaps of their own, and where those ConfigMaps are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wva.api.core import CONFIG_ENABLED_LABEL, EXCLUDE_ANNOTATION, Namespace
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.kube.cache import Store


@dataclass(frozen=True, slots=True)
class LocalScope:
    """Tells whether the ConfigMaps of a namespace count; all callers use this one rule.

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
