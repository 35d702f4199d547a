"""The series about variants, and which change of a cache concerns the series of which variant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from wva.api.apps import Deployment
from wva.api.namespaces import Namespace
from wva.api.scalers import HorizontalPodAutoscaler, ScaledObject
from wva.api.variantautoscaling import (
    SUPPORTED_TARGET_API_VERSION,
    SUPPORTED_TARGET_KIND,
    VariantAutoscaling,
)
from wva.app.informers import Informers
from wva.collect.stores import TARGET_INDEX
from wva.kube.cache import Store
from wva.model.variant import VariantKey
from wva.publish.leader_collector import LeaderCollector
from wva.publish.ledger import Ledger
from wva.publish.series import SeriesText

Scaler: TypeAlias = HorizontalPodAutoscaler | ScaledObject


def followed_series(
    collectors: Sequence[LeaderCollector], *, ledger: Ledger, informers: Informers, leading: Callable[[], bool]
) -> SeriesText:
    """Return the text of all series about variants, which follows the ledger and the caches."""
    series = SeriesText(collectors, leading=leading)
    follower, stores = _Follower(series, informers.stores.variant_autoscalings), informers.stores
    ledger.subscribe(lambda key, _old, _new: series.mark([key]))
    stores.variant_autoscalings.subscribe(follower.on_variant)
    stores.deployments.subscribe(follower.on_deployment)
    informers.scope.namespaces.subscribe(follower.on_namespace)
    if stores.scalers is not None:
        stores.scalers.hpas.subscribe(follower.on_scaler)
        stores.scalers.scaled_objects.subscribe(follower.on_scaler)
    return series


class _Follower:
    """Marks the variants that a change of a cache concerns."""

    def __init__(self, series: SeriesText, variants: Store[VariantAutoscaling]) -> None:
        self._series = series
        self._variants = variants

    def on_variant(self, old: VariantAutoscaling | None, new: VariantAutoscaling | None) -> None:
        self._mark(va for va in (old, new) if va is not None)

    def on_deployment(self, old: Deployment | None, new: Deployment | None) -> None:
        deployment = new or old
        if deployment is not None:
            self._mark_target(*deployment.metadata.key)

    def on_scaler(self, old: Scaler | None, new: Scaler | None) -> None:
        """Mark for what bounds are read from; the status of an HPA changes several times a minute."""
        if old is not None and new is not None and _bounds_part(old) == _bounds_part(new):
            return
        for scaler in (old, new):
            name = None if scaler is None else scaler.spec.scale_target_ref.deployment
            if scaler is not None and name is not None:
                self._mark_target(scaler.metadata.namespace, name)

    def on_namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        namespace = new or old
        if namespace is not None:
            self._mark(self._variants.list(namespace.metadata.name))

    def _mark_target(self, namespace: str, name: str) -> None:
        target = f"{namespace}/{SUPPORTED_TARGET_API_VERSION}/{SUPPORTED_TARGET_KIND}/{name}"
        self._mark(self._variants.by_index(TARGET_INDEX, target))

    def _mark(self, vas: Iterable[VariantAutoscaling]) -> None:
        self._series.mark(VariantKey(*va.metadata.key) for va in vas)


def _bounds_part(scaler: Scaler) -> tuple[object, ...]:
    return scaler.spec, scaler.metadata.annotations, scaler.metadata.owner_references
