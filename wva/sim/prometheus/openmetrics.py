"""Writes the database as OpenMetrics text with times, for ``promtool tsdb create-blocks-from openmetrics``.

With it a real Prometheus can be filled with the samples of the embedded one. Retention removes samples while a world
runs, so each ``write`` adds the samples since the last one. Staleness markers have no form in text: after the end of a
series, queries of the real Prometheus still look back to its last sample for five minutes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Final, TextIO

from wva.sim.prometheus.tsdb import NAME, StoredSeries, Tsdb

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class OpenMetricsWriter:
    """Writes each sample of a database once."""

    def __init__(self, tsdb: Tsdb, file: TextIO) -> None:
        """Write into ``file``, which the caller closes."""
        self._tsdb = tsdb
        self._file = file
        self._until_ms: dict[StoredSeries, int] = {}

    def write(self) -> None:
        """Add the samples since the last call. Raises OSError."""
        for series in self._tsdb:
            self._file.writelines(self._new_lines(series))

    def finish(self) -> None:
        """Add the remaining samples and the end mark. Raises OSError."""
        self.write()
        self._file.write("# EOF\n")

    def _new_lines(self, series: StoredSeries) -> Iterator[str]:
        start = bisect_right(series.times, self._until_ms.get(series, -1))
        if start == len(series.times):
            return
        head = _head(series.labels)
        for time_ms, value in zip(series.times[start:], series.values[start:], strict=True):
            if value is not None:
                yield f"{head} {_number(value)} {time_ms / 1000:.3f}\n"
        self._until_ms[series] = series.times[-1]


def _head(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items() if name != NAME)
    return f"{labels[NAME]}{{{pairs}}}"


def _number(value: float) -> str:
    """Return a value as OpenMetrics spells it. Python spells infinities and NaN differently."""
    if value != value:  # noqa: PLR0124 - NaN test without a call
        return "NaN"
    return {float("inf"): "+Inf", float("-inf"): "-Inf"}.get(value) or repr(value)
