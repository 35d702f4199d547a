"""The target of a VariantAutoscaling, or why it has none, from the caches that collecting reads.

Reconciler and collector use the same rule: the reconciler writes the result into the ``TargetResolved`` condition, and
the collector leaves out variants without a target. Two VAs on one target would fight over its replicas through two
scalers, so WVA accepts neither, and the condition of each names the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wva.api.core import Pod
from wva.api.variantautoscaling import TargetReason, VariantAutoscaling
from wva.collect.bounds import ScalerStores
from wva.kube.cache import Store
from wva.targets import DEFAULT, ScaleTarget, TargetStores, target_key

TARGET_INDEX: Final = "target"
_NAMED_OTHERS: Final = 5
"""How many competing VAs a message names; the rest is counted, so that a message stays readable."""


@dataclass(frozen=True, slots=True)
class CollectStores:
    """The caches of VAs, targets and pods, and of the scalers that bound a variant, if WVA watches them."""

    variant_autoscalings: Store[VariantAutoscaling]
    targets: TargetStores
    pods: Store[Pod]
    scalers: ScalerStores | None = None

    def add_indexes(self) -> None:
        """Add the indexes that targets, their pods and their rivals are looked up by; once, before the first object."""
        self.variant_autoscalings.add_index(TARGET_INDEX, _target_index)
        self.targets.add_indexes()
        if self.scalers is not None:
            self.scalers.add_indexes()


@dataclass(frozen=True, slots=True)
class TargetResolution:
    """The target (exactly when it is TARGET_FOUND), a message for people, and the first few competing VAs by name."""

    reason: TargetReason
    message: str
    target: ScaleTarget | None = None
    others: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
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
        named = tuple(key.name for key in first if key != own_key)[:_NAMED_OTHERS]
        listed = ", ".join(named) + (f" and {others - len(named)} more" if others > len(named) else "")
        message = (
            f"Scale target {name} is also claimed by VariantAutoscaling {listed}; "
            f"a {kind.resource.kind} can have only one"
        )
        return TargetResolution(TargetReason.TARGET_CONFLICT, message, others=named)
    return TargetResolution(TargetReason.TARGET_FOUND, f"Scale target {name} found", target)


def _target_index(va: VariantAutoscaling) -> Iterable[str]:
    """Index a VA by its target; a VA that is being deleted claims no target."""
    return () if va.metadata.deleting else (target_key(va),)
