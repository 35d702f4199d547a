"""Namespaces: what counts in them may change with every label, annotation and VariantAutoscaling.

Nothing is remembered here but the last answer: whenever it changes, the ConfigMaps of the namespace are looked at
again, and its variants when the namespace is excluded or no longer. So it does not matter whether the ConfigMap, the
namespace's label or the first variant came first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wva import log
from wva.api.core import EXCLUDE_ANNOTATION, Namespace
from wva.api.meta import Key
from wva.api.variantautoscaling import VariantAutoscaling
from wva.collect.local_scope import ConfigMapStores, LocalScope
from wva.kube.workqueue import WorkQueue
from wva.model.variant import VariantKey

EXCLUDED_EVENT: Final = "NamespaceExcluded"


class NamespaceController:
    """Follows namespaces and variants; what is to be done goes into the queues of the others."""

    def __init__(
        self,
        scope: LocalScope,
        *,
        config_maps: ConfigMapStores,
        config_map_queue: WorkQueue[Key],
        variant_queue: WorkQueue[Key],
        announce: Callable[[VariantKey, str, str, str], None],
    ) -> None:
        """Subscribe to nothing before ``watch``. ``announce`` records an event on a variant: type, reason, message."""
        self._scope = scope
        self._config_maps = config_maps
        self._config_map_queue = config_map_queue
        self._variant_queue = variant_queue
        self._record_event = announce
        self._refusals: dict[str, str] = {}
        self._excluded: set[str] = set()
        self._logger = log.get("namespaces")

    def watch(self) -> None:
        """Follow the caches, which have synced."""

        def on_namespace(old: Namespace | None, new: Namespace | None) -> None:
            seen = new or old
            if seen is not None:
                self._check_exclusion(seen.metadata.name)
                self._check(seen.metadata.name)

        present = {namespace.metadata.name for namespace in self._scope.namespaces.list()}
        present |= {va.metadata.namespace for va in self._scope.variant_autoscalings.list()}
        for namespace in present:
            self._refusals[namespace] = self._scope.refusal(namespace)
            self._check_exclusion(namespace)
        self._scope.namespaces.subscribe(on_namespace)
        self._scope.variant_autoscalings.subscribe(self._on_va)

    def _on_va(self, old: VariantAutoscaling | None, new: VariantAutoscaling | None) -> None:
        seen = new or old
        if seen is None or (old is not None and new is not None and old.metadata.labels == new.metadata.labels):
            return
        if old is None and self._scope.excluded(seen.metadata.namespace):
            self._announce(seen)
        self._check(seen.metadata.namespace)

    def _check_exclusion(self, namespace: str) -> None:
        """Let go of the variants of a namespace, or take them up again."""
        excluded = self._scope.excluded(namespace)
        if excluded == (namespace in self._excluded):
            return
        variants = self._scope.variant_autoscalings.list(namespace)
        say = "namespace_excluded" if excluded else "namespace_no_longer_excluded"
        self._logger.info(say, namespace=namespace, variants=len(variants))
        if excluded:
            self._excluded.add(namespace)
        else:
            self._excluded.discard(namespace)
        for va in variants:
            self._variant_queue.add(va.metadata.key)
            if excluded:
                self._announce(va)

    def _announce(self, va: VariantAutoscaling) -> None:
        message = f"left alone: its namespace has the annotation {EXCLUDE_ANNOTATION}=true"
        self._record_event(VariantKey(*va.metadata.key), "Normal", EXCLUDED_EVENT, message)

    def _check(self, namespace: str) -> None:
        refusal = self._scope.refusal(namespace)
        if self._refusals.get(namespace) == refusal:
            return
        self._refusals[namespace] = refusal
        keys = self._config_maps.of(namespace)
        if keys:
            self._logger.info("local_config_maps", namespace=namespace, count=len(keys), refused=refusal or None)
        for key in keys:
            self._config_map_queue.add(key)
        if refusal and self._scope.namespaces.get(Key("", namespace)) is None and not self._scope.tracks(namespace):
            del self._refusals[namespace]  # it is gone
