"""Third stage: no number outside what the scaler of the target can reach (engine.md 10, row 1).

A number out of reach would never be reached, and the variant would stay unfinished for ever.
"""

from __future__ import annotations

from wva.model.decision import Decision, Reason
from wva.model.variant import Bounds


def enforce(decision: Decision, bounds: Bounds) -> Decision:
    """Return the decision with its number inside the bounds.

    A decision that was held for lack of evidence keeps its reason: that nothing was measured is the greater news.
    """
    allowed = bounds.clamp(decision.desired)
    if allowed == decision.desired:
        return decision.noted("enforce", "within bounds")
    limit = "maximum" if allowed < decision.desired else "minimum"
    words = f"{decision.desired} is {'above' if limit == 'maximum' else 'below'} the {limit} {allowed}"
    reason = decision.reason if decision.held else Reason.BOUNDED
    return decision.with_step("enforce", reason, f"{words} of the scaler; {decision.message}", allowed)
