"""The one-step optimizer: in a cycle at most one variant of a model grows or shrinks, by one replica.

The cheapest variant grows, the dearest shrinks. Every number is looked at again in every cycle: an unfinished change is
kept only while the evidence still speaks for it (engine.md 10, rows 3 and 5). Growth needs fresh evidence from some
replicas, shrinking from all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wva.decide.assessment import ModelAssessment, VariantAssessment
from wva.decide.optimize.move import Move
from wva.decide.optimize.shrinking import settle_down
from wva.decide.wording import replicas
from wva.model.decision import Decision, Reason, Source


@dataclass(frozen=True, slots=True)
class _Growth:
    """Who grows (None: nobody), and why or why not."""

    grower: VariantAssessment | None
    reason: Reason
    words: str


def optimize(model: ModelAssessment, drafts: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """Return the drafts with the numbers that the model should have. The drafts are in the order of its variants."""
    wish = model.growth_wish()
    moves = settle_down(model) if wish is None else _grow(model, wish)
    return tuple(_apply(draft, move) for draft, move in zip(drafts, moves, strict=True))


def _apply(draft: Decision, move: Move) -> Decision:
    desired = draft.desired if move.desired is None else move.desired
    decision = draft.with_step("optimize", move.reason, move.words, desired)
    if not decision.held:
        return decision
    return replace(decision, source=Source.CURRENT_REPLICAS if draft.previous is None else Source.HELD)


def _grow(model: ModelAssessment, wish: str) -> list[Move]:
    growth = _growth(model, wish)
    return [_grown(variant, growth, wish) for variant in model.variants]


def _growth(model: ModelAssessment, wish: str) -> _Growth:
    coming = model.in_flight
    if coming and not model.saturated_with_idle(coming):
        words = f"{wish}, but {replicas(coming)} on the way would be enough"
        return _Growth(None, Reason.PENDING_SUFFICES, words)
    candidates = [variant for variant in model.variants if _obstacle(variant) is None]
    if not candidates:
        obstacles = "; ".join(f"{variant.key.name}: {_obstacle(variant)}" for variant in model.variants)
        return _Growth(None, Reason.NO_CANDIDATE, f"{wish}, but no variant can grow ({obstacles})")
    grower = min(candidates, key=lambda variant: (variant.cost, *(-room for room in variant.room), variant.key))
    words = f"{wish}; cheapest variant without pending replicas: {grower.key.name} (cost {grower.cost:g})"
    return _Growth(grower, Reason.SIBLING_GROWS, words)


def _grown(variant: VariantAssessment, growth: _Growth, wish: str) -> Move:
    progress = variant.progress
    if variant is growth.grower:
        return Move(Reason.SCALE_UP, growth.words, max(progress.base, progress.current) + 1)
    if progress.outstanding:
        words = f"{wish}, so the unfinished shrink to {progress.base} is withdrawn"
        return Move(Reason.SHRINK_WITHDRAWN, words, max(1, progress.current))
    if progress.in_flight and growth.reason is not Reason.NO_CANDIDATE:
        return Move(Reason.REPLICAS_PENDING, f"{replicas(progress.in_flight)} pending; {growth.words}")
    return Move(growth.reason, growth.words)


def _obstacle(variant: VariantAssessment) -> str | None:
    """Return in words what keeps a variant from growing."""
    progress, maximum = variant.progress, variant.progress.variant.bounds.maximum
    if progress.waiting:
        return f"{replicas(progress.waiting)} {'stuck' if progress.overdue else 'pending'}"
    if progress.silent:
        return f"{replicas(progress.silent)} new and not reporting yet"
    if maximum is not None and max(progress.base, progress.current) >= maximum:
        return f"at the maximum {maximum}"
    return None
