"""Namespaces: whether their ConfigMaps count may change with every label, annotation and VariantAutoscaling.

Nothing is remembered here but the last answer: whenever it changes, the ConfigMaps of the namespace are looked at
again. So it does not matter whether the ConfigMap, the namespace's label or the first variant came first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wva import log
from wva.api.meta import Key
from wva.api.namespaces import Namespace
from wva.api.variantautoscaling import VariantAutoscaling
from wva.collect.local_scope import LocalScope


class NamespaceController:
    """Follows namespaces and variants; what is to be done goes into the queue of the ConfigMaps."""

    def __init__(
        self, scope: LocalScope, *, config_maps: Callable[[str], Iterable[Key]], look_again: Callable[[Key], None]
    ) -> None:
        """``config_maps`` returns those of a namespace, ``look_again`` queues one; nothing is subscribed yet."""
        self._scope = scope
        self._config_maps = config_maps
        self._look_again = look_again
        self._refusals: dict[str, str] = {}
        self._logger = log.get("namespaces")

    def watch(self) -> None:
        """Follow the caches, which have synced."""
        for namespace in self._present():
            self._refusals[namespace] = self._scope.refusal(namespace)
        self._scope.namespaces.subscribe(self._on_namespace)
        self._scope.variant_autoscalings.subscribe(self._on_va)

    def _present(self) -> set[str]:
        names = {namespace.metadata.name for namespace in self._scope.namespaces.list()}
        return names | {va.metadata.namespace for va in self._scope.variant_autoscalings.list()}

    def _on_namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        seen = new or old
        if seen is not None:
            self._check(seen.metadata.name)

    def _on_va(self, old: VariantAutoscaling | None, new: VariantAutoscaling | None) -> None:
        seen = new or old
        if seen is None or (old is not None and new is not None and old.metadata.labels == new.metadata.labels):
            return
        self._check(seen.metadata.namespace)

    def _check(self, namespace: str) -> None:
        refusal = self._scope.refusal(namespace)
        if self._refusals.get(namespace) == refusal:
            return
        self._refusals[namespace] = refusal
        keys = list(self._config_maps(namespace))
        if keys:
            self._logger.info("local_config_maps", namespace=namespace, count=len(keys), refused=refusal or None)
        for key in keys:
            self._look_again(key)
        if not refusal:
            return
        gone = self._scope.namespaces.get(Key("", namespace)) is None and not self._scope.tracks(namespace)
        if gone:
            del self._refusals[namespace]
