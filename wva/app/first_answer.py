"""Whether Prometheus has answered any query of this process. Until then the process is not ready, leading or not.

A leader with running variants queries Prometheus in its first cycle. A standby sends no queries, and a leader has
nothing to ask while no variant runs. So both ask for a series of one namespace, which need not exist, until one answer
has come. Then a rollout with a wrong URL, certificate or token stops at its first pod, while the former pod goes on.
"""

from __future__ import annotations

import asyncio
from typing import Final

from wva import log
from wva.clock import Clock
from wva.collect.queries import ESSENTIAL_QUERIES, KV_CACHE_USAGE
from wva.kube.backoff import Backoff
from wva.prometheus.answers import PrometheusError
from wva.prometheus.client import PrometheusClient

_NAMESPACE: Final = "default"
_PAUSE_SECONDS: Final = 1.0
"""Before the first query, so that a leader has begun its first cycle."""

_log = log.get("app")


class FirstAnswer:
    """Waits for the first answer, and asks for it if no cycle does."""

    def __init__(self, prometheus: PrometheusClient, *, clock: Clock) -> None:
        """Ask nothing before ``run``."""
        self._prometheus = prometheus
        self._clock = clock
        self._trouble = "has not answered yet"

    def missing(self) -> str | None:
        """Return why there is no answer yet; None from the first one on."""
        return None if self._prometheus.answered.is_set() else self._trouble

    async def run(self) -> None:
        """Ask until there is an answer, then wait until cancelled."""
        backoff, pause = Backoff(base_seconds=2.0, cap_seconds=15.0), _PAUSE_SECONDS
        query = ESSENTIAL_QUERIES[KV_CACHE_USAGE]([_NAMESPACE])
        while not await self._clock.wait(self._prometheus.answered, pause):
            try:
                await self._prometheus.query(query.text, name=query.name, at=self._clock.now())
            except PrometheusError as error:
                trouble = f"query {query.name}: {error.message}"
                if trouble != self._trouble:
                    _log.warning("prometheus_not_answering", reason=trouble, next="asked again until it answers")
                self._trouble = trouble
            pause = backoff.next(self._clock.monotonic())
        await asyncio.Event().wait()
