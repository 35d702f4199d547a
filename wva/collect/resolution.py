"""The target of a VariantAutoscaling, or why it has none, and its bounds, from the caches that collecting reads.

Reconciler and collector use the same rule: the reconciler writes the result into the ``TargetResolved`` condition, and
the collector leaves out variants without a target. Two VAs on one target would fight over its replicas through two
scalers, so WVA accepts neither, and the condition of each names the other.

The bounds are those that all scalers of the target allow, narrowed by the annotations of the VA. A scaler never sets a
number outside of its bounds, and a controller that waits for such a number would wait for ever. The HPA that KEDA makes
for a ScaledObject is left out: KEDA itself scales below its minimum, so only the ScaledObject has the real bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from wva.api.scalers import SCALED_OBJECT_KIND, HorizontalPodAutoscaler, ScaledObject, Scaler
from wva.api.variantautoscaling import TargetReason, VariantAutoscaling
from wva.kube.cache import Store
from wva.model.records import replace
from wva.model.roles import RoleLabels
from wva.model.variant import Bounds
from wva.numbers import REPLICAS, NumberError
from wva.targets import DEFAULT, ScaleTarget, TargetStores, scaled_key, target_key

TARGET_INDEX: Final = "target"
SCALED_INDEX: Final = "scaled"
RIVALS_LOOKED_AT: Final = 10
"""How many VAs on one target are looked at again when another one comes or goes.

The conflict of two VAs ends with one of them; that of many stays. Without a limit, thousands of VAs on one target would
be looked at thousands of times.
"""
MIN_REPLICAS_ANNOTATION: Final = "wva.llmd.ai/min-replicas"
MAX_REPLICAS_ANNOTATION: Final = "wva.llmd.ai/max-replicas"
_NAMED_OTHERS: Final = 5
"""How many competing VAs a message names; the rest is counted, so that a message stays readable."""


@dataclass(frozen=True, slots=True)
class ScalerStores:
    """The caches of both kinds of scalers; a kind that the cluster does not serve is empty."""

    hpas: Store[HorizontalPodAutoscaler] = field(default_factory=Store)
    scaled_objects: Store[ScaledObject] = field(default_factory=Store)

    def add_indexes(self) -> None:
        """Index both by the target they scale; once, before the first object."""
        self.hpas.add_index(SCALED_INDEX, _scaled_index)
        self.scaled_objects.add_index(SCALED_INDEX, _scaled_index)

    def of(self, va: VariantAutoscaling) -> tuple[list[ScaledObject], list[HorizontalPodAutoscaler]]:
        """Return the scalers of the target, without the HPA that KEDA makes."""
        target = target_key(va)
        scaled_objects = self.scaled_objects.by_index(SCALED_INDEX, target)
        hpas = [
            hpa
            for hpa in self.hpas.by_index(SCALED_INDEX, target)
            if not (scaled_objects and (owner := hpa.metadata.controller) and owner.kind == SCALED_OBJECT_KIND)
        ]
        return scaled_objects, hpas


@dataclass(frozen=True, slots=True)
class CollectStores:
    """The caches of VAs, of targets with their pods, and of the scalers that bound a variant.

    ``role_labels`` say how the labels of pods are read.
    """

    variant_autoscalings: Store[VariantAutoscaling]
    targets: TargetStores
    scalers: ScalerStores = field(default_factory=ScalerStores)
    role_labels: RoleLabels = field(default_factory=RoleLabels)

    def add_indexes(self) -> None:
        """Add the indexes that targets, their pods and their rivals are looked up by; once, before the first object."""
        self.variant_autoscalings.add_index(TARGET_INDEX, _target_index)
        self.targets.add_indexes()
        self.scalers.add_indexes()


@dataclass(frozen=True, slots=True)
class TargetResolution:
    """The target of a VA (there is one exactly when the reason is TARGET_FOUND), and a message for people."""

    reason: TargetReason
    message: str
    target: ScaleTarget | None = None

    @property
    def has_target(self) -> bool:
        """Whether there is a target that this variant alone scales."""
        return self.target is not None


def resolve(va: VariantAutoscaling, *, vas: Store[VariantAutoscaling], targets: TargetStores) -> TargetResolution:
    """Resolve the scale target of a VA; the store of VAs must have its index (CollectStores.add_indexes)."""
    reference = va.spec.scale_target_ref
    if not reference.name:
        message = "spec.scaleTargetRef.name is empty: it must name the Deployment to scale"
        return TargetResolution(TargetReason.TARGET_NOT_FOUND, message)
    kind = targets.kind_named(va)
    if kind is None:
        scaled = " and ".join(map(str, targets.kinds))
        message = (
            f"Scale target {reference.api_version or DEFAULT.resource.api_version} {reference.kind} {reference.name} "
            f"is not supported: only {scaled} {'is' if len(targets.kinds) == 1 else 'are'}"
        )
        return TargetResolution(TargetReason.TARGET_UNSUPPORTED, message)
    name = f"{kind.resource.kind} {reference.name}"
    target = targets.named(va)
    if target is None or target.metadata.deleting:
        cause = f": {absent}" if (absent := targets.absent(kind)) else ""
        return TargetResolution(TargetReason.TARGET_NOT_FOUND, f"Scale target {name} not found{cause}")
    # A tenant may write thousands of VAs for one target, and WVA resolves each, so it reads only the first few rivals.
    own_key, index_key = va.metadata.key, target_key(va)
    known = vas.get(own_key)
    own = known is not None and index_key in _target_index(known)
    others = vas.count_by_index(TARGET_INDEX, index_key) - own
    if others:
        first = vas.first_by_index(TARGET_INDEX, index_key, _NAMED_OTHERS + 1)
        named = [key.name for key in first if key != own_key][:_NAMED_OTHERS]
        listed = ", ".join(named) + (f" and {others - len(named)} more" if others > len(named) else "")
        message = (
            f"Scale target {name} is also claimed by VariantAutoscaling {listed}; "
            f"a {kind.resource.kind} can have only one"
        )
        return TargetResolution(TargetReason.TARGET_CONFLICT, message)
    return TargetResolution(TargetReason.TARGET_FOUND, f"Scale target {name} found", target)


def bounds_of(va: VariantAutoscaling, scalers: ScalerStores) -> Bounds:
    """Return the smallest and largest number that scalers allow, and the objects that say so; None: no limit.

    An annotation only narrows the bounds. ``bound_problems`` reports an annotation that is no whole number; this
    function ignores it.
    """
    limits: list[tuple[int | None, int | None, str]] = []  # minimum, maximum, origin
    scaled_objects, hpas = scalers.of(va)
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


def bound_problems(va: VariantAutoscaling, scalers: ScalerStores) -> list[str]:
    """Return one line for people for each bound of the VA and its scalers that is no valid number of replicas."""
    lines = []
    for name in (MIN_REPLICAS_ANNOTATION, MAX_REPLICAS_ANNOTATION):
        text = va.metadata.annotations.get(name)
        if text is not None and REPLICAS.find(text) is None:
            in_force = "the scaler's bound"
            lines.append(str(NumberError(f"annotation {name}", text, expected=REPLICAS.expected, in_force=in_force)))
    scaled_objects, hpas = scalers.of(va)
    lines += [
        f"ScaledObject {scaled_object.metadata.name}: {error}"
        for scaled_object in scaled_objects
        for error in scaled_object.problems()
    ]
    lines += [f"HPA {hpa.metadata.name}: {error}" for hpa in hpas for error in hpa.problems()]
    return lines


def _target_index(va: VariantAutoscaling) -> Iterable[str]:
    """Index a VA by its target; a VA that is being deleted claims no target."""
    return () if va.metadata.deleting else (target_key(va),)


def _scaled_index(scaler: Scaler) -> Iterable[str]:
    key = scaled_key(scaler.metadata.namespace, scaler.spec.scale_target_ref)
    return () if key is None else (key,)
