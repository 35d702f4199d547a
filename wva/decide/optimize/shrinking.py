"""The half of the one-step optimizer for a model that does not want to grow.

Unfinished changes are confirmed or withdrawn, and if nothing is on its way one variant may shrink. Every step that
takes a replica away needs both signals fresh from every replica of the model; without that the numbers stay as they
are.
"""

from __future__ import annotations

from dataclasses import dataclass

from wva.decide.assessment import ModelAssessment, VariantAssessment
from wva.decide.optimize.move import Move
from wva.decide.wording import replicas
from wva.model.decision import Reason


@dataclass(frozen=True, slots=True)
class _Shrink:
    """The variant that shrinks, if any, and what holds for the others."""

    shrinker: VariantAssessment | None
    reason: Reason
    words: str


def settle_down(model: ModelAssessment) -> list[Move]:
    """Return the moves of a model that has enough spare, in the order of its variants."""
    shrink = _shrink(model)
    return [_move(variant, model, shrink) for variant in model.variants]


def _move(variant: VariantAssessment, model: ModelAssessment, shrink: _Shrink) -> Move:
    progress = variant.progress
    if progress.base > progress.current and (withdrawn := _withdrawn_growth(variant, model)):
        return withdrawn
    if model.unread:
        return _incomplete(model)
    if progress.outstanding:
        return _unfinished_shrink(variant, model)
    return _settled(variant, shrink)


def _settled(variant: VariantAssessment, shrink: _Shrink) -> Move:
    progress = variant.progress
    if variant is shrink.shrinker:
        return Move(Reason.SCALE_DOWN, shrink.words, progress.base - _step(variant))
    if progress.waiting or progress.silent:
        return _pending(variant)
    if shrink.reason is Reason.SHRINK_UNSAFE and not _can_shrink(variant):
        return Move(Reason.STEADY, f"enough spare; {_floor(variant)}")
    return Move(shrink.reason, shrink.words)


def _incomplete(model: ModelAssessment) -> Move:
    gaps = "; ".join(f"{entry.key.name}: {entry.verdict.message}" for entry in model.unread)
    return Move(Reason.METRICS_INCOMPLETE, f"nothing shrinks on incomplete metrics ({gaps})")


def _withdrawn_growth(variant: VariantAssessment, model: ModelAssessment) -> Move | None:
    """Take back an unfinished growth that came to nothing, or that the model could even do with one replica less than.

    What the bounds force is not taken back.
    """
    progress = variant.progress
    target = progress.variant.bounds.clamp(max(progress.floor, progress.current))
    if target == progress.base:
        return None
    if progress.overdue:
        words = f"{replicas(progress.base)} not reached in time and no longer needed"
    elif model.complete and model.shrink_objection(1) is None:
        words = f"{replicas(progress.base)} no longer needed: fewer than now would do"
    else:
        return None
    return Move(Reason.GROWTH_WITHDRAWN, words, target)


def _unfinished_shrink(variant: VariantAssessment, model: ModelAssessment) -> Move:
    progress = variant.progress
    if not model.complete:
        words = f"{replicas(progress.outstanding)} still to go; held until Ready pods and replicas agree"
        return Move(Reason.SHRINK_UNFINISHED, words)
    objection = model.shrink_objection(_outstanding(model))
    if objection is None:
        return Move(
            Reason.SHRINK_UNFINISHED, f"{replicas(progress.outstanding)} still to go; the others carry the load"
        )
    words = f"the unfinished shrink to {progress.base} is withdrawn: {objection}"
    return Move(Reason.SHRINK_WITHDRAWN, words, max(progress.floor, progress.current))


def _pending(variant: VariantAssessment) -> Move:
    progress = variant.progress
    if progress.overdue:
        words = f"{replicas(progress.waiting)} not ready within the transition deadline, no longer counted on"
    elif progress.waiting:
        words = f"{replicas(progress.waiting)} pending"
    else:
        words = f"{replicas(progress.silent)} new and not reporting yet"
    return Move(Reason.REPLICAS_PENDING, words)


def _shrink(model: ModelAssessment) -> _Shrink:
    """Choose the variant that shrinks, if one may."""
    waiting = _waiting(model)
    if waiting is not None:
        return waiting
    candidates = [variant for variant in model.variants if _can_shrink(variant)]
    if not candidates:
        return _Shrink(None, Reason.STEADY, "enough spare, and no variant can shrink")
    candidates.sort(key=_shrink_order)
    objections = []
    for shrinker in candidates:
        removed = _outstanding(model) + _step(shrinker)
        objection = model.start_objection(removed)
        if objection is None:
            choice = f"dearest variant that can shrink: {shrinker.key.name} (cost {shrinker.cost:g})"
            words = f"{replicas(model.ready - removed)} can carry the load; {choice}"
            return _Shrink(shrinker, Reason.SIBLING_SHRINKS, words)
        objections.append(objection)
    return _Shrink(None, Reason.SHRINK_UNSAFE, objections[0])


def _waiting(model: ModelAssessment) -> _Shrink | None:
    """Return what has to end before anything may shrink."""
    growing = [variant.key.name for variant in model.variants if variant.progress.in_flight]
    if growing:
        words = f"nothing shrinks while replicas of {', '.join(growing)} are pending"
        return _Shrink(None, Reason.SIBLING_GROWS, words)
    shrinking = [
        variant.key.name for variant in model.variants if variant.progress.outstanding and not variant.progress.overdue
    ]
    if shrinking:
        return _Shrink(None, Reason.SIBLING_SHRINKS, f"waits for the shrink of {', '.join(shrinking)}")
    if not model.complete:
        return _Shrink(None, Reason.STEADY, "enough spare; nothing shrinks until Ready pods and replicas agree")
    return None


def _outstanding(model: ModelAssessment) -> int:
    return sum(variant.progress.outstanding for variant in model.variants)


def _can_shrink(variant: VariantAssessment) -> bool:
    progress = variant.progress
    return progress.base == progress.current and progress.base - _step(variant) >= _minimum(variant)


def _shrink_order(variant: VariantAssessment) -> tuple[object, ...]:
    """Sort the dearest first, of those the one with replicas that do not serve, then the largest."""
    return -variant.cost, -variant.progress.waiting, -variant.level, *variant.room, variant.key


def _step(variant: VariantAssessment) -> int:
    """Return the fewest replicas that can go: one, or as many as the scaler needs to see to act at all."""
    return variant.progress.variant.bounds.smallest_step(variant.progress.current)


def _minimum(variant: VariantAssessment) -> int:
    return max(1, variant.progress.variant.bounds.minimum or 1)


def _floor(variant: VariantAssessment) -> str:
    floor = f"it cannot go below {_minimum(variant)}"
    step = _step(variant)
    return floor if step == 1 else f"{floor}, and its scaler ignores a step of less than {step}"
