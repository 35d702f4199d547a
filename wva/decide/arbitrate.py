"""HYBRID: the saturation analyzer and the model-based optimizer both have a number; one is published. No numpy.

Saturation may veto a shrink and force growth, because it sees what has happened. The model may grow earlier, and may
shrink only what saturation permits as well. So the larger number counts, within the bounds and the budget. If the model
has no opinion, the number of the saturation analyzer stays. No opinion is never taken for 0.
"""

from __future__ import annotations

from typing import Final

from wva.model.decision import NO_LIMIT, Decision, Limit, Reason
from wva.model.queueing import VariantOpinion
from wva.model.variant import Bounds

STAGE: Final = "arbitrate"
PREFIX: Final = "Hybrid mode: "
BUDGET: Final = "the GPU budget"


def arbitrate(
    decision: Decision, opinion: VariantOpinion | None, *, bounds: Bounds, most: int | None = None
) -> Decision:
    """Return the saturation analyzer's decision after the model was heard.

    ``most`` is the largest number that the budget allows, None without a budget; it never cuts below the replicas that
    exist, nor below what saturation decided.
    """
    model = None if opinion is None else opinion.desired
    if opinion is None or model is None:
        why = "no opinion" if opinion is None else opinion.words
        return decision.noted(STAGE, f"{PREFIX}the model has no opinion ({why})")
    saturation, current = decision.desired, decision.current
    if model > saturation:
        return _raised(decision, opinion, bounds=bounds, most=most)
    limit = _denial(opinion)
    if model == saturation:
        return decision.noted(STAGE, f"{PREFIX}model and saturation agree on {model}", limit=limit)
    words = f"model-based {model} ({opinion.words}), saturation {saturation}"
    forced = saturation > max(current, decision.previous or 0)
    if forced or model < current:
        why = "scale-up needed" if forced else "scale-down of this size not permitted"
        message = f"{PREFIX}saturation override: {why}; {words}; {decision.message}"
        reason = decision.reason if decision.held else Reason.SAFETY_OVERRIDE
        return decision.with_step(STAGE, reason, message, saturation, limit=limit)
    return decision.noted(STAGE, f"{PREFIX}{words}", limit=limit)


def _raised(decision: Decision, opinion: VariantOpinion, *, bounds: Bounds, most: int | None) -> Decision:
    """Return the decision with the model's larger number, as far as it is allowed."""
    saturation, current, model = decision.desired, decision.current, opinion.desired or 0
    within = model if most is None else min(model, max(most, current, saturation))
    allowed = bounds.clamp(within)
    limit = _denial(opinion)
    if allowed < model:
        limit = Limit(BUDGET if allowed == within else bounds.ceiling_origin, model - allowed + limit.fewer)
    if allowed <= saturation:
        note = f"{PREFIX}model-based {model} is out of reach ({opinion.words})"
        return decision.noted(STAGE, note, limit=limit)
    if allowed > current:
        words = f"scale-up to {allowed}"
    elif allowed == current:
        words = f"no scale-down to {saturation}"
    else:
        words = f"scale-down to {allowed} only, not to {saturation}"
    message = f"{PREFIX}model-based {words}: {opinion.words}; {decision.message}"
    return decision.with_step(STAGE, Reason.MODEL_BASED, message, allowed, limit=limit)


def _denial(opinion: VariantOpinion) -> Limit:
    """Return who kept the model's own number from being larger."""
    return Limit(opinion.limited_by, opinion.denied) if opinion.denied else NO_LIMIT
