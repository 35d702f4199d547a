"""Which queries fail, by namespace: one place for all queries whose failure no decision shows.

What happens to an essential query that fails, as all of them do while Prometheus is away:

- ``prometheus.client`` tries again, for ten seconds in all, and raises PrometheusError;
- ``shared_queries`` asks about parts of the namespaces, ``snapshot`` notes a CollectionFailure with those left over;
- ``decide.trust`` finds nothing to believe, with the reason PrometheusError, and the number is held;
- ``publish.conditions`` says so in OptimizationReady and MetricsAvailable, ``publish.obstacles`` in an event and a
  series.

What is missing when another query fails is easily overlooked, since decisions go on without it. So the sender of such a
query notes its result here, and the condition QueriesAnswered names the query, the error and what is in force
meanwhile. WVA does not report a query that fails once. It reports a query from the second failure in a row on, until
the query is answered, or is not sent for ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from wva.clock import Clock
from wva.collect.days import EARLIER_DAYS
from wva.collect.in_time import IN_TIME
from wva.collect.queries import (
    ENGINE_COUNTERS,
    ENGINE_PREFILLS,
    ENGINE_SIGNALS,
    IN_PROGRESS,
    PUBLISHED_NUMBER,
    SCHEDULER_QUEUE,
    STRAY_SERIES,
)
from wva.collect.request_counts import REQUEST_COUNTS
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason

_FEWEST_FAILURES: Final = 2
_FORGOTTEN_SECONDS: Final = 600.0
IN_FORCE: Final[Mapping[str, str]] = {
    ENGINE_COUNTERS: "pods without counters count as silent, and the percentage analyzer decides if no pod has any",
    ENGINE_PREFILLS: "nothing new is known of what replicas for prefill carry",
    ENGINE_SIGNALS: "analyzers that need what engines tell hold the number, or decide without it",
    SCHEDULER_QUEUE: "nothing new is known of the requests that wait at gateways",
    REQUEST_COUNTS: "no model goes to zero",
    IN_PROGRESS: "a load that rises between two cycles waits for the next one",
    EARLIER_DAYS: "nothing is ready ahead of what comes each day at the same time, apart from what is known already",
    IN_TIME: "it is not known whether users are served within the objectives",
    STRAY_SERIES: "it is not known why a model whose pods are Ready has no samples",
    PUBLISHED_NUMBER: "a start from zero waits a few seconds, and does not know whether autoscalers see its number",
}
"""What the failure of a query means; each query that is not essential has an entry."""


class _Failing(NamedTuple):
    """How often a query has failed in a row, when last (seconds of a monotonic clock), and the first message."""

    times: int
    at: float
    message: str


class QueryFailures:
    """What the last answers to queries said, for the conditions of the variants of each namespace."""

    def __init__(self, clock: Clock, *, revisit: Callable[[str], None]) -> None:
        """Know nothing; ``revisit`` has the reconciler look at the variants of a namespace."""
        self._clock = clock
        self._revisit = revisit
        self._failing: dict[str, dict[str, _Failing]] = {}

    def note(self, query: str, namespaces: Iterable[str], failed: Mapping[str, str]) -> None:
        """Note which namespaces a query asked about, and in words why some of them have no answer."""
        now = self._clock.monotonic()
        for namespace in namespaces:
            before = self._messages(namespace, now)
            reason, known = failed.get(namespace), self._failing.get(namespace, {})
            if reason is not None:
                old = known.get(query)
                if old is None or now - old.at > _FORGOTTEN_SECONDS:
                    old = _Failing(0, now, reason)
                self._failing.setdefault(namespace, {})[query] = old._replace(times=old.times + 1, at=now)
            elif query in known:
                del known[query]
                if not known:
                    del self._failing[namespace]
            if self._messages(namespace, now) != before:
                self._revisit(namespace)

    def of(self, namespace: str) -> Trouble:
        """Return which queries about a namespace have no answer."""
        messages = self._messages(namespace, self._clock.monotonic())
        words = [f"{reason}; in force: {IN_FORCE[query]}" for query, reason in messages.items()]
        return Trouble(TroubleReason.QUERY_FAILED, "; ".join(words)) if words else UNTROUBLED

    def _messages(self, namespace: str, now: float) -> dict[str, str]:
        """Return the messages of the queries that fail, by query."""
        return {
            query: failing.message
            for query, failing in sorted(self._failing.get(namespace, {}).items())
            if failing.times >= _FEWEST_FAILURES and now - failing.at <= _FORGOTTEN_SECONDS
        }
