"""From capacity to replicas: the missing or spare capacity of a model becomes the numbers of its variants.

``Gap`` is one model with its analysis. The cost-aware rule closes it alone, or the growth comes from sharing scarce
GPUs among all models (greedy by score). The rest is the same for both: unfinished changes are confirmed or withdrawn,
equal variants stay equal, and a step that the scaler would ignore is enlarged or left out. Replicas on their way are
supply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from wva.decide.amounts import rounded_up
from wva.decide.assessment import ModelAssessment, VariantAssessment
from wva.decide.optimize.cost_aware import Candidate, grow, shrink, spread
from wva.decide.optimize.eligibility import ceiling, lasting_obstacle, obstacles, smallest_growth, starting
from wva.decide.optimize.move import Move, apply_all
from wva.decide.wording import replicas
from wva.model.capacity import ModelCapacity
from wva.model.decision import Decision, Limit, Reason
from wva.model.variant import VariantKey

_ROUNDING = 1e-9

Denials = Mapping[VariantKey, Limit]
"""Who keeps variants from what they would get if there were GPUs enough, and by how many replicas."""

NO_DENIALS: Final[Denials] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Gap:
    """One model: how its variants stand, and what it needs or can spare."""

    model: ModelAssessment
    capacity: ModelCapacity

    @property
    def growing(self) -> bool:
        """Whether something is missing."""
        return self.capacity.required > 0

    def candidates(self) -> tuple[Candidate, ...]:
        """Return the variants that may grow; those whose replicas are stuck only when there are no others."""
        able = [variant for variant in self.model.variants if lasting_obstacle(variant) is None]
        able = able or [variant for variant in self.model.variants if starting(variant)]
        return tuple(self._candidate(variant, variant.level) for variant in able)

    def grown(self) -> tuple[Candidate, ...]:
        """Return the candidates with the numbers that close the gap at the lowest cost."""
        before = self.candidates()
        after = grow(before, self.capacity.required, limit=self.capacity.growth_limit)
        return tuple(spread(before, after))

    def shrunk(self) -> tuple[Candidate, ...]:
        """Return the settled variants with the numbers that the spare capacity allows."""
        settled = [variant for variant in self.model.variants if variant.progress.base == variant.progress.current]
        before = [self._candidate(variant, variant.progress.base) for variant in settled]
        limit = self.capacity.shrink_limit
        going = sum(variant.progress.outstanding for variant in self.model.variants)
        allowed = None if limit is None else max(0, limit - going)
        after = spread(before, shrink(before, self.capacity.spare - self.going, limit=allowed))
        return tuple(
            new if old.number - new.number >= old.step else old for old, new in zip(before, after, strict=True)
        )

    @property
    def going(self) -> float:
        """The capacity of replicas that are to go but still serve."""
        capacities = self.per_replica()
        return sum(variant.progress.outstanding * capacities.get(variant.key, 0.0) for variant in self.model.variants)

    def per_replica(self) -> dict[VariantKey, float]:
        """Return what a replica of each variant carries, as far as it is known."""
        return {variant.key: variant.per_replica for variant in self.capacity.variants}

    def _candidate(self, variant: VariantAssessment, number: int) -> Candidate:
        static = variant.progress.variant
        bounds = static.bounds
        costs = {each.key: each.cost for each in self.capacity.variants}
        return Candidate(
            key=variant.key,
            cost=costs.get(variant.key, variant.cost),
            per_replica=self.per_replica().get(variant.key, 0.0),
            number=number,
            minimum=0 if bounds.minimum == 0 else max(1, bounds.minimum or 1),
            maximum=bounds.maximum,
            accelerator=static.accelerator or static.status_accelerator,
            gpus_per_replica=max(1, static.gpus_per_replica),
            step=bounds.smallest_step(variant.progress.current),
        )


def cost_aware(gap: Gap, drafts: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """Return the drafts with the numbers of a model that is decided on alone."""
    return close(gap, drafts, gap.grown() if gap.growing else gap.shrunk(), rule="cost-aware")


def close(
    gap: Gap,
    drafts: tuple[Decision, ...],
    candidates: Sequence[Candidate],
    *,
    rule: str,
    denials: Denials = NO_DENIALS,
) -> tuple[Decision, ...]:
    """Return the drafts with the candidates' numbers, and what holds for the other variants."""
    numbers = {candidate.key: candidate.number for candidate in candidates}
    if not gap.growing:
        return apply_all(drafts, _other_moves(gap, numbers, rule))
    moves = _growth_moves(gap, numbers, rule, denials)
    bounded = NO_DENIALS if denials else ceiling(gap.model.variants, numbers, _unplaced(gap, candidates))
    return apply_all(
        drafts,
        [
            replace(move, limit=bounded[draft.key]) if draft.key in bounded else _denied(move, denials.get(draft.key))
            for draft, move in zip(drafts, moves, strict=True)
        ],
    )


def _unplaced(gap: Gap, candidates: Sequence[Candidate]) -> int:
    """Return how many replicas more of the cheapest variant would cover what is still missing, 0 if nothing is."""
    capacities = gap.per_replica()
    levels = {variant.key: variant.level for variant in gap.model.variants}
    added = math.fsum((each.number - levels[each.key]) * each.per_replica for each in candidates)
    left = gap.capacity.required - added
    known = [variant for variant in gap.model.variants if capacities.get(variant.key, 0.0) > 0]
    if not known or left <= _ROUNDING * gap.capacity.required or gap.capacity.growth_limit is not None:
        return 0
    cheapest = min(known, key=lambda variant: (variant.cost, variant.key))
    return rounded_up(left / capacities[cheapest.key] - _ROUNDING)


def _denied(move: Move, limit: Limit | None) -> Move:
    """Return a move that GPUs kept from being larger; a variant that gets nothing is there for that reason."""
    if limit is None:
        return move
    words = f"{replicas(limit.fewer)} fewer than wanted ({limit.by}); {move.words}"
    reason = Reason.GPU_LIMITED if move.reason in {Reason.SIBLING_GROWS, Reason.NO_CANDIDATE} else move.reason
    return replace(move, words=words, reason=reason, limit=limit)


def _growth_moves(gap: Gap, numbers: Mapping[VariantKey, int], rule: str, denials: Denials) -> list[Move]:
    capacity = gap.capacity
    growing = [variant for variant in gap.model.variants if numbers.get(variant.key, 0) > variant.level]
    wish = f"{capacity.required:.4g} {capacity.unit} missing ({capacity.summary})"
    if growing:
        names = ", ".join(f"{variant.key.name} +{numbers[variant.key] - variant.level}" for variant in growing)
        words, reason = f"{wish}; {rule}: {names}", Reason.SIBLING_GROWS
    elif denials:
        words, reason = f"{wish}, but {rule} finds no GPUs for it", Reason.NO_CANDIDATE
    else:
        words, reason = f"{wish}, but no variant can grow ({obstacles(gap.model)})", Reason.NO_CANDIDATE
    return [_growth_move(variant, numbers, words, reason) for variant in gap.model.variants]


def _growth_move(variant: VariantAssessment, numbers: Mapping[VariantKey, int], words: str, reason: Reason) -> Move:
    progress, number = variant.progress, numbers.get(variant.key, 0)
    if number > variant.level:
        return Move(Reason.SCALE_UP, words, max(number, smallest_growth(variant)))
    if progress.outstanding:
        back = f"{words}, so the unfinished shrink to {progress.base} is withdrawn"
        return Move(Reason.SHRINK_WITHDRAWN, back, max(progress.floor, progress.current))
    return Move(reason, words)


def _other_moves(gap: Gap, numbers: Mapping[VariantKey, int], rule: str) -> list[Move]:
    capacity = gap.capacity
    going = [variant for variant in gap.model.variants if variant.key in numbers and _less(variant, numbers)]
    words = f"{capacity.spare:.4g} {capacity.unit} to spare ({capacity.summary})"
    if going:
        names = ", ".join(f"{variant.key.name} -{variant.progress.base - numbers[variant.key]}" for variant in going)
        words = f"{words}; {rule}: {names}"
    return [_other_move(variant, gap, numbers, words if going else "") for variant in gap.model.variants]


def _less(variant: VariantAssessment, numbers: Mapping[VariantKey, int]) -> bool:
    return numbers.get(variant.key, variant.progress.base) < variant.progress.base


def _other_move(variant: VariantAssessment, gap: Gap, numbers: Mapping[VariantKey, int], shrinking: str) -> Move:
    """Return what a variant does while nothing is missing; ``shrinking`` names the variant that shrinks, if any."""
    progress = variant.progress
    if _less(variant, numbers):
        return Move(Reason.SCALE_DOWN, shrinking, numbers[variant.key])
    target = progress.variant.bounds.clamp(max(progress.floor, progress.current))
    if progress.overdue and target < progress.base:
        words = f"{replicas(progress.base)} not reached in time and no longer needed"
        return Move(Reason.GROWTH_WITHDRAWN, words, target)
    if gap.model.unread:
        return Move(Reason.METRICS_INCOMPLETE, f"nothing shrinks on incomplete metrics; {gap.capacity.objection}")
    if progress.outstanding:
        return _unfinished_shrink(variant, gap)
    if progress.waiting or progress.silent:
        return Move(Reason.REPLICAS_PENDING, f"{replicas(progress.waiting + progress.silent)} pending")
    return Move(Reason.SIBLING_SHRINKS, shrinking) if shrinking else Move(Reason.STEADY, _steady(gap))


def _unfinished_shrink(variant: VariantAssessment, gap: Gap) -> Move:
    progress = variant.progress
    if gap.capacity.objection or gap.capacity.spare >= gap.going - _ROUNDING:
        return Move(Reason.SHRINK_UNFINISHED, f"{replicas(progress.outstanding)} still to go")
    words = f"the unfinished shrink to {progress.base} is withdrawn: {gap.capacity.summary}"
    return Move(Reason.SHRINK_WITHDRAWN, words, max(progress.floor, progress.current))


def _steady(gap: Gap) -> str:
    objection = gap.capacity.objection
    return f"enough capacity; {objection or gap.capacity.summary}"
