"""One controller process: what exists, what starts when, what stops in which order.

Start: servers (probes answer from the first second), then watch streams and the event recorder on every process, then,
once this process leads, the reconcilers and the optimizer loop. Nothing decides before every cache it reads has synced
and the ConfigMaps in it have been taken.

Stop: loops and reconcilers end first, so that no write can follow; then pending events are sent, the Lease is released,
the watch streams end and the servers close. Losing the Lease takes the same way and ends the process with status 1, for
the next container to start clean.

What is built where: ``servers`` the HTTP endpoints, ``informers`` the watch streams, ``election`` who may write,
``decisions`` what the leader runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from random import Random
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from wva import log
from wva.app.decisions import Decisions
from wva.app.election import Leadership
from wva.app.informers import build_informers
from wva.app.servers import Probes, Servers
from wva.clock import Clock, SystemClock
from wva.config import Given, Settings
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.leader import LeadershipLost
from wva.kube.supervision import Supervisor
from wva.prometheus.client import PrometheusClient
from wva.prometheus.settings import PrometheusSettings

CONFIG_PAGE: Final = "/debug/config"
"""Every setting with its value and source, beside the metrics and behind the same gate."""
LAG_PERIOD_SECONDS: Final = 0.1
"""Ten measurements a second cost less than a thousandth of a CPU."""
_DRAIN_SECONDS: Final = 2.0


class _Stop(Exception):  # noqa: N818 - raised on purpose, to leave the task groups
    """The process was asked to end."""


class Application:
    """One controller process."""

    def __init__(
        self,
        settings: Settings,
        given: Given,
        *,
        client: KubeClient,
        instruments: Instruments,
        clock: Clock | None = None,
        probes: Probes | None = None,
        synced: Callable[[], None] = lambda: None,
        cycle: Callable[[], AbstractContextManager[None]] = nullcontext,
        random: Random | None = None,
    ) -> None:
        """Build everything; nothing runs before ``run``. Raises AddressError or CertificateError.

        ``given`` is what the settings were read from. The embedded world passes its own ``clock``. ``probes`` is a
        server of probes that listens already; without it the application starts its own. ``synced`` is called once
        every cache has been filled, and each cycle of decisions runs within ``cycle``. ``random`` spreads the pauses
        before a query is sent again.
        """
        clock = clock or SystemClock()
        self._synced = synced
        self._logger = log.get("app")
        self.supervisor = Supervisor(clock=clock, instruments=instruments)
        self.leadership = Leadership(settings, client, self.supervisor, clock=clock, instruments=instruments)
        self.lag = LoopLag(instruments)
        self._servers = Servers(settings, client, clock=clock, instruments=instruments, probes=probes)
        self._informers = build_informers(client, settings=settings, instruments=instruments)
        self._prometheus = PrometheusClient(
            PrometheusSettings.of(settings), clock=clock, instruments=instruments, random=random
        )
        self.decisions = Decisions(
            settings,
            given,
            informers=self._informers,
            leadership=self.leadership,
            prometheus=self._prometheus,
            supervisor=self.supervisor,
            cycle=cycle,
            clock=clock,
            instruments=instruments,
        )
        self.ledger = self.decisions.ledger

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
        """Whether the process decides, reconciles and records nothing now: it waits for a timer or a change."""
        return self.decisions.idle and self.leadership.recorder.idle

    @property
    def paused(self) -> bool:
        """Whether every open query waits for the clock before the client sends it again."""
        return self._prometheus.paused

    def cache_versions(self) -> dict[str, str]:
        """Return the resourceVersion that each cache has reached, by resource name."""
        return self._informers.versions()

    def not_ready(self) -> list[str]:
        """Return why the process is not ready, one line per reason. A process that does not lead can be ready."""
        reasons = self._informers.statuses()
        return [*reasons, *self.decisions.not_ready()] if self.leadership.in_charge else reasons

    async def run(self, stop: asyncio.Event) -> int:
        """Run until ``stop`` is set; return the exit status: 0, or 1 after losing the Lease. Raises AddressError."""
        keep, recorder, certificate = self.supervisor.keep, self.leadership.recorder, self._servers.certificate
        status = 0
        try:
            async with AsyncExitStack() as stack:
                await self._servers.start(
                    stack,
                    not_ready=self.not_ready,
                    unhealthy=self.supervisor.unhealthy,
                    pages={CONFIG_PAGE: self.decisions.configuration.settings.describe},
                    series=self.decisions.series,
                )
                await stack.enter_async_context(self._prometheus)
                async with asyncio.TaskGroup() as group:
                    # What every process runs, whether it leads or not.
                    loops = [(f"informer {informer.resource.name}", informer.run) for informer in self._informers.all]
                    loops += [("event loop lag", self.lag.run), ("event recorder", recorder.run)]
                    if certificate is not None:
                        loops.append(("certificate", lambda: certificate.run(SystemClock())))
                    tasks = [group.create_task(keep(name, loop)) for name, loop in loops]
                    try:
                        await self._lead(stop)
                    finally:
                        await self.leadership.leave(_DRAIN_SECONDS)
                        for task in tasks:
                            task.cancel()
        except* _Stop:
            self._logger.info("stopped")
        except* LeadershipLost as lost:
            error: BaseException = lost
            while isinstance(error, BaseExceptionGroup):  # each task group on the way out has added a layer
                error = error.exceptions[0]
            self._logger.error("leadership_lost", reason=str(error), next="exit with status 1")  # noqa: TRY400 - expected; a traceback would say nothing
            status = 1
        return status

    async def _lead(self, stop: asyncio.Event) -> None:
        """Wait for leadership, then decide and write until told to stop or leadership is lost."""
        elector = self.leadership.elector

        async def end() -> None:
            await stop.wait()
            raise _Stop

        async with asyncio.TaskGroup() as group:
            group.create_task(end())
            if elector is not None:
                async with self.leadership.watching():
                    await elector.acquire()
                group.create_task(elector.hold())
            try:
                for informer in self._informers.all:
                    await informer.store.synced.wait()
                self._synced()
                await self.decisions.begin()
                self.leadership.set_in_charge(True)
                variants = len(self._informers.stores.variant_autoscalings)
                self._logger.info("started", identity=self.leadership.identity, variants=variants)
                await self.decisions.run()
            finally:
                self.leadership.set_in_charge(False)


class LoopLag:
    """Measures how late one event loop is: how long probes, watches and the renewal of the Lease wait for their turn.

    A task asks to be woken after a period and looks how much later it was. If work holds the loop for a time D, the
    task is late by D, less the part of the period that had not passed when the work began. ``longest_seconds`` is the
    most that was seen since the start.
    """

    def __init__(self, instruments: Instruments, *, period_seconds: float = LAG_PERIOD_SECONDS) -> None:
        """Measure nothing yet. A shorter period sees short pieces of work more exactly, and costs more."""
        self._lag = instruments.event_loop_lag
        self._period = period_seconds
        self.longest_seconds = 0.0

    async def run(self) -> None:
        """Look until cancelled; in real time, also when the controller has another clock."""
        while True:
            due = time.monotonic() + self._period
            await asyncio.sleep(self._period)
            late = max(0.0, time.monotonic() - due)
            self._lag.observe(late)
            self.longest_seconds = max(self.longest_seconds, late)


def new_registry() -> CollectorRegistry:
    """Return a registry with the process's own metrics."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
