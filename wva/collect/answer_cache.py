"""Answers of Prometheus that may be used again: all answers about one chunk of namespaces, kept together.

A decision on an answer that no longer describes the world is worse than one more query. So an answer is used again only

- within the TTL, and never when it is older than the stale threshold. Without a TTL every cycle asks;
- as a whole: a value and the time of its sample must come from the same instant;
- while the Ready pods are those for which it was asked: the answer lacks a new pod, and a pod that has gone changes the
  load of the others;
- while each sample that was fresh then is still fresh. Otherwise Prometheus is asked again, so that no number is held
  because of a cached answer.

Samples keep their own times, so their freshness is judged as if the answer had just come. Failures are not kept, nor
are answers that Prometheus marks as incomplete. Any change of the settings empties the cache, also a change of the
interval. Times are seconds since the epoch, given by the caller. After a clock was set back nothing is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from wva.collect.answers import InstantVector
from wva.collect.queries import SCHEDULER_QUEUE, TIMESTAMP_QUERIES, Query, QueueSignal
from wva.config import Settings
from wva.instruments import Instruments
from wva.model.metrics import Freshness
from wva.numbers import FINITE

Answers = Mapping[str, InstantVector]
"""By query name."""

Pods = frozenset[tuple[str, str]]
"""Namespace and name of every Ready pod that the queries concern."""


_SAME_MOMENT_SECONDS: Final = 0.5
"""A cycle may take an answer that was asked for while it began: it is not of a clock that was set back."""


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """The settings of the cache: ``PROMETHEUS_METRICS_CACHE_*``.

    ``ttl_seconds`` None: not set. ``fetch_interval_seconds`` 0: nothing is fetched in the background. ``max_size``
    counts chunks of namespaces, 0 is no limit. ``interval_seconds`` is that of the cycles.
    """

    enabled: bool = True
    ttl_seconds: float | None = None
    stale_seconds: float = 120.0
    cleanup_interval_seconds: float = 60.0
    fetch_interval_seconds: float = 0.0
    max_size: int = 0
    interval_seconds: float = 60.0

    @staticmethod
    def of(settings: Settings) -> CacheSettings:
        """Return what the settings of the process say."""
        return CacheSettings(
            enabled=settings.metrics_cache_enabled,
            ttl_seconds=settings.metrics_cache_ttl,
            stale_seconds=settings.stale_threshold,
            cleanup_interval_seconds=settings.metrics_cache_cleanup_interval,
            fetch_interval_seconds=settings.metrics_cache_fetch_interval,
            max_size=settings.metrics_cache_max_size,
            interval_seconds=settings.global_opt_interval,
        )

    @property
    def reuse_seconds(self) -> float:
        """How long an answer may be used again; 0 when it may not."""
        return min(self.ttl_seconds, self.stale_seconds) if self.enabled and self.ttl_seconds is not None else 0.0

    @property
    def background_seconds(self) -> float:
        """Time between two fetches in the background; 0 without any. What may not be used again is not fetched."""
        return self.fetch_interval_seconds if self.reuse_seconds else 0.0


@dataclass(slots=True)
class _Entry:
    """The answers of one chunk; ``oldest`` is the time of their oldest fresh sample, ``used`` of their last use."""

    answers: Answers
    pods: Pods
    at: float
    oldest: float
    used: float


class AnswerCache:
    """Keeps the answers of the last cycles."""

    def __init__(
        self, *, settings: Callable[[], CacheSettings], freshness: Callable[[], Freshness], instruments: Instruments
    ) -> None:
        """Ask settings and age limits for each use, since both change while the process runs."""
        self._current_settings = settings
        self._freshness = freshness
        self._hits = instruments.prometheus_cache_lookups.labels("hit")
        self._misses = instruments.prometheus_cache_lookups.labels("miss")
        self._size = instruments.prometheus_cache_entries
        self._entries: dict[tuple[Query, ...], _Entry] = {}
        self._settings = settings()
        self._cleaned: float | None = None

    def find(self, queries: tuple[Query, ...], pods: Pods, *, now: float) -> Answers | None:
        """Return the answers to these queries if they may be used again, else None."""
        settings = self._obey()
        if not settings.enabled:
            return None
        entry = self._entries.get(queries)
        if entry is None or not self._usable(entry, pods, now=now):
            self._misses.inc()
            return None
        self._hits.inc()
        entry.used = now
        return entry.answers

    def keep(self, queries: tuple[Query, ...], pods: Pods, answers: Answers, *, now: float) -> None:
        """Take answers that were given at ``now``, if they could be used again."""
        settings = self._obey()
        self._entries.pop(queries, None)
        if settings.reuse_seconds and not any(answer.warnings for answer in answers.values()):
            oldest = _oldest_fresh(answers, pods, now=now, fresh_seconds=self._freshness().fresh_seconds)
            self._entries[queries] = _Entry(answers, pods, now, oldest, now)
        while settings.max_size and len(self._entries) > settings.max_size:
            del self._entries[min(self._entries, key=lambda key: self._entries[key].used)]
        self._size.set(len(self._entries))

    def due(self, queries: tuple[Query, ...], *, now: float) -> bool:
        """Tell whether kept answers are old enough to be fetched in the background: no cycle has just asked them."""
        seconds = self._obey().background_seconds
        entry = self._entries.get(queries)
        return bool(seconds) and entry is not None and abs(now - entry.at) >= seconds / 2

    def clean(self, *, now: float) -> None:
        """Forget, once per cleanup interval, the answers that were not used since the last time."""
        seconds = self._obey().cleanup_interval_seconds
        if self._cleaned is not None and 0 <= now - self._cleaned < seconds:
            return
        self._cleaned = now
        unused = [queries for queries, entry in self._entries.items() if not 0 <= now - entry.used < seconds]
        for queries in unused:
            del self._entries[queries]
        self._size.set(len(self._entries))

    def _usable(self, entry: _Entry, pods: Pods, *, now: float) -> bool:
        young = -_SAME_MOMENT_SECONDS <= now - entry.at < self._settings.reuse_seconds
        return young and entry.pods == pods and now - entry.oldest < self._freshness().fresh_seconds

    def _obey(self) -> CacheSettings:
        """Return the settings in force; when they have changed, nothing kept under the former counts."""
        settings = self._current_settings()
        if settings != self._settings:
            self._settings = settings
            self._entries.clear()
            self._size.set(0)
        return settings


def _oldest_fresh(answers: Answers, pods: Pods, *, now: float, fresh_seconds: float) -> float:
    """Return the time of the oldest sample that is fresh at ``now``; ``now`` when none is."""
    return min((time for time in _times(answers, pods) if now - time < fresh_seconds), default=now)


def _times(answers: Answers, pods: Pods) -> Iterable[float]:
    series = [
        each
        for name in TIMESTAMP_QUERIES & answers.keys()
        for each in answers[name].series
        if (each.metric.get("namespace"), each.metric.get("pod") or each.metric.get("pod_name")) in pods
    ]
    if SCHEDULER_QUEUE in answers:
        series += [
            each for each in answers[SCHEDULER_QUEUE].series if each.metric.get("signal") == QueueSignal.TIMESTAMP
        ]
    for each in series:
        time = FINITE.find(each.value[1]) if each.value is not None else None
        if time is not None:
            yield time
