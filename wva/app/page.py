"""The series about variants, and which change of a cache concerns the series of which variant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from wva.api.namespaces import Namespace
from wva.api.scalers import HorizontalPodAutoscaler, ScaledObject
from wva.api.variantautoscaling import VariantAutoscaling
from wva.app.informers import Informers
from wva.collect.stores import TARGET_INDEX
from wva.kube.cache import Store
from wva.model.variant import VariantKey
from wva.publish.leader_collector import LeaderCollector
from wva.publish.ledger import Ledger
from wva.publish.series import SeriesText
from wva.targets import ScaleTarget, TargetStores, scaled_key

Scaler: TypeAlias = HorizontalPodAutoscaler | ScaledObject


def followed_series(
    collectors: Sequence[LeaderCollector], *, ledger: Ledger, informers: Informers, leading: Callable[[], bool]
) -> SeriesText:
    """Return the text of all series about variants, which follows the ledger and the caches."""
    series, stores = SeriesText(collectors, leading=leading), informers.stores
    follower = _Follower(series, stores.variant_autoscalings, stores.targets)
    ledger.subscribe(lambda key, _old, _new: series.mark([key]))
    stores.variant_autoscalings.subscribe(follower.on_variant)
    stores.targets.subscribe(follower.on_target)
    informers.scope.namespaces.subscribe(follower.on_namespace)
    if stores.scalers is not None:
        stores.scalers.hpas.subscribe(follower.on_scaler)
        stores.scalers.scaled_objects.subscribe(follower.on_scaler)
    return series


class _Follower:
    """Marks the variants that a change of a cache concerns."""

    def __init__(self, series: SeriesText, variants: Store[VariantAutoscaling], targets: TargetStores) -> None:
        self._series = series
        self._targets = targets
        self._variants = variants

    def on_variant(self, old: VariantAutoscaling | None, new: VariantAutoscaling | None) -> None:
        self._mark(va for va in (old, new) if va is not None)

    def on_target(self, old: ScaleTarget | None, new: ScaleTarget | None) -> None:
        target = new or old
        if target is not None:
            self._mark_target(self._targets.key_of(target))

    def on_scaler(self, old: Scaler | None, new: Scaler | None) -> None:
        """Mark for what bounds are read from; the status of an HPA changes several times a minute."""
        if old is not None and new is not None and _bounds_part(old) == _bounds_part(new):
            return
        for scaler in (old, new):
            if scaler is not None:
                self._mark_target(scaled_key(scaler.metadata.namespace, scaler.spec.scale_target_ref))

    def on_namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        namespace = new or old
        if namespace is not None:
            self._mark(self._variants.list(namespace.metadata.name))

    def _mark_target(self, key: str | None) -> None:
        if key is not None:
            self._mark(self._variants.by_index(TARGET_INDEX, key))

    def _mark(self, vas: Iterable[VariantAutoscaling]) -> None:
        self._series.mark(VariantKey(*va.metadata.key) for va in vas)


def _bounds_part(scaler: Scaler) -> tuple[object, ...]:
    return scaler.spec, scaler.metadata.annotations, scaler.metadata.owner_references
