"""Samples in memory, which the scraper writes and PromQL reads.

The database takes label sets (the metric's name is the label ``__name__``) with times and values, and gives series by
metric name. Times are whole milliseconds inside, as in Prometheus, because look-back and extrapolation compare them
exactly; the public methods take seconds. A staleness marker is ``None`` in place of a value: the series ended there,
and a query must not look back past that point. Nothing reads a clock, so retention follows the times that are written.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping

NAME = "__name__"
RETENTION_SECONDS = 70 * 60.0
_TRUNCATE_EVERY_MS = 60_000


def milliseconds(seconds: float) -> int:
    """Return ``seconds`` as whole milliseconds, halves rounded up as Prometheus does."""
    return math.floor(seconds * 1000 + 0.5)


class StoredSeries:
    """One label set with its samples in order of time.

    ``labels`` must not be changed. ``dropped`` tells a holder of a reference that retention has removed the series
    from its database, so that writing to it would be lost.
    """

    __slots__ = ("dropped", "labels", "times", "values")

    def __init__(self, labels: Mapping[str, str]) -> None:
        """Start an empty series."""
        self.labels = labels
        self.times: list[int] = []
        self.values: list[float | None] = []
        self.dropped = False

    def append(self, time_ms: int, value: float | None) -> bool:
        """Add a sample (None: staleness marker); False if it is older than the last one or contradicts it."""
        times = self.times
        if times and time_ms <= times[-1]:
            return time_ms == times[-1] and _same(value, self.values[-1])
        times.append(time_ms)
        self.values.append(value)
        return True

    def truncate(self, before_ms: int) -> None:
        """Forget the samples older than ``before_ms``."""
        if self.times and self.times[0] < before_ms:
            cut = bisect_left(self.times, before_ms)
            del self.times[:cut]
            del self.values[:cut]


def _same(left: float | None, right: float | None) -> bool:
    return left == right or (left is not None and right is not None and left != left and right != right)  # noqa: PLR0124 - NaN test without a call


class Tsdb:
    """All series, indexed by metric name."""

    def __init__(self, *, retention_seconds: float = RETENTION_SECONDS) -> None:
        """Keep samples for ``retention_seconds`` before the newest time written, give or take a minute."""
        self._retention_ms = milliseconds(retention_seconds)
        self._by_name: dict[str, dict[tuple[tuple[str, str], ...], StoredSeries]] = {}
        self._truncated_at_ms: int | None = None

    def series(self, labels: Mapping[str, str]) -> StoredSeries:
        """Return the series of a label set, created empty if new; empty label values count as absent."""
        key = tuple(sorted((name, value) for name, value in labels.items() if value))
        family = self._by_name.setdefault(labels.get(NAME, ""), {})
        series = family.get(key)
        if series is None:
            series = family[key] = StoredSeries(dict(key))
        return series

    def append(self, labels: Mapping[str, str], timestamp_seconds: float, value: float) -> bool:
        """Add one sample; False if it is out of order or contradicts one of the same time."""
        time_ms = milliseconds(timestamp_seconds)
        self.truncate(time_ms)
        return self.series(labels).append(time_ms, value)

    def mark_stale(self, labels: Mapping[str, str], timestamp_seconds: float) -> bool:
        """End a series at a time: from there on a query does not see its earlier samples."""
        return self.series(labels).append(milliseconds(timestamp_seconds), None)

    def truncate(self, now_ms: int) -> None:
        """Apply retention as of ``now_ms``, at most once per minute of that time."""
        if self._truncated_at_ms is not None and now_ms - self._truncated_at_ms < _TRUNCATE_EVERY_MS:
            return
        self._truncated_at_ms = now_ms
        before_ms = now_ms - self._retention_ms
        for name, family in list(self._by_name.items()):
            for key, series in list(family.items()):
                series.truncate(before_ms)
                if not series.times:
                    series.dropped = True
                    del family[key]
            if not family:
                del self._by_name[name]

    def of_name(self, name: str) -> Iterable[StoredSeries]:
        """Return the series of one metric name, in order of creation."""
        return self._by_name.get(name, {}).values()

    def less(self, hidden: Callable[[Mapping[str, str]], bool]) -> Tsdb:
        """Return a read-only view without the series for whose labels ``hidden`` returns true."""
        view = Tsdb()
        for name, family in self._by_name.items():
            view._by_name[name] = {key: series for key, series in family.items() if not hidden(series.labels)}
        return view

    def __iter__(self) -> Iterator[StoredSeries]:
        """Iterate over all series."""
        for family in self._by_name.values():
            yield from family.values()

    def __len__(self) -> int:
        """Return the number of series."""
        return sum(map(len, self._by_name.values()))
