"""One controller process: what exists, what starts when, what stops in which order.

Start: servers (probes answer from the first second), then watch streams and the event recorder on every process, then,
once this process leads, the reconcilers and the optimizer loop. Nothing decides before every cache it reads has synced
and the ConfigMaps in it have been taken.

Stop: loops and reconcilers end first, so that no write can follow; then pending events are sent, the Lease is released,
the watch streams end and the servers close. Losing the Lease takes the same way and ends the process with status 1, for
the next container to start clean.

What is built where: ``servers`` the HTTP endpoints, ``informers`` the watch streams, ``election`` who may write,
``prometheus`` the client of Prometheus, ``decisions`` what the leader runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from wva import log
from wva.app.decisions import Decisions
from wva.app.election import Leadership
from wva.app.environment import Environment
from wva.app.informers import build_informers
from wva.app.lag import LoopLag
from wva.app.prometheus import prometheus_client
from wva.app.servers import Servers
from wva.clock import SystemClock
from wva.kube.leader import LeadershipLost
from wva.kube.supervision import Supervisor
from wva.publish.ledger import Ledger

CONFIG_PAGE: Final = "/debug/config"
"""Every setting with its value and source, beside the metrics and behind the same gate."""
_DRAIN_SECONDS: Final = 2.0


class _Stop(Exception):  # noqa: N818 - raised on purpose, to leave the task groups
    """The process was asked to end."""


class Application:
    """One controller process."""

    def __init__(self, environment: Environment) -> None:
        """Build everything; nothing runs before ``run``. Raises AddressError or CertificateError."""
        self._env = environment
        self._logger = log.get("app")
        self.supervisor = Supervisor(clock=environment.clock, instruments=environment.instruments)
        self.leadership = Leadership(environment, self.supervisor)
        self.lag = LoopLag(environment.instruments)
        self._servers = Servers(environment)
        self._informers = build_informers(
            environment.client, settings=environment.settings, instruments=environment.instruments
        )
        self.decisions = Decisions(
            environment, informers=self._informers, leadership=self.leadership, supervisor=self.supervisor
        )
        self.ledger: Ledger = self.decisions.ledger

    @property
    def metrics_port(self) -> int | None:
        """The port of ``/metrics``, None while nothing listens."""
        return self._servers.metrics_port

    @property
    def probe_port(self) -> int | None:
        """The port of the probes, None while nothing listens."""
        return self._servers.probe_port

    @property
    def idle(self) -> bool:
        """Whether nothing is being decided, reconciled or recorded: all that happens next waits for time or news."""
        return self.decisions.idle and self.leadership.recorder.idle

    @property
    def paused(self) -> bool:
        """Whether the queries that are open all wait for the clock before they are sent again."""
        return self.decisions.paused

    def cache_versions(self) -> dict[str, str]:
        """Return the resourceVersion that each cache has reached, by resource name."""
        return self._informers.versions()

    def not_ready(self) -> list[str]:
        """Return why the process is not ready, one line per reason. Not leading is none of them."""
        reasons = self._informers.statuses()
        return [*reasons, *self.decisions.not_ready()] if self.leadership.in_charge else reasons

    async def run(self, stop: asyncio.Event) -> int:
        """Run until ``stop`` is set; return the exit status: 0, or 1 after losing the Lease. Raises AddressError."""
        status = 0
        try:
            async with AsyncExitStack() as stack:
                pages = {CONFIG_PAGE: self.decisions.configuration.settings.describe}
                unhealthy = self.supervisor.unhealthy
                await self._servers.start(
                    stack, not_ready=self.not_ready, unhealthy=unhealthy, pages=pages, series=self.decisions.series
                )
                self.decisions.connect(await stack.enter_async_context(prometheus_client(self._env)))
                async with self._background():
                    await self._lead(stop)
        except* _Stop:
            self._logger.info("stopped")
        except* LeadershipLost as lost:
            self._logger.error("leadership_lost", reason=_first(lost), next="exit with status 1")  # noqa: TRY400 - expected; a traceback would say nothing
            status = 1
        return status

    @asynccontextmanager
    async def _background(self) -> AsyncIterator[None]:
        """Run around the body what every process runs, leader or not."""
        keep = self.supervisor.keep
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(keep(f"informer {informer.resource.name}", informer.run))
                for informer in self._informers.all
            ]
            tasks.append(group.create_task(keep("event loop lag", self.lag.run)))
            tasks.append(group.create_task(keep("event recorder", self.leadership.recorder.run)))
            certificate = self._servers.certificate
            if certificate is not None:
                tasks.append(group.create_task(keep("certificate", lambda: certificate.run(SystemClock()))))
            try:
                yield
            finally:
                await self.leadership.leave(_DRAIN_SECONDS)
                for task in tasks:
                    task.cancel()

    async def _lead(self, stop: asyncio.Event) -> None:
        """Wait for leadership, then decide and write until told to stop or leadership is lost."""
        elector = self.leadership.elector
        async with asyncio.TaskGroup() as group:
            group.create_task(_stop_on(stop))
            if elector is not None:
                async with self.leadership.watching():
                    await elector.acquire()
                group.create_task(elector.hold())
            try:
                await self._work()
            finally:
                self.leadership.set_in_charge(False)

    async def _work(self) -> None:
        """Run what the leader runs. The series appear with the first look at the variants."""
        for informer in self._informers.all:
            await informer.store.synced.wait()
        self._env.synced()
        await self.decisions.begin()
        self.leadership.set_in_charge(True)
        variants = len(self._informers.stores.variant_autoscalings)
        self._logger.info("started", identity=self.leadership.identity, variants=variants)
        await self.decisions.run()


def _first(group: BaseExceptionGroup[BaseException]) -> str:
    """Return the text of the first exception inside; each task group on the way out has added a layer."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


async def _stop_on(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _Stop
