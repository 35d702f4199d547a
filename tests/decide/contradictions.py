"""What conditions and decisions of one cycle must not say together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from wva.model.decision import Decision, Reason
from wva.model.trouble import Trouble, TroubleReason
from wva.model.variant import VariantKey

MOVED_BY_DATA: Final = frozenset(
    {Reason.SCALE_UP, Reason.SCALE_DOWN, Reason.SIBLING_GROWS, Reason.SIBLING_SHRINKS, Reason.IDLE}
)
"""With these reasons, what replicas report has changed the number of a model."""
NO_DATA: Final = frozenset({Reason.METRICS_MISSING, Reason.METRICS_STALE, Reason.PROMETHEUS_ERROR})
"""With these reasons, no replica of a model reports anything."""
AWAITED: Final = frozenset({TroubleReason.REPLICAS_LATE, TroubleReason.SCALER_NOT_FOLLOWING})
"""With these reasons, the replicas are not as many as the number asks for."""


def contradictions(decisions: Iterable[Decision], late: Mapping[VariantKey, Trouble]) -> list[str]:
    """Return what contradicts itself in what a cycle says, in words; empty if nothing does.

    ``late`` says why replicas of a variant are not there in time.
    """
    found, models, known = [], {}, set()
    for decision in decisions:
        known.add(decision.key)
        metrics, covered = decision.metrics, decision.coverage
        name = f"{decision.key.namespace}/{decision.key.name}"
        if metrics.available != (metrics.reason == "MetricsAvailable"):
            found.append(f"{name}: available is {metrics.available} with the reason {metrics.reason}")
        if metrics.available and metrics.message.startswith("0 of "):
            found.append(f"{name}: available, and {metrics.message}")
        if covered.fresh > 0 and not metrics.available and metrics.reason != Reason.PROMETHEUS_ERROR:
            found.append(f"{name}: {covered.fresh} report, and {metrics.reason}")
        models.setdefault(decision.model, []).append(decision)
        told = late.get(decision.key)
        if told is None:
            continue
        if not decision.desired:
            found.append(f"{name}: no replica is asked for, and {told.message}")
        if decision.settling_since is None and told.reason in AWAITED:
            found.append(f"{name}: the number is reached, and {told.message}")
        if decision.desired <= decision.current and told.reason == TroubleReason.SCALER_NOT_FOLLOWING:
            found.append(f"{name}: {decision.current} exist, and {told.message}")
    found += [f"{key}: nothing is decided, and {told.message}" for key, told in late.items() if key not in known]
    for model, own in models.items():
        available = any(decision.metrics.available for decision in own)
        for decision in own:
            said = f"{decision.key.name}: {decision.reason} ({decision.message})"
            if not available and decision.reason in MOVED_BY_DATA:
                found.append(f"no replica of {model.model_id} reports, and {said}")
            if decision.metrics.available and decision.held and decision.reason in NO_DATA:
                found.append(f"{decision.metrics.message}, and {said}")
    return found
