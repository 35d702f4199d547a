"""The log of requests to the embedded Prometheus, so that a test can limit their number."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

QUERY_PATHS = frozenset({"/api/v1/query", "/api/v1/query_range"})


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """One request; ``query`` is the PromQL text, None where the path takes none."""

    path: str
    query: str | None
    at_seconds: float


@dataclass(slots=True)
class QueryLog:
    """All requests since the last ``clear``, in order of arrival; refused and failed ones count too."""

    entries: list[QueryRequest] = field(default_factory=list)

    def add(self, request: QueryRequest) -> None:
        """Add a request."""
        self.entries.append(request)

    def clear(self) -> None:
        """Forget all requests."""
        self.entries.clear()

    @property
    def queries(self) -> Counter[str]:
        """The number of requests by query text."""
        return Counter(entry.query for entry in self.entries if entry.query is not None)

    @property
    def query_count(self) -> int:
        """The number of queries."""
        return sum(entry.path in QUERY_PATHS for entry in self.entries)
