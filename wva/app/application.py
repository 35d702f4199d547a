"""One controller process: its parts, when each of them starts, and in which order they stop.

The servers start first, so the probes answer from the first second. Then every process runs its watch streams and the
event recorder. Once this process leads, it also runs the reconcilers and the optimizer loop. It decides nothing before
every cache that it reads has synced, and before it has taken the ConfigMaps in them.

At the end the loops and reconcilers stop first, so that no write can follow. Then the process sends the pending events
and releases the Lease. The watch streams and the servers stop last. A process that loses the Lease stops in the same
order, and exits with status 1, so that the next container starts clean.

The parts are modules of their own, each of which may use those before it: ``election`` (what depends on leadership),
``informers`` (the watch streams), ``asking`` (Prometheus), ``reconciling`` (object by object), ``views`` (series and
pages), ``deciding`` (the cycles), ``servers`` (the HTTP endpoints). ``Application`` builds them in this order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from random import Random
from typing import Final, NoReturn

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from wva import log
from wva.actuation import Mode, mode_of
from wva.api.meta import Key
from wva.app.asking import Asking
from wva.app.deciding import Deciding
from wva.app.election import Leadership
from wva.app.informers import Informers
from wva.app.reconciling import Reconciling
from wva.app.servers import Probes, certificate_of, start_servers
from wva.app.views import Views
from wva.clock import Clock, SystemClock
from wva.config import Inputs, Settings
from wva.config.live import LiveConfiguration
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.leader import LeadershipLost
from wva.kube.supervision import Supervisor
from wva.model.variant import VariantKey
from wva.publish.announce import Announcer
from wva.publish.ledger import Ledger
from wva.serve.pages import CONFIG_PAGE

LAG_PERIOD_SECONDS: Final = 0.1
"""Ten measurements a second cost less than a thousandth of a CPU."""


class _Stop(Exception):  # noqa: N818 - raised on purpose, to leave the task groups
    """The process was asked to end."""


class Application:
    """One controller process."""

    def __init__(
        self,
        settings: Settings,
        inputs: Inputs,
        *,
        client: KubeClient,
        instruments: Instruments,
        clock: Clock | None = None,
        probes: Probes | None = None,
        synced: Callable[[], None] = lambda: None,
        cycle: Callable[[], AbstractContextManager[None]] = nullcontext,
        random: Random | None = None,
        open_console: bool = False,
    ) -> None:
        """Build everything; nothing runs before ``run``. Raises AddressError or CertificateError.

        ``inputs`` is what the settings were read from. The embedded world passes its own ``clock``. ``probes`` is a
        server of probes that listens already; without it the application starts its own. The application calls
        ``synced`` once, when every cache has synced, and runs each cycle of decisions within ``cycle``. ``random``
        spreads the pauses before something is tried again. ``metrics_port`` and ``probe_port`` are None while nothing
        listens.
        """
        clock = clock or SystemClock()
        self._open_console = open_console
        self._settings = settings
        self._instruments = instruments
        self._clock = clock
        self._synced = synced
        self._random = random or Random()  # noqa: S311 - spreads load, guards no secret
        self._logger = log.get("app")
        self._client = client  # without a write guard: standbys ask for reviews, too
        self._probes = probes
        self._certificate = certificate_of(settings, instruments=instruments)
        self.metrics_port: int | None = None
        self.probe_port: int | None = None
        self.console_port: int | None = None
        self.supervisor = Supervisor(clock=clock, instruments=instruments)
        self.leadership = Leadership(settings, client, self.supervisor, clock=clock, instruments=instruments)
        self.informers = Informers(client, settings=settings, instruments=instruments)
        self.ledger = Ledger(asked_for_shadow=self._asked_for_shadow)
        self.announce = Announcer(self.informers.stores.variant_autoscalings, self.leadership.recorder)
        self.configuration = LiveConfiguration(settings, inputs, refusal=self.informers.scope.refusal)
        self.asking = Asking(
            settings,
            ledger=self.ledger,
            revisit=lambda key: self.reconciling.variants.queue.add(Key(key.namespace, key.name)),
            revisit_namespace=lambda namespace: self.reconciling.variants.enqueue_all(namespace),  # noqa: PLW0108 - built below
            mark=lambda keys: self.views.series.mark(keys),  # noqa: PLW0108 - built below
            random=self._random,
            clock=clock,
            instruments=instruments,
        )
        self.reconciling = Reconciling(
            settings,
            leadership=self.leadership,
            informers=self.informers,
            configuration=self.configuration,
            ledger=self.ledger,
            announce=self.announce,
            asking=self.asking,
            certificate=self._certificate,
            clock=clock,
            instruments=instruments,
        )
        self.views = Views(
            settings,
            leadership=self.leadership,
            informers=self.informers,
            ledger=self.ledger,
            asking=self.asking,
            reconciling=self.reconciling,
            asked_for_shadow=self._asked_for_shadow,
            interval=lambda: self.configuration.interval_seconds,
            instruments=instruments,
        )
        self.deciding = Deciding(
            settings,
            leadership=self.leadership,
            informers=self.informers,
            configuration=self.configuration,
            ledger=self.ledger,
            announce=self.announce,
            asking=self.asking,
            reconciling=self.reconciling,
            views=self.views,
            around=cycle,
            clock=clock,
            instruments=instruments,
        )
        self.supervisor.watch(self.deciding.optimizer.stuck)

    @property
    def idle(self) -> bool:
        """Whether the process decides, reconciles and records nothing now: it waits for a timer or a change."""
        return self.deciding.idle and self.reconciling.idle and self.leadership.recorder.idle

    @property
    def paused(self) -> bool:
        """Whether every open query waits for the clock before the client sends it again."""
        return self.asking.client.paused

    def cache_versions(self) -> dict[str, str]:
        """Return the resourceVersion that each cache has reached, by resource name."""
        return self.informers.versions()

    def not_ready(self) -> list[str]:
        """Return why the process is not ready, one line per reason. A process that does not lead can be ready."""
        reasons, in_charge = self.informers.statuses(), self.leadership.in_charge
        prometheus = (
            self.deciding.collector.prometheus_status() if in_charge else None
        ) or self.asking.first_answer.missing()
        reasons += [f"prometheus: {prometheus}"] if prometheus else []
        cycles = self.deciding.optimizer.not_ready() if in_charge else None
        reasons += [cycles] if cycles else []
        return reasons

    async def run(self, stop: asyncio.Event) -> int:
        """Run until ``stop`` is set; return the exit status: 0, or 1 after losing the Lease. Raises AddressError."""
        keep, recorder, certificate = self.supervisor.keep, self.leadership.recorder, self._certificate
        status = 0
        try:
            async with AsyncExitStack() as stack:
                self.probe_port, self.metrics_port, self.console_port = await start_servers(
                    stack,
                    self._settings,
                    client=self._client,
                    clock=self._clock,
                    instruments=self._instruments,
                    certificate=certificate,
                    probes=self._probes,
                    not_ready=self.not_ready,
                    unhealthy=self.supervisor.unhealthy,
                    pages={CONFIG_PAGE: self.configuration.settings.describe},
                    routers=[self.views.decisions],
                    console=[self.views.console],
                    open_console=self._open_console,
                    series=self.views.series,
                )
                await stack.enter_async_context(self.asking.client)
                async with asyncio.TaskGroup() as group:
                    # What every process runs, whether it leads or not.
                    loops = [(f"informer {informer.resource.name}", informer.run) for informer in self.informers.all]
                    lag = partial(measure_lag, self._instruments)
                    loops += [("event loop lag", lag), ("event recorder", recorder.run)]
                    loops.append(("first answer", self.asking.first_answer.run))
                    if certificate is not None:
                        loops.append(("certificate", lambda: certificate.run(SystemClock())))
                    tasks = [group.create_task(keep(name, loop)) for name, loop in loops]
                    try:
                        await self._lead(stop)
                    finally:
                        await self.leadership.leave()
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
        leadership = self.leadership

        async def end() -> None:
            await stop.wait()
            raise _Stop

        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            group.create_task(end())
            if leadership.elector is not None:
                await leadership.acquire(leadership.elector)
                group.create_task(leadership.elector.hold())
            try:
                for informer in self.informers.all:
                    await informer.store.synced.wait()
                self._synced()
                await self.reconciling.watch()
                leadership.in_charge = True
                if self.reconciling.push is not None:
                    await stack.enter_async_context(self.reconciling.push)
                variants = len(self.informers.stores.variant_autoscalings)
                self._logger.info("started", identity=leadership.identity, variants=variants)
                async with asyncio.TaskGroup() as loops:
                    for name, loop in (*self.reconciling.loops(self._random), *self.deciding.loops()):
                        loops.create_task(self.supervisor.keep(name, loop))
            finally:
                leadership.in_charge = False

    def _asked_for_shadow(self, key: VariantKey) -> bool:
        """Tell whether the annotations ask for shadow mode."""
        va = self.informers.stores.variant_autoscalings.get(Key(key.namespace, key.name))
        if va is None:
            return False
        return mode_of(va, self.informers.scope.namespaces.get(Key("", key.namespace))) is Mode.SHADOW


async def measure_lag(instruments: Instruments) -> NoReturn:
    """Measure how late the event loop is: how long probes, watches and the renewal of the Lease wait for their turn.

    This task asks to be woken after a period, and measures how much later it is woken. If work holds the loop for a
    time D, the task is late by D, less the part of the period that had not passed when the work began. It measures in
    real time, even if the controller has another clock.
    """
    while True:
        due = time.monotonic() + LAG_PERIOD_SECONDS
        await asyncio.sleep(LAG_PERIOD_SECONDS)
        instruments.event_loop_lag.observe(max(0.0, time.monotonic() - due))


def new_registry() -> CollectorRegistry:
    """Return a registry with the process's own metrics."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
