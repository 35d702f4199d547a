"""Which series of the page a change concerns: the text of all others stays as it is."""

from __future__ import annotations

from collections.abc import Iterable

from wva.api.core import Namespace
from wva.api.scalers import Scaler
from wva.api.variantautoscaling import VariantAutoscaling
from wva.app.informers import Informers
from wva.collect.resolution import TARGET_INDEX
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger
from wva.publish.metrics import SeriesText
from wva.targets import ScaleTarget, scaled_key


def mark_changes(series: SeriesText, ledger: Ledger, informers: Informers) -> None:
    """Mark in ``series`` the variants that a change concerns, on each change of the ledger and of the caches."""
    stores = informers.stores
    vas, targets = stores.variant_autoscalings, stores.targets

    def mark(changed: Iterable[VariantAutoscaling]) -> None:
        series.mark(VariantKey(*va.metadata.key) for va in changed)

    def on_target(old: ScaleTarget | None, new: ScaleTarget | None) -> None:
        target = new or old
        if target is not None:
            mark(vas.by_index(TARGET_INDEX, targets.key_of(target)))

    def on_scaler(old: Scaler | None, new: Scaler | None) -> None:
        """Mark the variants of a scaler whose bounds changed; its status alone changes several times a minute."""
        if old is not None and new is not None and _bounds_part(old) == _bounds_part(new):
            return
        for scaler in (old, new):
            key = None if scaler is None else scaled_key(scaler.metadata.namespace, scaler.spec.scale_target_ref)
            if key is not None:
                mark(vas.by_index(TARGET_INDEX, key))

    def on_namespace(old: Namespace | None, new: Namespace | None) -> None:
        namespace = new or old
        if namespace is not None:
            mark(vas.list(namespace.metadata.name))

    ledger.subscribe(lambda key, _old, _new: series.mark([key]))
    vas.subscribe(lambda old, new: mark(va for va in (old, new) if va is not None))
    targets.subscribe(on_target)
    informers.scope.namespaces.subscribe(on_namespace)
    stores.scalers.hpas.subscribe(on_scaler)
    stores.scalers.scaled_objects.subscribe(on_scaler)


def _bounds_part(scaler: Scaler) -> tuple[object, ...]:
    return scaler.spec, scaler.metadata.annotations, scaler.metadata.owner_references
