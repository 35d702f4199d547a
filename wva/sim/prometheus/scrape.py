"""The scraper: puts the samples of targets into the database, with the staleness rules of Prometheus.

- A sample gets the target's labels. Where both have a label, ``honor_labels`` decides: false (default) renames the
  sample's own to ``exported_<label>``, true keeps the sample's own.
- A series that the last page had and this one has not ends with a staleness marker; so do all series of a target
  that fails, cannot be parsed, or is gone. Series that bring their own timestamps are left alone.
- Each scrape of a target adds ``up`` and the ``scrape_*`` series, also a failed one. A target that is gone ends them.

Nothing here decides when to scrape: the world calls ``scrape(now)``, with a ``ScrapeSchedule`` if it wants one.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from wva.sim.prometheus.exposition import ExpositionError, SampleLine, lines_since, parse_series
from wva.sim.prometheus.fetch import FetchedPage, Fetcher, ScrapeError
from wva.sim.prometheus.tsdb import NAME, StoredSeries, Tsdb, milliseconds

EXPORTED_PREFIX = "exported_"
_BEFORE_SECONDS = 1e-6
"""So long before zero a schedule begins whose targets may be due at zero."""

Discovery = Callable[[], Iterable["ScrapeTarget"]]


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One endpoint; ``labels`` (``job``, ``instance``, ``namespace``, ``pod`` ...) are its identity.

    ``interval_seconds`` None means the interval of the schedule. ``offset_seconds`` is the second of an interval at
    which the target is scraped; None means that it follows from the labels. Before ``found_seconds`` the schedule does
    not know the target.
    """

    fetcher: Fetcher
    labels: Mapping[str, str]
    honor_labels: bool = False
    honor_timestamps: bool = True
    interval_seconds: float | None = None
    offset_seconds: float | None = None
    found_seconds: float = 0.0

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Identity across scrapes."""
        return tuple(sorted(self.labels.items()))


class ScrapeSchedule:
    """The times when targets are scraped: all at zero, and then every interval, each at an offset of its own.

    With ``at_zero`` false, the first scrape of a target is at its offset too.
    As in Prometheus the offset follows from the labels of the target. It has whole seconds here, so that a world with
    many pods has few different times of scrapes.
    """

    def __init__(self, interval_seconds: float, *, at_zero: bool = True) -> None:
        """Plan for an interval of some seconds; nothing has been scraped yet."""
        self._interval = interval_seconds
        self._last = -math.inf if at_zero else -_BEFORE_SECONDS

    def next(self, targets: Iterable[ScrapeTarget]) -> float:
        """Return the first time, in seconds, at which one of the targets is due; infinity without a target."""
        if self._last == -math.inf:
            return 0.0
        return min((self._after(target) for target in targets), default=math.inf)

    def take(self, at_seconds: float) -> Callable[[ScrapeTarget], bool]:
        """Return a function that tells whether a target is due by a time, and count it as scraped from then on."""
        since, self._last = self._last, at_seconds
        return lambda target: since == -math.inf or self._after(target, since) <= at_seconds

    def _after(self, target: ScrapeTarget, since: float | None = None) -> float:
        last = self._last if since is None else since
        interval = self._interval if target.interval_seconds is None else target.interval_seconds
        offset = target.offset_seconds
        if offset is None:
            offset = zlib.crc32(repr(target.key).encode()) % max(1, int(interval))
        slot = max(math.floor((last - offset) / interval) + 1, math.ceil((target.found_seconds - offset) / interval))
        return offset + interval * slot


def target_labels(exposed: Mapping[str, str], target: Mapping[str, str], *, honor_labels: bool) -> dict[str, str]:
    """Return the labels a sample is stored with. ``exported_`` is repeated until the new name is free."""
    if honor_labels:
        return {**target, **exposed}
    labels = {**exposed, **target}
    clashing = sorted((name for name in target if exposed.get(name)), key=len)
    for name in clashing:
        renamed = EXPORTED_PREFIX + name
        while labels.get(renamed):
            renamed = EXPORTED_PREFIX + renamed
        labels[renamed] = exposed[name]
    return labels


@dataclass(frozen=True, slots=True)
class _Report:
    """The values of the synthetic series of one scrape."""

    up: bool
    duration_seconds: float
    samples: int = 0
    added: int = 0

    def items(self) -> tuple[tuple[str, float], ...]:
        return (
            ("up", float(self.up)),
            ("scrape_duration_seconds", self.duration_seconds),
            ("scrape_samples_scraped", float(self.samples)),
            ("scrape_samples_post_metric_relabeling", float(self.samples)),
            ("scrape_series_added", float(self.added)),
        )


class _TargetState:
    """The state of a target between scrapes: its series by literal text, and its current series."""

    def __init__(self, target: ScrapeTarget, tsdb: Tsdb) -> None:
        self.target = target
        self._tsdb = tsdb
        self._known: dict[str, StoredSeries] = {}
        self._parsed: dict[str, SampleLine] = {}
        self._alive: set[StoredSeries] = set()
        self._reports: dict[str, StoredSeries] = {}
        self.error: str | None = None

    def adopt(self, target: ScrapeTarget) -> None:
        """Take over a new fetcher for the same labels; if the label rules change, forget all known series."""
        if target.honor_labels != self.target.honor_labels:
            self._known.clear()
        self.target = target

    async def fetch(self) -> FetchedPage | str:
        """Return the page, or the reason of the failure."""
        try:
            return await self.target.fetcher.fetch()
        except ScrapeError as e:
            return str(e)

    def store(self, page: FetchedPage | str, *, now_ms: int) -> None:
        """Write the samples of a scrape, and end the series that are missing in it."""
        if isinstance(page, str):
            self._fail(page, now_ms=now_ms, duration_seconds=0.0)
            return
        try:
            parsed = list(lines_since(page.text, self._parsed))
            samples = [(self._series(line.series), line) for _, line in parsed]
        except ExpositionError as e:
            self._fail(str(e), now_ms=now_ms, duration_seconds=page.duration_seconds)
            return
        self._parsed = dict(parsed)
        added = self._append(samples, now_ms=now_ms)
        self.error = None
        report = _Report(up=True, duration_seconds=page.duration_seconds, samples=len(samples), added=added)
        self._report(report, now_ms=now_ms)

    def end(self, *, now_ms: int) -> None:
        """End all series of a target that is gone, ``up`` among them."""
        self._expire(set(), now_ms=now_ms)
        for series in self._reports.values():
            series.append(now_ms, None)

    def _fail(self, reason: str, *, now_ms: int, duration_seconds: float) -> None:
        self.error = reason
        self._expire(set(), now_ms=now_ms)
        self._report(_Report(up=False, duration_seconds=duration_seconds), now_ms=now_ms)

    def _series(self, text: str) -> StoredSeries:
        series = self._known.get(text)
        if series is None or series.dropped:
            labels = target_labels(parse_series(text), self.target.labels, honor_labels=self.target.honor_labels)
            series = self._known[text] = self._tsdb.series(labels)
        return series

    def _append(self, samples: Iterable[tuple[StoredSeries, SampleLine]], *, now_ms: int) -> int:
        current_series: set[StoredSeries] = set()
        honor_timestamps = self.target.honor_timestamps
        added = 0
        for series, (_, value, timestamp_ms) in samples:
            if timestamp_ms is not None and honor_timestamps:
                added += not series.times
                series.append(timestamp_ms, value)
                continue
            current_series.add(series)
            series.append(now_ms, value)
        added += len(current_series - self._alive)
        self._expire(current_series, now_ms=now_ms)
        return added

    def _expire(self, current_series: set[StoredSeries], *, now_ms: int) -> None:
        ended_series = self._alive - current_series
        self._alive = current_series
        for series in ended_series:
            series.append(now_ms, None)
        if ended_series:
            self._known = {text: series for text, series in self._known.items() if series not in ended_series}

    def _report(self, report: _Report, *, now_ms: int) -> None:
        for name, value in report.items():
            series = self._reports.get(name)
            if series is None or series.dropped:
                labels = target_labels({NAME: name}, self.target.labels, honor_labels=False)
                series = self._reports[name] = self._tsdb.series(labels)
            series.append(now_ms, value)


class Scraper:
    """All targets of the world."""

    def __init__(self, tsdb: Tsdb) -> None:
        """Write into ``tsdb``."""
        self._tsdb = tsdb
        self._states: dict[tuple[tuple[str, str], ...], _TargetState] = {}
        self._fixed: dict[tuple[tuple[str, str], ...], ScrapeTarget] = {}
        self._discoveries: list[Discovery] = []

    def add(self, target: ScrapeTarget) -> None:
        """Scrape a target from the next scrape on; one with the same labels is replaced."""
        self._fixed[target.key] = target

    def remove(self, target: ScrapeTarget) -> None:
        """Stop scraping a target. Its series end at the next scrape."""
        self._fixed.pop(target.key, None)

    def discover(self, discovery: Discovery) -> None:
        """Ask ``discovery`` at each scrape for the targets that exist then, such as the pods of a fleet."""
        self._discoveries.append(discovery)

    def errors(self) -> dict[tuple[tuple[str, str], ...], str]:
        """Return the reason of the failure for each target whose last scrape failed."""
        return {key: state.error for key, state in self._states.items() if state.error is not None}

    async def scrape(self, now_seconds: float, *, due: Callable[[ScrapeTarget], bool] = lambda _target: True) -> None:
        """Scrape every ``due`` target once, all at once, and store all samples under the one time ``now_seconds``.

        The series of targets that are gone end, whichever targets are due.
        """
        now_ms = milliseconds(now_seconds)
        states = [state for state in self._refresh(now_ms) if due(state.target)]
        async with asyncio.TaskGroup() as group:
            fetches = [group.create_task(state.fetch()) for state in states]
        for state, fetch in zip(states, fetches, strict=True):
            state.store(fetch.result(), now_ms=now_ms)
        self._tsdb.truncate(now_ms)

    def targets(self) -> list[ScrapeTarget]:
        """Return the targets that there are now."""
        targets = dict(self._fixed)
        for discovery in self._discoveries:
            targets.update((target.key, target) for target in discovery())
        return list(targets.values())

    def _refresh(self, now_ms: int) -> list[_TargetState]:
        targets = {target.key: target for target in self.targets()}
        for key in self._states.keys() - targets.keys():
            self._states.pop(key).end(now_ms=now_ms)
        for key, target in targets.items():
            state = self._states.get(key)
            if state is None:
                self._states[key] = _TargetState(target, self._tsdb)
            else:
                state.adopt(target)
        return [self._states[key] for key in targets]
