"""Third stage: zero only when it is allowed, and no number outside what the scaler of the target can reach.

``rest`` takes an idle model to zero if its policy says so; ``keep_one`` leaves every other model one replica;
``enforce`` moves a number into its bounds, because a variant never reaches a number outside of them.

A model is idle only if no request finished within its retention period, none runs or waits, no change is unfinished and
the model was not started within that period. Missing data never counts as idle, and neither does a time of which
Prometheus has no samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wva.decide.settling import Progress
from wva.model.decision import Decision, Reason, Source
from wva.model.policy import ScaleToZeroPolicy
from wva.model.snapshot import RequestCounts
from wva.model.variant import Bounds

STAGE = "enforce"


@dataclass(frozen=True, slots=True)
class Idleness:
    """What is known of a model's need for any replica at all.

    ``gap`` says why its samples cannot be believed, empty when they can; ``queued`` are the requests that its replicas
    report as waiting. ``progresses`` are its active variants.
    """

    policy: ScaleToZeroPolicy
    counts: RequestCounts | None
    progresses: tuple[Progress, ...]
    gap: str
    queued: float
    now: float

    def objection(self, decisions: Sequence[Decision]) -> str:
        """Return in words why the model may not go to zero now, empty when it may."""
        return self._unknown() or self._busy() or self.uncovered() or self._moving(decisions) or self._young()

    def _unknown(self) -> str:
        if self.gap:
            return f"nothing is taken to zero on incomplete metrics ({self.gap})"
        if self.counts is None or self.counts.finished is None or self.counts.in_progress is None:
            detail = "" if self.counts is None else self.counts.detail
            return f"the requests of the model are not known ({detail or 'not counted'})"
        if self.counts.retention_seconds < self.policy.retention_seconds:
            return f"requests are known for the last {self.counts.retention_seconds:g} s only"
        return ""

    def _busy(self) -> str:
        counts = self.counts
        if counts is not None and counts.finished:
            return f"{counts.finished:g} requests finished within {counts.retention_seconds:g} s"
        if counts is not None and counts.in_progress:
            return f"{counts.in_progress:g} requests run or wait"
        return f"{self.queued:g} requests wait" if self.queued > 0 else ""

    def uncovered(self) -> str:
        """Return in words what part of the retention period is not known, empty when all of it is."""
        counts = self.counts
        if counts is None or counts.covered:
            return ""
        return f"the history of requests covers {counts.covered_seconds:g} of {counts.retention_seconds:g} s"

    def _moving(self, decisions: Sequence[Decision]) -> str:
        moving = sorted(progress.variant.key.name for progress in self.progresses if progress.since is not None)
        moving = moving or sorted(entry.key.name for entry in decisions if entry.desired > entry.current)
        return f"unfinished change of {', '.join(moving)}" if moving else ""

    def _young(self) -> str:
        started = (progress.variant.activated_at for progress in self.progresses)
        age = self.now - max((time for time in started if time is not None), default=-self.policy.retention_seconds)
        if age < self.policy.retention_seconds:
            return f"started {max(0.0, age):.0f} s ago, gets {self.policy.retention_seconds:g} s"
        return ""


def rest(decisions: tuple[Decision, ...], idleness: Idleness) -> tuple[Decision, ...]:
    """Return the decisions of a model with all numbers 0 if it is idle and may go to zero, else as they are."""
    if not idleness.policy.enabled:
        return decisions
    objection = idleness.objection(decisions)
    if objection:
        words = f"not to zero: {objection}"
        noted = tuple(decision.noted(STAGE, words) for decision in decisions)
        if objection != idleness.uncovered():
            return noted
        # An idle model that stays is a surprise, unlike a busy one.
        return tuple(replace(decision, message=f"{decision.message}; {words}") for decision in noted)
    words = f"no request within {idleness.policy.retention_seconds:g} s and none in progress"
    return tuple(
        replace(decision.with_step(STAGE, Reason.IDLE, words, 0), source=Source.MEASURED) for decision in decisions
    )


def keep_one(decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """Return the decisions of a model; if all numbers are 0 and none of them for idleness, the cheapest gets 1."""
    if not decisions or any(decision.desired > 0 or decision.reason is Reason.IDLE for decision in decisions):
        return decisions
    cheapest = min(decisions, key=lambda decision: (decision.cost, decision.key))
    words = f"the model may not go to zero, and {cheapest.key.name} is its cheapest variant"
    return tuple(
        decision.with_step(STAGE, Reason.MODEL_MINIMUM, words, 1) if decision is cheapest else decision
        for decision in decisions
    )


def enforce(decision: Decision, bounds: Bounds) -> Decision:
    """Return the decision with its number inside the bounds.

    A decision that was held for lack of evidence keeps its reason: that nothing was measured is the greater news.
    """
    allowed = bounds.clamp(decision.desired)
    if allowed == decision.desired:
        return decision.noted(STAGE, "within bounds")
    limit, origin = ("maximum", bounds.ceiling_origin)
    if allowed > decision.desired:
        limit, origin = ("minimum", bounds.minimum_origin)
    words = f"{decision.desired} is {'above' if limit == 'maximum' else 'below'} the {limit} {allowed}"
    reason = decision.reason if decision.held else Reason.BOUNDED
    limited_by = origin if limit == "maximum" else ""
    return decision.limited(STAGE, reason, f"{words} of {origin}; {decision.message}", allowed, by=limited_by)
