"""Growth that finds no GPUs goes to the next variant of its model: other GPUs may be free.

The optimizer knows no budget, so it would choose the cheapest variant again and again. If the limiter has cut a
variant, its model is decided on once more, with the granted number as the maximum of that variant. This repeats until
no variant is cut any further. The result has always gone through the limiter, over all models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from wva.decide.limit import STAGE
from wva.decide.model_cycle import ModelCycle, with_ceilings
from wva.model.decision import Decision, Reason
from wva.model.variant import ModelKey, VariantKey

Drafts = dict[ModelKey, tuple[Decision, ...]]
"""The decisions of each model before GPUs are counted, in the order of its variants."""

Cuts = dict[VariantKey, Decision]
"""The decisions as the limiter left them, of variants that it has cut."""


@dataclass(frozen=True, slots=True)
class Budgeting:
    """How models are decided on, and what the budget makes of it: decisions in the order of models and variants."""

    draft: Callable[[Sequence[ModelCycle]], Drafts]
    grant: Callable[[Drafts], tuple[Decision, ...]]


def overflow(
    models: Sequence[ModelCycle], drafts: Drafts, budgeting: Budgeting, *, decisions: tuple[Decision, ...]
) -> tuple[Decision, ...]:
    """Return the decisions within the budget; ``decisions`` are those that it has made of ``drafts``."""
    cut: Cuts = {}
    for _ in range(max((len(model.progresses) for model in models), default=0)):
        found = _cut(decisions, cut)
        if not found:
            break
        cut |= found
        ceilings = {key: decision.desired for key, decision in cut.items()}
        concerned = {decision.model for decision in found.values()}
        again = budgeting.draft([with_ceilings(model, ceilings) for model in models if model.key in concerned])
        retried = {key: _merged(drafts[key], retry, cut) for key, retry in again.items()}
        useful = {key: merged for key, merged in retried.items() if merged is not None}
        if not useful:
            break
        drafts = drafts | useful
        decisions = budgeting.grant(drafts)
    return decisions


def _cut(decisions: Sequence[Decision], known: Cuts) -> Cuts:
    """Return the decisions that got less than they wanted, and less than was known so far."""
    return {
        decision.key: decision
        for decision in decisions
        if decision.steps[-1].stage == STAGE
        and decision.steps[-1].limited_by
        and (decision.key not in known or decision.desired < known[decision.key].desired)
    }


def _merged(before: tuple[Decision, ...], after: tuple[Decision, ...], cut: Cuts) -> tuple[Decision, ...] | None:
    """Return the new drafts of a model, None when no variant would take over."""
    if not any(new.desired > old.desired and new.key not in cut for old, new in zip(before, after, strict=True)):
        return None
    names = ", ".join(old.key.name for old in before if old.key in cut)
    merged = []
    for old, new in zip(before, after, strict=True):
        if new.key in cut:
            merged.append(_denied(old, new, cut[new.key]))
        elif new.desired > old.desired:
            merged.append(replace(new, message=f"{new.message}; in place of {names}, which the GPU budget limits"))
        else:
            merged.append(new)
    return tuple(merged)


def _denied(old: Decision, new: Decision, granted: Decision) -> Decision:
    """Return the draft of a variant that was cut to what was granted.

    The former one, if that number is still wanted: the limiter cuts it again and says why. It may not be wanted because
    the scaler ignores so small a step.
    """
    if new.desired >= granted.desired:
        return old
    binding = granted.steps[-1].limited_by
    words = (
        f"limited to {new.desired}: {binding} allows {granted.desired}, a step that its scaler ignores; {old.message}"
    )
    return old.limited(STAGE, Reason.GPU_LIMITED, words, new.desired, by=binding)
