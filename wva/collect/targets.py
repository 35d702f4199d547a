"""Which Deployment a VariantAutoscaling scales, or why none.

One rule for everyone who asks: the reconciler writes it into the ``TargetResolved`` condition, the collector leaves out
variants without it. Two VAs on one target would fight over its replicas through two scalers, so neither is accepted
and each names the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from wva.api.apps import Deployment
from wva.api.meta import Key
from wva.api.variantautoscaling import (
    SUPPORTED_TARGET_API_VERSION,
    SUPPORTED_TARGET_KIND,
    TargetReason,
    VariantAutoscaling,
)
from wva.collect.stores import TARGET_INDEX, target_key
from wva.kube.cache import Store


class TargetKind(StrEnum):
    """The outcome of a resolution."""

    FOUND = "found"
    NOT_FOUND = "not-found"
    CONFLICT = "conflict"
    UNSUPPORTED = "unsupported"


_REASONS: Final = {
    TargetKind.FOUND: TargetReason.TARGET_FOUND,
    TargetKind.NOT_FOUND: TargetReason.TARGET_NOT_FOUND,
    TargetKind.CONFLICT: TargetReason.TARGET_CONFLICT,
    TargetKind.UNSUPPORTED: TargetReason.TARGET_UNSUPPORTED,
}

_NAMED_OTHERS: Final = 5
"""How many competing VAs a message names; the rest is counted, so that a message stays readable."""


@dataclass(frozen=True, slots=True)
class TargetResolution:
    """The Deployment (exactly when FOUND), a message for people, and the names of the first few competing VAs."""

    kind: TargetKind
    message: str
    deployment: Deployment | None = None
    others: tuple[str, ...] = ()

    @property
    def reason(self) -> TargetReason:
        """The reason of the TargetResolved condition."""
        return _REASONS[self.kind]


def resolve(
    va: VariantAutoscaling, *, vas: Store[VariantAutoscaling], deployments: Store[Deployment]
) -> TargetResolution:
    """Resolve the scale target of a VA from the caches.

    The store of VAs must have ``TARGET_INDEX`` (CollectStores.add_indexes).
    """
    target = va.spec.scale_target_ref
    if not target.name:
        return TargetResolution(
            TargetKind.NOT_FOUND, "spec.scaleTargetRef.name is empty: it must name the Deployment to scale"
        )
    api_version = target.api_version or SUPPORTED_TARGET_API_VERSION
    if target.kind != SUPPORTED_TARGET_KIND or api_version != SUPPORTED_TARGET_API_VERSION:
        message = (
            f"Scale target {api_version} {target.kind} {target.name} is not supported: "
            f"only {SUPPORTED_TARGET_API_VERSION} {SUPPORTED_TARGET_KIND} is"
        )
        return TargetResolution(TargetKind.UNSUPPORTED, message)
    deployment = deployments.get(Key(va.metadata.namespace, target.name))
    if deployment is None or deployment.metadata.deleting:
        return TargetResolution(TargetKind.NOT_FOUND, f"Scale target Deployment {target.name} not found")
    others, more = _competitors(va, vas)
    if others:
        listed = ", ".join(others) + (f" and {more} more" if more else "")
        message = (
            f"Scale target Deployment {target.name} is also claimed by VariantAutoscaling {listed}; "
            "a Deployment can have only one"
        )
        return TargetResolution(TargetKind.CONFLICT, message, others=others)
    return TargetResolution(TargetKind.FOUND, f"Scale target Deployment {target.name} found", deployment)


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
