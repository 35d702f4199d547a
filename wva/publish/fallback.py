"""The safety net under the optimizer: the numbers that stay when a whole cycle fails, or one that cannot be published.

docs/metrics.md#the-safety-net has what operators see of it.

The last published number stays. A variant that no cycle has decided on keeps the replicas that exist. Source,
condition, event and log line say that the number is not measured, as for any other hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from wva.model.decision import Decision, Reason, Source, Step
from wva.model.records import replace


def fallbacks(
    decisions: Iterable[Decision], *, cause: str, reason: Reason = Reason.ANALYSIS_FAILED
) -> tuple[Decision, ...]:
    """Return the decisions in force as those that stay because of a failure; ``cause`` says in words what failed.

    A variant at zero replicas is left out: nothing is missing there.
    """
    return tuple(_fallback(decision, cause, reason) for decision in decisions if decision.reason is not Reason.INACTIVE)


def _fallback(decision: Decision, cause: str, reason: Reason) -> Decision:
    undecided = decision.source is Source.CURRENT_REPLICAS and decision.held
    source = Source.CURRENT_REPLICAS if undecided else Source.PREVIOUS_DESIRED
    message = f"{cause}; keeping {decision.desired} ({source.value})"
    return replace(
        decision,
        previous=decision.previous if undecided else decision.desired,
        reason=reason,
        message=message,
        source=source,
        steps=(Step("hold", message, decision.desired, decision.desired),),
    )
