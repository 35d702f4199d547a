"""The results of a run, in numbers and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from wva.sim.loadgen.client import Result

_QUANTILES: Final = (("p50", 0.50), ("p90", 0.90), ("p99", 0.99))


@dataclass(frozen=True, slots=True)
class Latencies:
    """Quantiles of latencies in seconds; None without a measurement."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None

    @classmethod
    def of(cls, seconds: Iterable[float | None]) -> Latencies:
        """Return the mean and the nearest-rank quantiles of the known values."""
        measured = sorted(value for value in seconds if value is not None)
        if not measured:
            return cls(None, None, None, None)
        ranks = {name: measured[max(0, ceil(share * len(measured)) - 1)] for name, share in _QUANTILES}
        return cls(sum(measured) / len(measured), **ranks)


@dataclass(frozen=True, slots=True)
class Report:
    """Counts, and latencies in seconds. ``late_seconds`` is the largest delay of the generator itself."""

    sent: int
    answered: int
    failures: dict[str, int]
    not_sent: int
    wall_seconds: float
    output_tokens: int
    time_to_first_token: Latencies
    inter_token_latency: Latencies
    request: Latencies
    late_seconds: float


@dataclass(slots=True)
class ResultTally:
    """Collects results while requests are on their way."""

    results: list[Result] = field(default_factory=list)
    sent: int = 0
    not_sent: int = 0
    late_seconds: float = 0.0

    @property
    def answered(self) -> int:
        """The number of complete answers."""
        return sum(not result.failure for result in self.results)

    def report(self, wall_seconds: float) -> Report:
        """Return the numbers after ``wall_seconds``."""
        answered = [result for result in self.results if not result.failure]
        return Report(
            sent=self.sent,
            answered=len(answered),
            failures=dict(sorted(Counter(result.failure for result in self.results if result.failure).items())),
            not_sent=self.not_sent,
            wall_seconds=wall_seconds,
            output_tokens=sum(result.output_tokens for result in answered),
            time_to_first_token=Latencies.of(result.first_token_seconds for result in answered),
            inter_token_latency=Latencies.of(result.inter_token_seconds for result in answered),
            request=Latencies.of(result.seconds for result in answered),
            late_seconds=self.late_seconds,
        )


def table(report: Report) -> str:
    """Return a report for people."""
    rows = [("", "mean", *(name for name, _ in _QUANTILES))]
    for name, latencies in (
        ("time to first token", report.time_to_first_token),
        ("inter-token latency", report.inter_token_latency),
        ("whole request", report.request),
    ):
        values = (latencies.mean, latencies.p50, latencies.p90, latencies.p99)
        rows.append((name, *("-" if value is None else _milliseconds(value) for value in values)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [_counts(report), *(_line(row, widths) for row in rows)]
    if report.late_seconds >= 1:
        lines.append(
            f"the generator itself was up to {report.late_seconds:.1f} s late: it asked for less than it should"
        )
    return "\n".join(lines)


def _counts(report: Report) -> str:
    parts = [f"{report.sent} requests sent in {report.wall_seconds:.0f} s", f"{report.answered} answered"]
    parts += [f"{count} failed ({reason})" for reason, count in report.failures.items()]
    parts += [f"{report.not_sent} not sent (too many on their way)"] if report.not_sent else []
    rate = report.output_tokens / report.wall_seconds if report.wall_seconds > 0 else 0.0
    return ", ".join([*parts, f"{rate:.0f} tokens/s"])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]).rstrip()


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
