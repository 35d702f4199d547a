"""What an optimizer does to one variant: a number, or none to keep it, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wva.model.decision import NO_LIMIT, Decision, Limit, Reason, Source


@dataclass(frozen=True, slots=True)
class Move:
    """``desired`` None keeps the number as it is; ``limit`` says who kept it from being larger."""

    reason: Reason
    words: str
    desired: int | None = None
    limit: Limit = NO_LIMIT


def apply_all(drafts: tuple[Decision, ...], moves: Sequence[Move]) -> tuple[Decision, ...]:
    """Return the drafts of a model with the moves of its variants, in the same order."""
    return tuple(_apply(draft, move) for draft, move in zip(drafts, moves, strict=True))


def _apply(draft: Decision, move: Move) -> Decision:
    desired = draft.desired if move.desired is None else move.desired
    decision = draft.with_step("optimize", move.reason, move.words, desired, limit=move.limit)
    if not decision.held:
        return decision
    return replace(decision, source=Source.CURRENT_REPLICAS if draft.previous is None else Source.HELD)
