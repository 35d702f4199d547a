"""HYBRID: the saturation analyzer and the model-based optimizer both have a number; one is published. No numpy.

Saturation may veto a shrink and force growth: what it sees has happened. The model may grow earlier, and may shrink
only what saturation permits as well. So the larger number counts, within the bounds and the budget. No opinion of the
model leaves the number of the saturation analyzer alone; it is never taken for 0 (optimizer.md 6.4, and 8.1, item 17).
"""

from __future__ import annotations

from typing import Final

from wva.model.decision import Decision, Reason
from wva.model.queueing import VariantOpinion
from wva.model.variant import Bounds

STAGE: Final = "arbitrate"
PREFIX: Final = "Hybrid mode: "


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
        return _raised(decision, opinion, bounds.clamp(_within(model, current, saturation, most)))
    if model == saturation:
        return decision.noted(STAGE, f"{PREFIX}model and saturation agree on {model}")
    words = f"model-based {model} ({opinion.words}), saturation {saturation}"
    forced = saturation > max(current, decision.previous or 0)
    if forced or model < current:
        why = "scale-up needed" if forced else "scale-down of this size not permitted"
        message = f"{PREFIX}saturation override: {why}; {words}; {decision.message}"
        reason = decision.reason if decision.held else Reason.SAFETY_OVERRIDE
        return decision.with_step(STAGE, reason, message, saturation)
    return decision.noted(STAGE, f"{PREFIX}{words}")


def _raised(decision: Decision, opinion: VariantOpinion, allowed: int) -> Decision:
    """Return the decision with the model's larger number, as far as it is allowed."""
    saturation, current = decision.desired, decision.current
    if allowed <= saturation:
        return decision.noted(STAGE, f"{PREFIX}model-based {opinion.desired} is out of reach ({opinion.words})")
    if allowed > current:
        words = f"scale-up to {allowed}"
    elif allowed == current:
        words = f"no scale-down to {saturation}"
    else:
        words = f"scale-down to {allowed} only, not to {saturation}"
    return decision.with_step(
        STAGE, Reason.MODEL_BASED, f"{PREFIX}model-based {words}: {opinion.words}; {decision.message}", allowed
    )


def _within(model: int, current: int, saturation: int, most: int | None) -> int:
    return model if most is None else min(model, max(most, current, saturation))
