"""Sized growth: as many replicas at once as bring the mean of both signals back to its trigger.

The number is the ratio that an HPA forms: the usage over the usage that the triggers leave (K - k and Q - q). The
larger ratio of the two signals counts. Replicas on their way count as idle supply. A cycle at most doubles the model,
because a full KV cache and a long queue show that there are too few replicas, but not by how many. Before the next
doubling the last one gets time to show an effect: time for the scaler and the pods, and a minute for the samples, which
look back that long.

The cheapest variants grow; the most expensive one shrinks, by one replica. Every number is looked at again in every
cycle: an unfinished change is kept only while the evidence still speaks for it. Growth needs fresh evidence from some
replicas, a shrink from all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from wva.decide.assessment import GROWTH_SPACING_SECONDS, ModelAssessment, Pressure, VariantAssessment
from wva.decide.balance import raised
from wva.decide.optimize.eligibility import ceiling, obstacle, obstacles, smallest_growth, starting
from wva.decide.optimize.move import Move, apply_all
from wva.decide.optimize.shrinking import settle_down
from wva.decide.wording import replicas
from wva.model.decision import NO_LIMIT, Decision, Limit, Reason
from wva.model.variant import VariantKey


@dataclass(frozen=True, slots=True)
class _Growth:
    """The new numbers of the variants that grow, why or why not, and the variants that a maximum limits."""

    reason: Reason
    words: str
    numbers: dict[VariantKey, int] = field(default_factory=dict)
    limits: dict[VariantKey, Limit] = field(default_factory=dict)


def sized(model: ModelAssessment, drafts: tuple[Decision, ...], *, most: int | None = None) -> tuple[Decision, ...]:
    """Return the drafts with the numbers that the model should have. The drafts are in the order of its variants.

    ``most`` is how many replicas one cycle may add, None for as many as there are; 1 is the one-step optimizer.
    """
    wish = model.growth_wish()
    if wish is None:
        return apply_all(drafts, settle_down(model))
    growth = _sized_growth(model, wish, model.level if most is None else most)
    return apply_all(drafts, _moves(model, wish, growth))


def _moves(model: ModelAssessment, wish: str, growth: _Growth) -> list[Move]:
    moves = [_move(variant, growth, wish) for variant in model.variants]
    limits = [growth.limits.get(variant.key, NO_LIMIT) for variant in model.variants]
    return [replace(move, limit=limit) for move, limit in zip(moves, limits, strict=True)]


def _sized_growth(model: ModelAssessment, wish: str, most: int) -> _Growth:
    early = _too_early(model, wish)
    if early is not None:
        return early
    eligible = [variant for variant in model.variants if obstacle(variant) is None]
    pending = [variant for variant in model.variants if starting(variant)]
    missing = min(model.shortage(), most)
    numbers = _placed(eligible or pending, missing)
    placed = sum(numbers[variant.key] - variant.level for variant in model.variants if variant.key in numbers)
    limits = ceiling(model.variants, numbers, missing - placed)
    if not numbers:
        return _nobody(model, wish, limits)
    return _Growth(
        Reason.SIBLING_GROWS, f"{wish}; {replicas(missing)} more, {_choice(model, numbers)}", numbers, limits
    )


def _too_early(model: ModelAssessment, wish: str) -> _Growth | None:
    """Return why no more replicas are asked for although the model wishes for some; None when they are."""
    suffices = _pending_suffices(model, wish)
    if suffices is not None:
        return suffices
    youngest = model.in_flight_seconds
    if youngest < GROWTH_SPACING_SECONDS:
        words = f"{wish}; {replicas(model.in_flight)} asked for or ready {youngest:.0f} s ago get time to show"
        return _Growth(Reason.GROWTH_SETTLING, words)
    settling = _settling(model, wish)
    return None if settling is None else _Growth(Reason.GROWTH_SETTLING, settling)


def _settling(model: ModelAssessment, wish: str) -> str | None:
    """Return in words why what is measured is about a load that has been answered, None when it is not."""
    newest, history = model.newest, model.history
    if newest is not None and not history.filling and newest.growth_wish(model.policy) is None:
        return f"{wish}, but that was before the newest {replicas(newest.reporting)} served, and those have spare"
    if history.pressure is Pressure.FALLS:
        return f"{wish}, but less than in the cycle before: what has piled up is being worked off"
    if history.pressure is Pressure.LASTS and (newest is not None or history.filling):
        return f"{wish}, but no more than before the newest replicas served"
    return None


def _pending_suffices(model: ModelAssessment, wish: str) -> _Growth | None:
    if not model.coming or not model.coming_suffice:
        return None
    return _Growth(Reason.PENDING_SUFFICES, f"{wish}, but {replicas(model.coming)} on the way would be enough")


def _placed(candidates: Sequence[VariantAssessment], count: int) -> dict[VariantKey, int]:
    """Return new numbers that add ``count`` replicas, each on the cheapest candidate that has room.

    Of several at the same cost the one with fewest replicas is next, so that equal variants stay equal. A step that
    the scaler would ignore is enlarged to the smallest one that it does not.
    """
    placed: dict[VariantKey, int] = {}
    for _, equal in groupby(sorted(candidates, key=lambda variant: variant.cost), key=lambda variant: variant.cost):
        variants = sorted(equal, key=lambda variant: (*(-room for room in variant.room), variant.key))
        levels = {variant.key: variant.level for variant in variants}
        bounds = {variant.key: variant.progress.variant.bounds.maximum for variant in variants}
        most = {key: maximum for key, maximum in bounds.items() if maximum is not None}
        grown = raised(levels, count, ties=list(levels), most=most)
        count -= sum(grown.values()) - sum(levels.values())
        placed |= {
            variant.key: max(grown[variant.key], smallest_growth(variant))
            for variant in variants
            if grown[variant.key] > variant.level
        }
    return placed


def _choice(model: ModelAssessment, numbers: dict[VariantKey, int]) -> str:
    growing = [variant for variant in model.variants if variant.key in numbers]
    pending = any(starting(variant) for variant in growing)
    which = "the only variants left" if pending else "cheapest variant without pending replicas"
    names = ", ".join(f"{variant.key.name} (cost {variant.cost:g})" for variant in growing)
    return f"{which}: {names}"


def _nobody(model: ModelAssessment, wish: str, limits: dict[VariantKey, Limit]) -> _Growth:
    return _Growth(Reason.NO_CANDIDATE, f"{wish}, but no variant can grow ({obstacles(model)})", limits=limits)


def _move(variant: VariantAssessment, growth: _Growth, wish: str) -> Move:
    progress = variant.progress
    if variant.key in growth.numbers:
        return Move(Reason.SCALE_UP, growth.words, growth.numbers[variant.key])
    if progress.outstanding:
        words = f"{wish}, so the unfinished shrink to {progress.base} is withdrawn"
        return Move(Reason.SHRINK_WITHDRAWN, words, max(progress.floor, progress.current))
    if progress.in_flight and growth.reason is not Reason.NO_CANDIDATE:
        return Move(Reason.REPLICAS_PENDING, f"{replicas(progress.in_flight)} pending; {growth.words}")
    return Move(growth.reason, growth.words)
