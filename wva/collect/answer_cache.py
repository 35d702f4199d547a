"""Answers of Prometheus that may be used again: all answers about one chunk of namespaces, kept together.

A decision on an outdated answer is worse than one more query. So the cache returns an answer only

- within the TTL, and never when it is older than the stale threshold; without a TTL every cycle asks Prometheus;
- as a whole: a value and the time of its sample must come from the same instant;
- while the Ready pods are the same as when it was asked: a pod that comes or goes changes the load of the others;
- while each sample that was fresh then is still fresh, so that a cached answer never makes WVA hold a number.

Samples keep their own times, so their freshness is judged as if the answer had just come. The cache keeps no failures
and no incomplete answers. Any change of a setting empties the cache. Times are seconds since the epoch, given by the
caller. After the clock was set back, the cache finds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from wva.clock import Clock
from wva.collect.queries import ESSENTIAL_QUERIES, SCHEDULER_QUEUE, QueueSignal, SampleSignal
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


def reuse_seconds(settings: Settings) -> float:
    """Return how long an answer may be used again; 0 when it may not."""
    ttl = settings.metrics_cache_ttl if settings.metrics_cache_enabled else None
    return 0.0 if ttl is None else min(ttl, settings.stale_threshold)


def background_seconds(settings: Settings) -> float:
    """Return the time between two fetches in the background; 0: no fetch, because answers may not be used again."""
    return settings.metrics_cache_fetch_interval if reuse_seconds(settings) else 0.0


@dataclass(slots=True)
class _CachedChunk:
    """The answers of one chunk; ``oldest`` is the time of their oldest fresh sample, ``used`` of their last use."""

    answers: Answers
    pods: Pods
    at: float
    oldest: float
    used: float


class AnswerCache:
    """Keeps the answers of the last cycles, by chunk."""

    def __init__(
        self, *, settings: Callable[[], Settings], freshness: Callable[[], Freshness], instruments: Instruments
    ) -> None:
        """Read settings and age limits at each use, since both change while the process runs."""
        self._current_settings = settings
        self._freshness = freshness
        self._lookups = instruments.prometheus_cache_lookups
        self._size = instruments.prometheus_cache_entries
        self._entries: dict[Hashable, _CachedChunk] = {}
        self._settings = settings()
        self._cleaned: float | None = None

    def find(self, chunk: Hashable, pods: Pods, *, now: float) -> Answers | None:
        """Return the answers about a chunk if they may be used again, else None."""
        settings = self._obey()
        if not settings.metrics_cache_enabled:
            return None
        entry = self._entries.get(chunk)
        if (
            entry is None
            or entry.pods != pods
            or not -_SAME_MOMENT_SECONDS <= now - entry.at < reuse_seconds(settings)
            or now - entry.oldest >= self._freshness().fresh_seconds
        ):
            self._lookups.labels("miss").inc()
            return None
        self._lookups.labels("hit").inc()
        entry.used = now
        return entry.answers

    def keep(self, chunk: Hashable, pods: Pods, answers: Answers, *, now: float) -> None:
        """Keep answers that Prometheus gave at ``now``, if they may be used again."""
        settings = self._obey()
        self._entries.pop(chunk, None)
        if reuse_seconds(settings) and not any(answer.warnings for answer in answers.values()):
            fresh_seconds = self._freshness().fresh_seconds
            # The times of the samples of these pods and of the schedulers' queues.
            series = [
                element
                for name in ESSENTIAL_QUERIES.keys() & answers.keys()
                for element in answers[name].series
                if element.metric.signal == SampleSignal.TIMESTAMP
                and (element.metric.namespace, element.metric.pod) in pods
            ]
            queues = answers.get(SCHEDULER_QUEUE, InstantVector()).series
            series += [element for element in queues if element.metric.signal == QueueSignal.TIMESTAMP]
            times = (FINITE.find(element.value[1]) for element in series if element.value is not None)
            fresh = (time for time in times if time is not None and now - time < fresh_seconds)
            self._entries[chunk] = _CachedChunk(answers, pods, now, min(fresh, default=now), now)
        while 0 < settings.metrics_cache_max_size < len(self._entries):
            del self._entries[min(self._entries, key=lambda key: self._entries[key].used)]
        self._size.set(len(self._entries))

    def due(self, chunk: Hashable, *, now: float) -> bool:
        """Tell whether kept answers are old enough to be fetched again in the background."""
        seconds = background_seconds(self._obey())
        entry = self._entries.get(chunk)
        return bool(seconds) and entry is not None and abs(now - entry.at) >= seconds / 2

    def clean(self, *, now: float) -> None:
        """Once per cleanup interval, forget the answers that were not used since the last cleanup."""
        seconds = self._obey().metrics_cache_cleanup_interval
        if self._cleaned is not None and 0 <= now - self._cleaned < seconds:
            return
        self._cleaned = now
        self._entries = {chunk: entry for chunk, entry in self._entries.items() if 0 <= now - entry.used < seconds}
        self._size.set(len(self._entries))

    def _obey(self) -> Settings:
        """Return the settings in force; if they have changed, empty the cache."""
        former, self._settings = self._settings, self._current_settings()
        if self._settings != former:
            self._entries.clear()
            self._size.set(0)
        return self._settings


@dataclass(eq=False)
class BackgroundFetch:
    """Fetches kept answers again between cycles, so that a cycle finds new ones and WVA sees an outage early.

    It calls ``refresh``, which must not raise, with the time (seconds since the epoch), once per fetch interval while
    there is one.
    """

    refresh: Callable[[float], Awaitable[None]]
    _: KW_ONLY
    settings: Callable[[], Settings]
    clock: Clock
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def settings_changed(self) -> None:
        """Read the settings again; a changed interval counts from now."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._changed.clear()
            seconds = background_seconds(self.settings())
            if not await self.clock.wait(self._changed, seconds or None):
                await self.refresh(self.clock.now())
