"""Answers of Prometheus that may be used again: all answers about one chunk of namespaces, kept together.

A decision on an outdated answer is worse than one more query. So the cache returns an answer only

- within the TTL, and never when the answer is older than the stale threshold. Without a TTL every cycle asks
Prometheus;
- as a whole: a value and the time of its sample must come from the same instant;
- while the Ready pods are the same as when it was asked: a pod that comes or goes changes the load of the others;
- while each sample that was fresh then is still fresh, so that a cached answer never makes WVA hold a number.

Samples keep their own times, so their freshness is judged as if the answer had just come. The cache keeps no failures
and no incomplete answers. Any change of the settings empties the cache, also a change of the interval. Times are
seconds since the epoch, given by the caller. After the clock was set back, the cache finds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from wva.clock import Clock
from wva.collect.queries import SCHEDULER_QUEUE, TIMESTAMP_QUERIES, Query, QueueSignal
from wva.config import Settings
from wva.instruments import Instruments
from wva.model.metrics import Freshness
from wva.numbers import FINITE
from wva.prometheus.answers import InstantVector

Answers = Mapping[str, InstantVector]
"""By query name."""

Pods = frozenset[tuple[str, str]]
"""Namespace and name of every Ready pod that the queries concern."""

_SAME_MOMENT_SECONDS: Final = 0.5
"""An answer may seem so much newer than the cycle that takes it, if the query was sent while the cycle began."""


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
        """Time between two fetches in the background; 0: no fetches, as when answers may not be used again."""
        return self.fetch_interval_seconds if self.reuse_seconds else 0.0


@dataclass(slots=True)
class _CachedChunk:
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
        """Read settings and age limits at each use, since both change while the process runs."""
        self._current_settings = settings
        self._freshness = freshness
        self._hits = instruments.prometheus_cache_lookups.labels("hit")
        self._misses = instruments.prometheus_cache_lookups.labels("miss")
        self._size = instruments.prometheus_cache_entries
        self._entries: dict[tuple[Query, ...], _CachedChunk] = {}
        self._settings = settings()
        self._cleaned: float | None = None

    def find(self, queries: tuple[Query, ...], pods: Pods, *, now: float) -> Answers | None:
        """Return the answers to these queries if they may be used again, else None."""
        settings = self._obey()
        if not settings.enabled:
            return None
        entry = self._entries.get(queries)
        if (
            entry is None
            or entry.pods != pods
            or not -_SAME_MOMENT_SECONDS <= now - entry.at < settings.reuse_seconds
            or now - entry.oldest >= self._freshness().fresh_seconds
        ):
            self._misses.inc()
            return None
        self._hits.inc()
        entry.used = now
        return entry.answers

    def keep(self, queries: tuple[Query, ...], pods: Pods, answers: Answers, *, now: float) -> None:
        """Keep answers that Prometheus gave at ``now``, if they may be used again."""
        settings = self._obey()
        self._entries.pop(queries, None)
        if settings.reuse_seconds and not any(answer.warnings for answer in answers.values()):
            fresh_seconds = self._freshness().fresh_seconds
            fresh = (time for time in _times(answers, pods) if now - time < fresh_seconds)
            self._entries[queries] = _CachedChunk(answers, pods, now, min(fresh, default=now), now)
        while settings.max_size and len(self._entries) > settings.max_size:
            del self._entries[min(self._entries, key=lambda key: self._entries[key].used)]
        self._size.set(len(self._entries))

    def due(self, queries: tuple[Query, ...], *, now: float) -> bool:
        """Tell whether kept answers are old enough to be fetched again in the background."""
        seconds = self._obey().background_seconds
        entry = self._entries.get(queries)
        return bool(seconds) and entry is not None and abs(now - entry.at) >= seconds / 2

    def clean(self, *, now: float) -> None:
        """Once per cleanup interval, forget the answers that were not used since the last cleanup."""
        seconds = self._obey().cleanup_interval_seconds
        if self._cleaned is not None and 0 <= now - self._cleaned < seconds:
            return
        self._cleaned = now
        self._entries = {queries: entry for queries, entry in self._entries.items() if 0 <= now - entry.used < seconds}
        self._size.set(len(self._entries))

    def _obey(self) -> CacheSettings:
        """Return the settings in force; if they have changed, empty the cache."""
        former, self._settings = self._settings, self._current_settings()
        if self._settings != former:
            self._entries.clear()
            self._size.set(0)
        return self._settings


def _times(answers: Answers, pods: Pods) -> list[float]:
    """Return the times of the samples of these pods and of the schedulers' queues."""
    series = [
        each
        for name in TIMESTAMP_QUERIES & answers.keys()
        for each in answers[name].series
        if (each.metric.namespace, each.metric.pod or each.metric.pod_name) in pods
    ]
    if SCHEDULER_QUEUE in answers:
        series += [each for each in answers[SCHEDULER_QUEUE].series if each.metric.signal == QueueSignal.TIMESTAMP]
    times = (FINITE.find(each.value[1]) for each in series if each.value is not None)
    return [time for time in times if time is not None]


@dataclass(eq=False)
class BackgroundFetch:
    """Fetches kept answers again between cycles, so that a cycle finds new ones and WVA sees an outage early.

    It calls ``refresh``, which must not raise, with the time (seconds since the epoch), once per fetch interval while
    there is one.
    """

    refresh: Callable[[float], Awaitable[None]]
    _: KW_ONLY
    settings: Callable[[], CacheSettings]
    clock: Clock
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def settings_changed(self) -> None:
        """Read the settings again; a changed interval counts from now."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._changed.clear()
            seconds = self.settings().background_seconds
            if not await self.clock.wait(self._changed, seconds or None):
                await self.refresh(self.clock.now())
