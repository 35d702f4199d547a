"""What the users of one model got: latencies of the requests served, judged against an SLO.

Percentiles are exact (nearest rank). Where nothing was served there is no latency and no attainment, hence None.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, inf, nan

from wva.sim.fleet.requests import FinishedRequest


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """Service level objective, in seconds."""

    time_to_first_token_seconds: float = 1.0
    inter_token_latency_seconds: float = 0.05


@dataclass(frozen=True, slots=True)
class Latency:
    """Distribution of one latency in seconds and the share of requests within its objective."""

    mean_seconds: float
    p50_seconds: float
    p90_seconds: float
    p99_seconds: float
    attainment: float

    @classmethod
    def of(cls, values: Iterable[float], *, objective_seconds: float) -> Latency | None:
        """Summarise ``values``; None if there are none."""
        ordered = sorted(values)
        if not ordered:
            return None
        count = len(ordered)

        def rank(share: float) -> float:
            return ordered[max(0, ceil(share * count) - 1)]

        return cls(
            mean_seconds=sum(ordered) / count,
            p50_seconds=rank(0.50),
            p90_seconds=rank(0.90),
            p99_seconds=rank(0.99),
            attainment=sum(value <= objective_seconds for value in ordered) / count,
        )


@dataclass(frozen=True, slots=True)
class Served:
    """Requests finished in a span of time. The joint attainment counts requests that met both objectives."""

    requests: int
    output_tokens: int
    time_to_first_token: Latency | None
    inter_token_latency: Latency | None
    attainment: float | None


class ServiceLog:
    """Keeps the latencies of every request of one model; 32 bytes each."""

    def __init__(self) -> None:
        """Start empty."""
        self._finish_seconds = array("d")
        self._ttft_seconds = array("d")
        self._itl_seconds = array("d")  # NaN: an answer of one token has no gap
        self._output_tokens = array("q")
        self._newest_seconds = -inf

    @property
    def requests(self) -> int:
        """Requests served so far."""
        return len(self._finish_seconds)

    def record(self, finished: FinishedRequest) -> None:
        """Keep one finished request."""
        gap = finished.inter_token_latency_seconds
        self._newest_seconds = max(self._newest_seconds, finished.finish_seconds)
        self._finish_seconds.append(finished.finish_seconds)
        self._ttft_seconds.append(finished.time_to_first_token_seconds)
        self._itl_seconds.append(nan if gap is None else gap)
        self._output_tokens.append(finished.output_tokens)

    def served(self, level: ServiceLevel, *, since_seconds: float = 0.0) -> Served:
        """Summarise the requests that finished at ``since_seconds`` or later."""
        chosen: list[int] = []
        if self._newest_seconds >= since_seconds:  # otherwise nothing has to be looked through
            chosen = [i for i, finish in enumerate(self._finish_seconds) if finish >= since_seconds]
        ttft = [self._ttft_seconds[i] for i in chosen]
        gaps = [self._itl_seconds[i] for i in chosen]
        missed = sum(
            first > level.time_to_first_token_seconds or gap > level.inter_token_latency_seconds
            for first, gap in zip(ttft, gaps, strict=True)
        )  # a missing gap compares as False, so it misses nothing
        return Served(
            requests=len(chosen),
            output_tokens=sum(self._output_tokens[i] for i in chosen),
            time_to_first_token=Latency.of(ttft, objective_seconds=level.time_to_first_token_seconds),
            inter_token_latency=Latency.of(
                (gap for gap in gaps if gap == gap),  # noqa: PLR0124 - drops NaN
                objective_seconds=level.inter_token_latency_seconds,
            ),
            attainment=1 - missed / len(chosen) if chosen else None,
        )
