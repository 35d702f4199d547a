"""Reads Prometheus' text format: a page goes in, and its series can be looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class PageLine:
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


class MetricsPage:
    """All series of a page."""

    def __init__(self, text: str, *, prefix: str = "") -> None:
        """Read a page; with a ``prefix`` only series whose names begin with it, since some pages have 100,000 lines."""
        lines = (line for line in text.splitlines() if line.startswith(prefix)) if prefix else (text,)
        self._series = [
            PageLine(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families("\n".join(lines) + "\n")
            for sample in family.samples
        ]

    def series(self, name: str, **labels: str) -> Iterator[PageLine]:
        """Yield the series of a name that have all these labels."""
        for series in self._series:
            if series.name == name and labels.items() <= series.labels.items():
                yield series

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the only such series, None when there is none. ValueError when there are several."""
        found = [series.value for series in self.series(name, **labels)]
        if len(found) > 1:
            raise ValueError(f"{len(found)} series of {name} with {labels}")
        return found[0] if found else None

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of all such series; 0 when there is none."""
        return sum(series.value for series in self.series(name, **labels))
