"""Who may grow: what the bounds, the scheduler and replicas that do not serve yet say of a variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from wva.decide.assessment import ModelAssessment, VariantAssessment
from wva.decide.wording import replicas
from wva.model.decision import Limit
from wva.model.variant import VariantKey

UNKNOWN_CAPACITY: Final = "what one of its replicas carries is not known"
_MOST_PER_SERVING: Final = 4
"""A variant with replicas on their way has at most this many, for each one that serves."""


def obstacle(variant: VariantAssessment) -> str | None:
    """Return in words what keeps a variant from growing, None for nothing; replicas on their way do."""
    progress = variant.progress
    placeless = unplaced(variant)
    if placeless is not None:
        return placeless
    if progress.waiting:
        return f"{replicas(progress.waiting)} {'stuck' if progress.overdue else 'pending'}"
    if progress.silent:
        return f"{replicas(progress.silent)} new and not reporting yet"
    return limit(variant)


def lasting_obstacle(variant: VariantAssessment) -> str | None:
    """Return in words what keeps a variant from growing where replicas on their way are supply and no obstacle."""
    progress = variant.progress
    if progress.waiting and progress.overdue:
        return f"{replicas(progress.waiting)} stuck"
    return unplaced(variant) or limit(variant)


def unplaced(variant: VariantAssessment) -> str | None:
    """Return in words how many pods find no node, None when all do."""
    count = variant.progress.variant.unschedulable_pods
    return f"{count} {'pod' if count == 1 else 'pods'} without a node to run on" if count else None


def starting(variant: VariantAssessment) -> bool:
    """Tell whether replicas that do not serve yet are all that keeps a variant from growing.

    They are no reason to leave a model short that has nothing else. But a variant whose new replicas never start gets
    no more than a few times what serves.
    """
    progress = variant.progress
    if unplaced(variant) or limit(variant) is not None or not progress.waiting + progress.silent:
        return False
    if progress.overdue and progress.base > progress.current:
        return False  # its scaler does not even create what has been asked for
    return variant.level < _MOST_PER_SERVING * progress.ready


def has_room(variant: VariantAssessment, level: int) -> bool:
    """Tell whether a variant that has come to ``level`` replicas may have one more."""
    maximum = variant.progress.variant.bounds.maximum
    return maximum is None or level < maximum


def smallest_growth(variant: VariantAssessment) -> int:
    """Return the smallest number above the present replicas that the scaler acts on."""
    current = variant.progress.current
    return current + variant.progress.variant.bounds.smallest_step(current)


def limit(variant: VariantAssessment) -> str | None:
    """Return in words why the bounds leave no step that the scaler would take."""
    bounds = variant.progress.variant.bounds
    maximum = bounds.maximum
    if maximum is None or (variant.level < maximum and smallest_growth(variant) <= maximum):
        return None
    if variant.level >= maximum:
        return f"at the maximum {maximum}"
    return f"its scaler ignores a step of {bounds.tolerance:.0%} or less, and its maximum {maximum} is no further away"


def ceiling(
    variants: Iterable[VariantAssessment], numbers: Mapping[VariantKey, int], missing: int
) -> dict[VariantKey, Limit]:
    """Return who keeps the cheapest variant at its maximum from replicas that could be placed nowhere, if there is one.

    ``numbers`` are the new ones of those that grow.
    """
    capped = [variant for variant in variants if not has_room(variant, numbers.get(variant.key, variant.level))]
    if missing <= 0 or not capped:
        return {}
    cheapest = min(capped, key=lambda variant: (variant.cost, variant.key))
    return {cheapest.key: Limit(cheapest.progress.variant.bounds.maximum_origin, missing)}


def obstacles(model: ModelAssessment) -> str:
    """Return what keeps each variant of a model that cannot grow from growing, for people.

    A variant that the bounds, the scheduler and its replicas leave free grows unless its capacity is unknown.
    """
    return "; ".join(f"{variant.key.name}: {obstacle(variant) or UNKNOWN_CAPACITY}" for variant in model.variants)
