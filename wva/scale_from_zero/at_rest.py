"""The models with a variant at zero, and which of them have to be looked at again: kept up with each change of a cache.

A fleet may have thousands of variants, and a change of one says nothing about the others. So a change marks only the
models that it may concern. A model without a variant at zero is never marked. A mark too many costs one look at one
model; a model that was not marked is found when the loop looks at all of them, twice a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from wva import log
from wva.api.core import InferencePool, InferencePoolAlpha
from wva.api.meta import Key
from wva.api.variantautoscaling import ConditionType, VariantAutoscaling
from wva.collect.claims import Claims
from wva.collect.faults import Faults
from wva.collect.pools import Pool, PoolStores
from wva.collect.resolution import TARGET_INDEX, CollectStores
from wva.collect.variants import accepted_in_slices
from wva.model.variant import ModelKey, Variant
from wva.scale_from_zero.starts import Activations
from wva.targets import ScaleTarget, target_key

_RIVALS_LOOKED_AT: Final = 10
"""How many VariantAutoscalings on one target are marked when one of them comes or goes: the conflict of many stays."""


class AtRest:
    """Follows variants, targets and pools, and reads from the caches what a look at a model needs."""

    def __init__(self, stores: CollectStores, pools: PoolStores, *, claims: Claims, activations: Activations) -> None:
        """Mark every model with a variant at zero, then follow.

        ``claims`` tells which variants are this controller's, ``activations`` which starts the caches do not show yet.
        """
        self._stores = stores
        self._pools = pools
        self._claims = claims
        self._activations = activations
        self._throttle = log.Throttle()
        self.changed = asyncio.Event()
        """Set whenever a model has been marked."""
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
        """Return the models that may have changed since the last call."""
        marked, self._marked = self._marked, set()
        return marked

    def keys_of(self, models: Iterable[ModelKey]) -> list[Key]:
        """Return the keys of all VariantAutoscalings of these models, at zero or not, in order."""
        return sorted({key for model in models for key in self._members.get(model, ())})

    async def variants_of(self, models: Iterable[ModelKey], now: float) -> list[Variant]:
        """Return the variants of some models at ``now`` (seconds since the epoch).

        A model of which one variant cannot be read is left alone, as the cycle does.
        """
        faults = Faults(now, throttle=self._throttle)
        accepted = await accepted_in_slices(
            self._stores,
            only=self.keys_of(models),
            claims=self._claims,
            now=now,
            as_started=self._activations.apply,
            faults=faults,
        )
        return [entry.variant for entry in accepted if entry.variant.model not in faults]

    def pools_of(self, variant: Variant) -> list[Pool]:
        """Return the pools in front of a variant; none without a target."""
        va = self._stores.variant_autoscalings.get(Key(variant.key.namespace, variant.key.name))
        target = None if va is None else self._stores.targets.named(va)
        return [] if target is None else self._pools.pools_of(variant.key.namespace, target.pod_labels)

    def _on_va(self, old: VariantAutoscaling | None, new: VariantAutoscaling | None) -> None:
        if old is not None and new is not None and _essence(old) == _essence(new):
            return
        entries = [entry for entry in (old, new) if entry is not None]
        models = {_model_of(entry) for entry in entries}
        if old is not None:
            model = _model_of(old)
            if model in self._at_zero:  # marked here: nothing of it may be at zero afterwards
                self._marked.add(model)
            _discard(self._members, model, old.metadata.key)
            _discard(self._at_zero, model, old.metadata.key)
        if new is not None:
            self._members.setdefault(_model_of(new), set()).add(new.metadata.key)
            self._count(new)
        # Of two variants with one target neither can be started; the other one can when this one goes.
        stored = self._stores.variant_autoscalings
        for target in {target_key(entry) for entry in entries}:
            rivals = (stored.get(key) for key in stored.first_by_index(TARGET_INDEX, target, _RIVALS_LOOKED_AT))
            models.update(_model_of(rival) for rival in rivals if rival is not None)
        self._mark(models)

    def _on_target(self, old: ScaleTarget | None, new: ScaleTarget | None) -> None:
        changed = new or old
        if changed is None or (old is not None and new is not None and _rest_of(old) == _rest_of(new)):
            return
        models = set()
        target = self._stores.targets.key_of(changed)
        for claimant in self._stores.variant_autoscalings.by_index(TARGET_INDEX, target):
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
        else:
            _discard(self._at_zero, model, key)

    def _mark(self, models: Iterable[ModelKey]) -> None:
        self._marked.update(model for model in models if model in self._at_zero)
        if self._marked:
            self.changed.set()


def _discard(keys: dict[ModelKey, set[Key]], model: ModelKey, key: Key) -> None:
    """Take a key out of those of a model; a model without keys goes."""
    if model in keys:
        keys[model].discard(key)
        if not keys[model]:
            del keys[model]


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
    return bool(target.spec_replicas), metadata.uid, metadata.deleting, target.pod_labels


def _reach(pool: InferencePool | InferencePoolAlpha) -> tuple[object, ...]:
    """Return what of a pool can: the pods behind it, and its picker."""
    return pool.metadata.deleting, pool.match_labels, pool.picker
