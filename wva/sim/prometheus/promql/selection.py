"""From the database to vectors: matchers, look-back, ranges, ``offset`` and ``@``.

Ranges and look-back are left-open, as in Prometheus 3: a sample exactly as old as the range is outside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from wva.sim.prometheus.promql.nodes import At, Matcher, Range, Subquery, VectorSelector
from wva.sim.prometheus.promql.values import Labels, Matrix, RangeElement, Vector, VectorElement
from wva.sim.prometheus.tsdb import NAME, StoredSeries, Tsdb

LOOKBACK_MS = 5 * 60_000


@dataclass(frozen=True, slots=True)
class EvaluationTime:
    """Where and when a query is evaluated; ``start_ms`` and ``end_ms`` are those of the whole query, for ``@``."""

    tsdb: Tsdb
    time_ms: int
    start_ms: int
    end_ms: int
    lookback_ms: int = LOOKBACK_MS


def matching_series(tsdb: Tsdb, name: str | None, matchers: tuple[Matcher, ...]) -> Iterator[StoredSeries]:
    """Yield the series that match a selector; without a name it looks at every series."""
    candidates = tsdb if name is None else tsdb.of_name(name)
    tests = [(matcher.label, matcher.matches) for matcher in matchers]
    for series in candidates:
        labels = series.labels
        for label, matches in tests:
            if not matches(labels.get(label, "")):
                break
        else:
            yield series


def reference_ms(selector: VectorSelector | Subquery, moment: EvaluationTime) -> int:
    """Return the time a selector looks at, ``@`` and ``offset`` applied."""
    if selector.at is None:
        base = moment.time_ms
    elif selector.at is At.START:
        base = moment.start_ms
    elif selector.at is At.END:
        base = moment.end_ms
    else:
        base = selector.at
    return base - selector.offset_ms


def instant(selector: VectorSelector, moment: EvaluationTime) -> Vector:
    """Return the newest sample of each series within the look-back, unless the series has ended since."""
    at_ms = reference_ms(selector, moment)
    oldest_ms = at_ms - moment.lookback_ms
    vector: Vector = []
    for series in matching_series(moment.tsdb, selector.name, selector.matchers):
        times = series.times
        index = bisect_right(times, at_ms) - 1
        if index < 0 or times[index] <= oldest_ms:
            continue
        value = series.values[index]
        if value is not None:
            vector.append(VectorElement(series.labels, value, times[index]))
    return vector


def ranges(selection: Range, moment: EvaluationTime) -> Matrix:
    """Return the samples of each series within the range; a series without any is left out."""
    end_ms = reference_ms(selection.selector, moment)
    start_ms = end_ms - selection.range_ms
    matrix: Matrix = []
    for series in matching_series(moment.tsdb, selection.selector.name, selection.selector.matchers):
        low = bisect_right(series.times, start_ms)
        high = bisect_right(series.times, end_ms, low)
        if low == high:
            continue
        times = [time for time, value in zip(series.times[low:high], series.values[low:high]) if value is not None]  # noqa: B905 - slices of two lists of equal length
        if times:
            values = [value for value in series.values[low:high] if value is not None]
            matrix.append(RangeElement(series.labels, times, values, start_ms, end_ms))
    return matrix


def absent_labels(selector: VectorSelector) -> Labels:
    """Return the labels for ``absent()``: those that a selector has in one plain equality and no other matcher."""
    labels: dict[str, str] = {}
    seen_labels: set[str] = set()
    for matcher in selector.matchers:
        if matcher.label == NAME:
            continue
        if matcher.equals is not None and matcher.label not in seen_labels:
            labels[matcher.label] = matcher.equals
            seen_labels.add(matcher.label)
        else:
            labels.pop(matcher.label, None)
    return {name: value for name, value in labels.items() if value}
