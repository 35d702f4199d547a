"""Can the samples be believed? Replicas of one variant or one model in; a verdict, or a reason to hold, out.

Nothing here looks at the size of a value: missing, stale and invalid samples are states of their own, never numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from wva.model.absence import Absence
from wva.model.decision import MetricsVerdict, Reason
from wva.model.metrics import Coverage, ReplicaMetrics, Sample, SampleState

_VERDICT_REASONS: Final = {
    Reason.PROMETHEUS_ERROR: "PrometheusError",
    Reason.NO_READY_REPLICAS: "MetricsUnavailable",
    Reason.METRICS_MISSING: "MetricsUnavailable",
    Reason.METRICS_STALE: "MetricsStale",
    Reason.METRICS_INVALID: "MetricsInvalid",
}
_HOLD_REASONS: Final = {
    SampleState.STALE: Reason.METRICS_STALE,
    SampleState.INVALID: Reason.METRICS_INVALID,
    SampleState.MISSING: Reason.METRICS_MISSING,
}


def absence(replicas: Sequence[ReplicaMetrics], *, failure: str | None) -> Absence | None:
    """Return why the replicas say nothing at all, None when at least one of them reports.

    ``failure`` is the message of a failed collection. Of several causes the one that was nearest to a usable sample is
    named: stale before invalid before missing.
    """
    if failure is not None:
        return Absence(Reason.PROMETHEUS_ERROR, failure)
    if not replicas:
        return Absence(Reason.NO_READY_REPLICAS, "no ready replica")
    if any(replica.reports for replica in replicas):
        return None
    states = {sample.state for _, _, sample in _samples(replicas)}
    state = next(state for state in _HOLD_REASONS if state in states)
    words = f"0 of {len(replicas)} replicas report fresh metrics; {_example(replicas, state)}"
    return Absence(_HOLD_REASONS[state], words)


def coverage(replicas: Sequence[ReplicaMetrics]) -> Coverage:
    """Return how many of the Ready replicas report both signals freshly."""
    return Coverage(sum(replica.complete for replica in replicas), len(replicas))


def verdict(replicas: Sequence[ReplicaMetrics], *, failure: str | None) -> MetricsVerdict:
    """Return whether one variant has metrics to decide on, with the first gap in words."""
    absent = absence(replicas, failure=failure)
    if absent is not None:
        return MetricsVerdict(available=False, reason=_VERDICT_REASONS[absent.reason], message=absent.message)
    fresh = coverage(replicas).fresh
    message = f"{fresh} of {len(replicas)} replicas report fresh metrics"
    if fresh < len(replicas):
        message += f"; {_example(replicas, None)}"
    return MetricsVerdict(available=True, reason="MetricsAvailable", message=message)


def _samples(replicas: Iterable[ReplicaMetrics]) -> Iterable[tuple[str, str, Sample]]:
    for replica in replicas:
        yield replica.pod, "KV usage", replica.kv_usage
        yield replica.pod, "queue length", replica.queue_length


def _example(replicas: Iterable[ReplicaMetrics], wanted: SampleState | None) -> str:
    """Describe the first sample in the wanted state (None: in any but fresh)."""
    pod, signal, sample = next(
        found
        for found in _samples(replicas)
        if found[2].state is wanted or (wanted is None and found[2].state is not SampleState.FRESH)
    )
    detail = f" ({sample.detail})" if sample.detail else ""
    return f"{pod}: {signal} {sample.state.value}{detail}"
