"""The bounds of a target: those of its HPA or ScaledObject, narrowed by the annotations of the VA.

A scaler never sets a number outside of its bounds, and a controller that waits for such a number would wait for ever.
If several scalers scale one target, the bounds are what all of them allow. The HPA that KEDA makes for a ScaledObject
is left out: KEDA itself scales below the minimum of that HPA, so only the ScaledObject has the real bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from wva.api.scalers import SCALED_OBJECT_KIND, HorizontalPodAutoscaler, ScaledObject
from wva.api.variantautoscaling import VariantAutoscaling
from wva.kube.cache import Store
from wva.model.records import replace
from wva.model.variant import Bounds
from wva.numbers import REPLICAS, NumberError
from wva.targets import scaled_key, target_key

MIN_REPLICAS_ANNOTATION: Final = "wva.llmd.ai/min-replicas"
MAX_REPLICAS_ANNOTATION: Final = "wva.llmd.ai/max-replicas"
SCALED_INDEX: Final = "scaled"


@dataclass(frozen=True, slots=True)
class ScalerStores:
    """The caches of both kinds of scalers; a kind that the cluster does not serve is empty."""

    hpas: Store[HorizontalPodAutoscaler]
    scaled_objects: Store[ScaledObject]

    def add_indexes(self) -> None:
        """Index both by the target they scale; once, before the first object."""
        self.hpas.add_index(SCALED_INDEX, scaled_index)
        self.scaled_objects.add_index(SCALED_INDEX, scaled_index)


def scaled_index(scaler: HorizontalPodAutoscaler | ScaledObject) -> Iterable[str]:
    """Index a scaler by the key of the target that it scales."""
    key = scaled_key(scaler.metadata.namespace, scaler.spec.scale_target_ref)
    return () if key is None else (key,)


def bounds_of(va: VariantAutoscaling, scalers: ScalerStores | None) -> Bounds:
    """Return what can be reached, and who says so; None on a side without a limit.

    An annotation only narrows. One that is no whole number is left out here and told by ``bound_problems``.
    """
    limits = list(_scaler_limits(va, scalers)) if scalers is not None else []
    limits += _annotated_limits(va)
    bounds = Bounds()
    for limit in limits:
        if limit.minimum is not None and (bounds.minimum is None or limit.minimum > bounds.minimum):
            bounds = replace(bounds, minimum=limit.minimum, minimum_origin=limit.minimum_origin)
        if limit.maximum is not None and (bounds.maximum is None or limit.maximum < bounds.maximum):
            bounds = replace(bounds, maximum=limit.maximum, maximum_origin=limit.maximum_origin)
    return bounds


def bound_problems(va: VariantAutoscaling, scalers: ScalerStores | None) -> list[str]:
    """Return one line for people for each number of the VA and its scalers that cannot be one of replicas."""
    lines = []
    for name in (MIN_REPLICAS_ANNOTATION, MAX_REPLICAS_ANNOTATION):
        text = va.metadata.annotations.get(name)
        if text is not None and REPLICAS.find(text) is None:
            in_force = "the scaler's bound"
            lines.append(str(NumberError(f"annotation {name}", text, expected=REPLICAS.expected, in_force=in_force)))
    if scalers is not None:
        scaled_objects, hpas = _scalers(va, scalers)
        lines += [f"ScaledObject {each.metadata.name}: {error}" for each in scaled_objects for error in each.problems()]
        lines += [f"HPA {each.metadata.name}: {error}" for each in hpas for error in each.problems()]
    return lines


def _scalers(va: VariantAutoscaling, scalers: ScalerStores) -> tuple[list[ScaledObject], list[HorizontalPodAutoscaler]]:
    """Return what scales the target, without the HPA that KEDA makes."""
    target = target_key(va)
    scaled_objects = scalers.scaled_objects.by_index(SCALED_INDEX, target)
    hpas = [
        hpa
        for hpa in scalers.hpas.by_index(SCALED_INDEX, target)
        if not (scaled_objects and (owner := hpa.metadata.controller) and owner.kind == SCALED_OBJECT_KIND)
    ]
    return list(scaled_objects), hpas


def _scaler_limits(va: VariantAutoscaling, scalers: ScalerStores) -> Iterator[Bounds]:
    scaled_objects, hpas = _scalers(va, scalers)
    for scaled_object in scaled_objects:
        origin, paused = f"ScaledObject {scaled_object.metadata.name}", scaled_object.paused_at
        if paused is None:
            yield _limit(scaled_object.minimum, scaled_object.maximum, origin)
        else:
            yield _limit(paused, paused, f"{origin}, paused")
    for hpa in hpas:
        yield _limit(hpa.minimum, hpa.maximum, f"HPA {hpa.metadata.name}")


def _annotated_limits(va: VariantAutoscaling) -> Iterator[Bounds]:
    annotations = va.metadata.annotations
    minimum = REPLICAS.find(annotations.get(MIN_REPLICAS_ANNOTATION))
    maximum = REPLICAS.find(annotations.get(MAX_REPLICAS_ANNOTATION))
    yield _limit(minimum, None, f"annotation {MIN_REPLICAS_ANNOTATION}")
    yield _limit(None, maximum, f"annotation {MAX_REPLICAS_ANNOTATION}")


def _limit(minimum: int | None, maximum: int | None, origin: str) -> Bounds:
    return Bounds(minimum, maximum, minimum_origin=origin, maximum_origin=origin)
