"""Model-based: the growth of a model is what the queueing model has found for all models together. No numpy.

The numbers come from the solver (``decide.queueing.fleet``), which has seen every model and the GPUs that there are.
Where a limit allows a variant less than it found, what is denied goes to the next variant by the cost-aware rule, and
so it does where those that it chose cannot grow. A shrink follows the cost-aware rule, which may take a variant to
zero.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from wva.decide.optimize.by_capacity import Denials, Gap, close, cost_aware
from wva.decide.optimize.cost_aware import Candidate
from wva.model.decision import Decision, Limit
from wva.model.queueing import ModelOpinion

RULE: Final = "model-based"


def model_based(gap: Gap, drafts: tuple[Decision, ...], opinion: ModelOpinion) -> tuple[Decision, ...]:
    """Return the drafts with the numbers of the model-based optimizer."""
    if not gap.growing:
        return close(gap, drafts, gap.shrunk(), rule=RULE)
    before = gap.candidates()
    after = [_grown(candidate, opinion) for candidate in before]
    denials = _denials(opinion)
    if any(candidate.room < 0 for candidate in after) or not (denials or after != list(before)):
        return cost_aware(gap, drafts)
    return close(gap, drafts, after, rule=RULE, denials=denials)


def _grown(candidate: Candidate, opinion: ModelOpinion) -> Candidate:
    found = opinion.of(candidate.key)
    wanted = None if found is None else found.desired
    return candidate if wanted is None or wanted <= candidate.number else replace(candidate, number=wanted)


def _denials(opinion: ModelOpinion) -> Denials:
    return {each.key: Limit(each.limited_by, each.denied) for each in opinion.variants if each.denied}
