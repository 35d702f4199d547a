"""The models with a variant at zero, and which of them have to be looked at again: kept up with each change of a cache.

A fleet may have thousands of variants, and a change of one says nothing about the others. So a change marks the models
that it may concern, and no other. A model of which nothing is at zero is never marked. What is marked too often costs
one look at one model; what is left out is found by the look at all of them, which the loop takes now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from wva.api.inference import InferencePool, InferencePoolAlpha
from wva.api.meta import Key
from wva.api.variantautoscaling import ConditionType, VariantAutoscaling
from wva.collect.pools import PoolStores
from wva.collect.stores import TARGET_INDEX, CollectStores
from wva.model.variant import ModelKey
from wva.targets import ScaleTarget, target_key

_RIVALS_LOOKED_AT: Final = 10
"""How many VariantAutoscalings on one target are marked when one of them comes or goes: the conflict of many stays."""


class AtRest:
    """Follows variants, targets and pools."""

    def __init__(self, stores: CollectStores, pools: PoolStores, *, wake: Callable[[], None]) -> None:
        """Mark every model with a variant at zero, then follow; ``wake`` is called when a model has been marked."""
        self._stores = stores
        self._wake = wake
        self._members: dict[ModelKey, set[Key]] = {}
        self._at_zero: dict[ModelKey, set[Key]] = {}
        self._marked: set[ModelKey] = set()
        for va in stores.variant_autoscalings.list():
            self._on_va(None, va)
        stores.variant_autoscalings.subscribe(self._on_va)
        stores.targets.subscribe(self._on_target)
        pools.pools.subscribe(self._on_pool)
        pools.pools_alpha.subscribe(self._on_pool)

    def all(self) -> set[ModelKey]:
        """Return the models with a variant at zero."""
        return set(self._at_zero)

    def take_marked(self) -> set[ModelKey]:
        """Return the models that may be another story since the last call."""
        marked, self._marked = self._marked, set()
        return marked

    def variants_of(self, models: Iterable[ModelKey]) -> list[Key]:
        """Return the keys of all VariantAutoscalings of these models, at zero or not, in order."""
        return sorted({key for model in models for key in self._members.get(model, ())})

    def _on_va(self, old: VariantAutoscaling | None, new: VariantAutoscaling | None) -> None:
        if old is not None and new is not None and _essence(old) == _essence(new):
            return
        models = {_model_of(entry) for entry in (old, new) if entry is not None}
        if old is not None:
            self._leave(old)
        if new is not None:
            self._members.setdefault(_model_of(new), set()).add(new.metadata.key)
            self._count(new)
        # Of two variants with one target neither can be started; the other one can when this one goes.
        stored = self._stores.variant_autoscalings
        for target in {target_key(entry) for entry in (old, new) if entry is not None}:
            rivals = (stored.get(key) for key in stored.first_by_index(TARGET_INDEX, target, _RIVALS_LOOKED_AT))
            models.update(_model_of(rival) for rival in rivals if rival is not None)
        self._mark(models)

    def _leave(self, va: VariantAutoscaling) -> None:
        """Take a variant out of its model. A model is marked here: nothing of it may be at zero afterwards."""
        model = _model_of(va)
        if model in self._at_zero:
            self._marked.add(model)
        for keys in (self._members, self._at_zero):
            if model in keys:
                keys[model].discard(va.metadata.key)
                if not keys[model]:
                    del keys[model]

    def _on_target(self, old: ScaleTarget | None, new: ScaleTarget | None) -> None:
        changed = new or old
        if changed is None or (old is not None and new is not None and _rest_of(old) == _rest_of(new)):
            return
        models = set()
        for claimant in self._claimants(self._stores.targets.key_of(changed)):
            model = _model_of(claimant)
            if model in self._at_zero:
                self._marked.add(model)
            self._count(claimant)
            models.add(model)
        self._mark(models)

    def _on_pool(
        self, old: InferencePool | InferencePoolAlpha | None, new: InferencePool | InferencePoolAlpha | None
    ) -> None:
        pool = new or old
        if pool is None or (old is not None and new is not None and _reach(old) == _reach(new)):
            return
        self._mark(model for model in self._at_zero if model.namespace == pool.metadata.namespace)

    def _count(self, va: VariantAutoscaling) -> None:
        """Note whether the target that a variant names asks for no replica."""
        target = self._stores.targets.named(va)
        model, key = _model_of(va), va.metadata.key
        if target is not None and not target.spec_replicas:
            self._at_zero.setdefault(model, set()).add(key)
        elif key in self._at_zero.get(model, ()):
            self._at_zero[model].discard(key)
            if not self._at_zero[model]:
                del self._at_zero[model]

    def _mark(self, models: Iterable[ModelKey]) -> None:
        self._marked.update(model for model in models if model in self._at_zero)
        if self._marked:
            self._wake()

    def _claimants(self, target: str) -> list[VariantAutoscaling]:
        return self._stores.variant_autoscalings.by_index(TARGET_INDEX, target)


def _model_of(va: VariantAutoscaling) -> ModelKey:
    return ModelKey(va.metadata.namespace, va.spec.model_id)


def _essence(va: VariantAutoscaling) -> tuple[object, ...]:
    """Return what of a VariantAutoscaling can make a model wake or rest; most of its status cannot."""
    claim = va.status.condition(ConditionType.CLAIMED)
    said = "" if claim is None else claim.message
    metadata = va.metadata
    return va.spec.model_id, va.spec.scale_target_ref, metadata.uid, metadata.deleting, metadata.labels, said


def _rest_of(target: ScaleTarget) -> tuple[object, ...]:
    """Return what of a target can: whether it asks for replicas, and what pools stand in front of it."""
    metadata = target.metadata
    return (
        bool(target.spec_replicas),
        metadata.uid,
        metadata.deleting,
        target.pod_labels,
    )


def _reach(pool: InferencePool | InferencePoolAlpha) -> tuple[object, ...]:
    """Return what of a pool can: the pods behind it, and its picker."""
    return pool.metadata.deleting, pool.match_labels, pool.picker
