"""The bounds of a target: those of its HPA or ScaledObject, narrowed by the annotations of the VA.

A scaler never sets a number outside of its bounds, and a controller that waits for such a number would wait for ever.
If several scalers scale one target, the bounds are what all of them allow. The HPA that KEDA makes for a ScaledObject
is left out: KEDA itself scales below the minimum of that HPA, so only the ScaledObject has the real bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
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
        self.hpas.add_index(SCALED_INDEX, _scaled_index)
        self.scaled_objects.add_index(SCALED_INDEX, _scaled_index)

    def of(self, va: VariantAutoscaling) -> tuple[list[ScaledObject], list[HorizontalPodAutoscaler]]:
        """Return the scalers of the target, without the HPA that KEDA makes."""
        target = target_key(va)
        scaled_objects = list(self.scaled_objects.by_index(SCALED_INDEX, target))
        hpas = [
            hpa
            for hpa in self.hpas.by_index(SCALED_INDEX, target)
            if not (scaled_objects and (owner := hpa.metadata.controller) and owner.kind == SCALED_OBJECT_KIND)
        ]
        return scaled_objects, hpas


def _scaled_index(scaler: HorizontalPodAutoscaler | ScaledObject) -> Iterable[str]:
    key = scaled_key(scaler.metadata.namespace, scaler.spec.scale_target_ref)
    return () if key is None else (key,)


def bounds_of(va: VariantAutoscaling, scalers: ScalerStores | None) -> Bounds:
    """Return the smallest and largest number that scalers allow, and the objects that say so; None: no limit.

    An annotation only narrows the bounds. ``bound_problems`` reports an annotation that is no whole number; this
    function ignores it.
    """
    limits: list[tuple[int | None, int | None, str]] = []  # minimum, maximum, origin
    scaled_objects, hpas = ([], []) if scalers is None else scalers.of(va)
    for scaled_object in scaled_objects:
        origin, paused = f"ScaledObject {scaled_object.metadata.name}", scaled_object.paused_at
        if paused is None:
            limits.append((scaled_object.minimum, scaled_object.maximum, origin))
        else:
            limits.append((paused, paused, f"{origin}, paused"))
    limits += [(hpa.minimum, hpa.maximum, f"HPA {hpa.metadata.name}") for hpa in hpas]
    annotations = va.metadata.annotations
    least, most = (REPLICAS.find(annotations.get(name)) for name in (MIN_REPLICAS_ANNOTATION, MAX_REPLICAS_ANNOTATION))
    limits += [
        (least, None, f"annotation {MIN_REPLICAS_ANNOTATION}"),
        (None, most, f"annotation {MAX_REPLICAS_ANNOTATION}"),
    ]
    bounds = Bounds()
    for minimum, maximum, origin in limits:
        if minimum is not None and (bounds.minimum is None or minimum > bounds.minimum):
            bounds = replace(bounds, minimum=minimum, minimum_origin=origin)
        if maximum is not None and (bounds.maximum is None or maximum < bounds.maximum):
            bounds = replace(bounds, maximum=maximum, maximum_origin=origin)
    return bounds


def bound_problems(va: VariantAutoscaling, scalers: ScalerStores | None) -> list[str]:
    """Return one line for people for each bound of the VA and its scalers that is no valid number of replicas."""
    lines = []
    for name in (MIN_REPLICAS_ANNOTATION, MAX_REPLICAS_ANNOTATION):
        text = va.metadata.annotations.get(name)
        if text is not None and REPLICAS.find(text) is None:
            in_force = "the scaler's bound"
            lines.append(str(NumberError(f"annotation {name}", text, expected=REPLICAS.expected, in_force=in_force)))
    if scalers is not None:
        scaled_objects, hpas = scalers.of(va)
        lines += [f"ScaledObject {each.metadata.name}: {error}" for each in scaled_objects for error in each.problems()]
        lines += [f"HPA {each.metadata.name}: {error}" for each in hpas for error in each.problems()]
    return lines
