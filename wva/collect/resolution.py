"""What a VariantAutoscaling scales, or why nothing.

One rule for everyone who asks: the reconciler writes it into the ``TargetResolved`` condition, the collector leaves out
variants without it. Two VAs on one target would fight over its replicas through two scalers, so neither is accepted
and each names the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wva.api.variantautoscaling import TargetReason, VariantAutoscaling
from wva.collect.stores import TARGET_INDEX
from wva.kube.cache import Store
from wva.targets import DEFAULT, ScaleTarget, TargetStores, target_key

_NAMED_OTHERS: Final = 5
"""How many competing VAs a message names; the rest is counted, so that a message stays readable."""


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
    """Resolve the scale target of a VA from the caches.

    The store of VAs must have ``TARGET_INDEX`` (CollectStores.add_indexes).
    """
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
    others, more = _competitors(va, vas)
    if others:
        listed = ", ".join(others) + (f" and {more} more" if more else "")
        message = (
            f"Scale target {name} is also claimed by VariantAutoscaling {listed}; "
            f"a {kind.resource.kind} can have only one"
        )
        return TargetResolution(TargetReason.TARGET_CONFLICT, message, others=others)
    return TargetResolution(TargetReason.TARGET_FOUND, f"Scale target {name} found", target)


def _competitors(va: VariantAutoscaling, vas: Store[VariantAutoscaling]) -> tuple[tuple[str, ...], int]:
    """Return the names of the first few other VAs on the same target, and how many more there are.

    A tenant may write thousands for one target, and each of them asks.
    """
    target = target_key(va)
    known = vas.get(va.metadata.key)
    own = known is not None and not known.metadata.deleting and target_key(known) == target
    others = vas.count_by_index(TARGET_INDEX, target) - own
    if not others:
        return (), 0
    first = vas.first_by_index(TARGET_INDEX, target, _NAMED_OTHERS + 1)
    named = tuple(key.name for key in first if key != va.metadata.key)[:_NAMED_OTHERS]
    return named, others - len(named)
