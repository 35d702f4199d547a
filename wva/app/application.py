"""One controller process: its parts, when each of them starts, and in which order they stop.

The servers start first, so the probes answer from the first second. Then every process runs its watch streams and the
event recorder. Once this process leads, it also runs the reconcilers and the optimizer loop. It decides nothing before
every cache that it reads has synced, and before it has taken the ConfigMaps in them.

At the end the loops and reconcilers stop first, so that no write can follow. Then the process sends the pending events
and releases the Lease. The watch streams and the servers stop last. A process that loses the Lease stops in the same
order, and exits with status 1, so that the next container starts clean.

Other modules build some of the parts: ``servers`` the HTTP endpoints, ``informers`` the watch streams, ``election`` the
parts that depend on leadership.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, NoReturn

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from wva import log
from wva.actuation import DirectActuator, Mode, mode_of
from wva.api.core import ObjectReference
from wva.api.kinds import VARIANT_AUTOSCALINGS
from wva.api.meta import Key
from wva.app.election import Leadership
from wva.app.first_answer import FirstAnswer
from wva.app.informers import Informers
from wva.app.marks import mark_changes
from wva.app.servers import Probes, certificate_of, push_address, push_tls, start_servers
from wva.clock import Clock, SystemClock
from wva.collect.answer_cache import BackgroundFetch
from wva.collect.in_time import ServedUsers
from wva.collect.inventory import read_inventory
from wva.collect.queries import TargetLabels
from wva.collect.query_failures import QueryFailures
from wva.collect.snapshot import Collector
from wva.collect.troubles import Troubles
from wva.collect.variants import Claims
from wva.config import Given, Settings
from wva.config.live import LiveConfiguration
from wva.config.watch import ConfigMapController
from wva.controllers import NamespaceController, VariantAutoscalingController
from wva.decide.prices import priced
from wva.decide.start import Budget
from wva.fast_lane import FastLane
from wva.hindsight.cycle import Cycle
from wva.hindsight.recent import RecentCycles
from wva.hindsight.recordings import RecordingWriter
from wva.hindsight.shadow import ShadowAccounts
from wva.hindsight.timeline import Timeline
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.controller import Controller
from wva.kube.leader import LeadershipLost
from wva.kube.supervision import Supervisor
from wva.model.decision import Reason
from wva.model.inventory import UnknownInventory
from wva.model.trouble import UNTROUBLED, Trouble
from wva.model.variant import ModelKey, VariantKey
from wva.optimizer import OptimizerLoop
from wva.other_writers import OtherWriters
from wva.prometheus.client import CLOCK_TOLERANCE_SECONDS, PrometheusClient
from wva.prometheus.settings import PrometheusSettings
from wva.publish.ledger import Ledger
from wva.publish.metrics import SeriesText, VariantCollector
from wva.scale_from_zero.gateway import GatewayQueues
from wva.scale_from_zero.loop import AtRest, ScaleFromZero
from wva.scale_from_zero.starts import Activations, Starter
from wva.serve.addresses import Address
from wva.serve.console import ConsolePages
from wva.serve.decisions import DecisionPages
from wva.serve.pages import CONFIG_PAGE

if TYPE_CHECKING:
    from wva.serve.keda_push import PushServer

LAG_PERIOD_SECONDS: Final = 0.1
"""Ten measurements a second cost less than a thousandth of a CPU."""
_WORKERS: Final = 8
"""How many statuses are written at once: while one worker waits for the API server, another prepares the next patch."""


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
        open_console: bool = False,
    ) -> None:
        """Build everything; nothing runs before ``run``. Raises AddressError or CertificateError.

        ``given`` is what the settings were read from. The embedded world passes its own ``clock``. ``probes`` is a
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
        self.supervisor = Supervisor(clock=clock, instruments=instruments)
        self.leadership = leadership = Leadership(
            settings, client, self.supervisor, clock=clock, instruments=instruments
        )
        self._client = client  # without a write guard: standbys ask for reviews, too
        self._probes = probes
        self._certificate = certificate_of(settings, instruments=instruments)
        self.metrics_port: int | None = None
        self.probe_port: int | None = None
        self.console_port: int | None = None
        push = push_address(settings)
        self._informers = informers = Informers(client, settings=settings, instruments=instruments)
        self._prometheus = PrometheusClient(
            PrometheusSettings.of(settings),
            clock=clock,
            instruments=instruments,
            random=self._random,
            clock_tolerance_seconds=CLOCK_TOLERANCE_SECONDS,
        )
        self._first_answer = FirstAnswer(self._prometheus, clock=clock)
        self.ledger = Ledger()
        self._shadow_accounts = ShadowAccounts(self._asked_for_shadow)
        self._activations = Activations()
        self.configuration = configuration = LiveConfiguration(settings, given, refusal=informers.scope.refusal)
        self._config_maps = ConfigMapController(
            informers.config_maps,
            configuration=configuration,
            record=leadership.recorder.event,
            clock=clock,
            instruments=instruments,
        )
        self._claims = Claims(leadership.claimant, informers.scope.excluded)
        self._troubles = Troubles(
            informers.pools,
            informers.inventory,
            unknown=self._unknown_inventory,
            revisit=lambda namespace: self.variants.enqueue_all(namespace),  # noqa: PLW0108 - built below
        )
        self._query_failures = QueryFailures(
            clock,
            revisit=lambda namespace: self.variants.enqueue_all(namespace),  # noqa: PLW0108 - built below
        )
        self.variants = VariantAutoscalingController(
            client=leadership.client,
            stores=informers.stores,
            ledger=self.ledger,
            configuration=configuration,
            claims=self._claims,
            troubles=self._troubles,
            actuation=self._actuation_trouble,
            queries=self._query_failures.of,
            served=lambda model: self._served.trouble(model),  # noqa: PLW0108 - built below
            direct=settings.direct_actuation,
            push=push is not None,
            shadow=self.shadow,
            announce=self.announce,
            clock=clock,
            instruments=instruments,
        )
        self._actuator = DirectActuator(
            client=leadership.client,
            stores=informers.stores,
            ledger=self.ledger,
            revisit=self.variants.queue.add,
            shadow=self.shadow,
            clock=clock,
            instruments=instruments,
        )
        self._other_writers = OtherWriters(
            client=leadership.client,
            stores=informers.stores,
            ledger=self.ledger,
            revisit=self.variants.queue.add,
            shadow=self.shadow,
            clock=clock,
            instruments=instruments,
        )
        self._push = None if push is None else self._push_server(push)
        configuration.subscribe(self.variants.enqueue_all)
        # The statuses go first: in a change of the whole fleet their Events would be a third of all requests.
        leadership.recorder.gives_way = lambda: len(self.variants.queue) > 0
        self._namespaces = NamespaceController(
            informers.scope,
            config_maps=informers.config_maps,
            config_map_queue=self._config_maps.queue,
            variant_queue=self.variants.queue,
            announce=self.announce,
        )
        self._served = ServedUsers(
            prometheus=self._prometheus,
            decisions=self.ledger.decisions,
            clock=clock,
            note=self._query_failures.note,
            tell=lambda keys: self._series.mark(keys),  # noqa: PLW0108 - built below
            revisit=lambda key: self.variants.queue.add(Key(key.namespace, key.name)),
        )
        variant_series = VariantCollector(
            self.ledger,
            current=self.variants.current_replicas,
            bounds=self.variants.bounds,
            statuses=self.variants.statuses,
            conditions=self.variants.conditions,
            leading=leadership.publishes,
            shadow=self.shadow,
            accounts=self._shadow_accounts.__getitem__,
            role=self.variants.role,
            in_time=self._served.of,
            instance=settings.controller_instance,
            aliases=settings.inferno_metric_aliases,
        )
        instruments.registry.register(variant_series)
        self._series = SeriesText(variant_series, leading=leadership.publishes)
        mark_changes(self._series, self.ledger, informers)
        self._collector = Collector(
            informers.stores,
            prometheus=self._prometheus,
            instruments=instruments,
            claims=self._claims,
            # The configuration changes while the process runs, so each call reads the one in force.
            freshness=lambda: configuration.freshness,
            as_started=lambda variant, now: self._other_writers.apply(self._activations.apply(variant, now), now),
            engines_of=lambda model: configuration.policy.asks_engines(model),  # noqa: PLW0108 - see above
            counters_of=lambda model: configuration.policy.asks_counters(model),  # noqa: PLW0108 - see above
            retention_of=self._retention_of,
            served=self._served.lately,
            inventory=lambda: read_inventory(informers.inventory) if configuration.policy.counts_gpus else None,
            note=self._query_failures.note,
            pools_of=informers.pools.pools_of,
            cache=lambda: configuration.settings.current,
        )
        self._background = BackgroundFetch(
            self._collector.refresh, settings=lambda: configuration.settings.current, clock=clock
        )
        configuration.subscribe(lambda _namespace: self._background.settings_changed())
        self.recent = RecentCycles()
        self._writer = RecordingWriter(settings.record_dir) if settings.record_dir else None
        self._decision_pages = DecisionPages(
            self.recent,
            elsewhere=leadership.elsewhere,
            interval=lambda: configuration.interval_seconds,
            in_time=self._served.of,
        )
        self._timeline = Timeline()
        self._console_pages = ConsolePages(
            self.recent,
            self._timeline,
            elsewhere=leadership.elsewhere,
            shadow=self.shadow,
            accounts=self._shadow_accounts.__getitem__,
            conditions=self.variants.conditions,
            in_time=self._served.of,
        )
        self._optimizer = OptimizerLoop(
            collect=self._collector.collect,
            known=self.variants.known,
            announce=self.announce,
            refuse=self._refuse,
            shadow=self.shadow,
            keep=self._keep,
            around=cycle,
            configuration=configuration,
            ledger=self.ledger,
            clock=clock,
            instruments=instruments,
        )
        self.supervisor.watch(self._optimizer.stuck)
        self._fast_lane = FastLane(
            prometheus=self._prometheus,
            optimizer=self._optimizer,
            seconds=lambda: configuration.settings.current.fast_lane_interval,
            clock=clock,
            note=self._query_failures.note,
        )

    def _actuation_trouble(self, key: Key) -> Trouble:
        """Return why nothing applies the number of a VA, as far as that is ours; falsy if nothing is wrong."""
        pushed = UNTROUBLED if self._push is None else self._push.scaler.trouble(key)
        return pushed or self._actuator.trouble(key) or self._other_writers.trouble(key)

    def _push_server(self, address: Address) -> PushServer:
        from wva.serve.keda_push import PushScaler, PushServer  # noqa: PLC0415 - needs an extra

        scaler = PushScaler(
            ledger=self.ledger,
            variants=self._informers.stores.variant_autoscalings,
            leading=self.leadership.publishes,
            shadow=self.shadow,
            revisit=self.variants.queue.add,
            clock=self._clock,
        )
        return PushServer(
            scaler, address, tls=push_tls(self._settings, self._certificate), instruments=self._instruments
        )

    @property
    def idle(self) -> bool:
        """Whether the process decides, reconciles and records nothing now: it waits for a timer or a change."""
        queues = (self.variants.queue, self._config_maps.queue)
        busy = self._optimizer.busy or self._fast_lane.busy or self._served.busy
        return not busy and all(queue.idle for queue in queues) and self.leadership.recorder.idle

    @property
    def paused(self) -> bool:
        """Whether every open query waits for the clock before the client sends it again."""
        return self._prometheus.paused

    def cache_versions(self) -> dict[str, str]:
        """Return the resourceVersion that each cache has reached, by resource name."""
        return self._informers.versions()

    def not_ready(self) -> list[str]:
        """Return why the process is not ready, one line per reason. A process that does not lead can be ready."""
        reasons, in_charge = self._informers.statuses(), self.leadership.in_charge
        prometheus = (self._collector.prometheus_status() if in_charge else None) or self._first_answer.missing()
        reasons += [f"prometheus: {prometheus}"] if prometheus else []
        cycles = self._optimizer.not_ready() if in_charge else None
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
                    routers=[self._decision_pages],
                    console=[self._console_pages],
                    open_console=self._open_console,
                    series=self._series,
                )
                await stack.enter_async_context(self._prometheus)
                async with asyncio.TaskGroup() as group:
                    # What every process runs, whether it leads or not.
                    loops = [(f"informer {informer.resource.name}", informer.run) for informer in self._informers.all]
                    lag = partial(measure_lag, self._instruments)
                    loops += [("event loop lag", lag), ("event recorder", recorder.run)]
                    loops.append(("first answer", self._first_answer.run))
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
                for informer in self._informers.all:
                    await informer.store.synced.wait()
                self._synced()
                # Read the ConfigMaps, follow the caches, and look at every variant.
                self._config_maps.watch()
                await self._config_maps.load_all()
                self._namespaces.watch()
                self.variants.watch()
                self._other_writers.watch()
                if self._settings.direct_actuation:
                    self._actuator.watch()
                self.variants.enqueue_all()
                leadership.in_charge = True
                if self._push is not None:
                    await stack.enter_async_context(self._push)
                variants = len(self._informers.stores.variant_autoscalings)
                self._logger.info("started", identity=leadership.identity, variants=variants)
                await self._decide()
            finally:
                leadership.in_charge = False

    async def _decide(self) -> None:
        """Run the loops and reconcilers of the leader until cancelled."""
        settings, informers, clock, instruments = self._settings, self._informers, self._clock, self._instruments
        keep, client = self.supervisor.keep, self.leadership.client
        async with asyncio.TaskGroup() as group:
            if settings.scale_from_zero_max_concurrency:
                from_zero = ScaleFromZero(
                    at_rest=AtRest(
                        informers.stores,
                        informers.pools,
                        claims=self._claims,
                        activations=self._activations,
                        shadow=self.shadow,
                        priced=lambda variants: priced(variants, self.configuration.policy),
                    ),
                    queues=GatewayQueues(
                        informers.stores.targets.pods,
                        client=client,
                        token=settings.epp_bearer_token.get_secret_value,
                        ca_path=settings.epp_ca_path,
                        parallel=settings.scale_from_zero_max_concurrency,
                    ),
                    starter=Starter(
                        client=client,
                        stores=informers.stores,
                        prometheus=self._prometheus,
                        labels=TargetLabels(settings.pod_namespace, settings.metrics_job),
                        clock=clock,
                        note=self._query_failures.note,
                    ),
                    activations=self._activations,
                    troubles=self._troubles,
                    ledger=self.ledger,
                    budget=self._budget,
                    announce=self.announce,
                    clock=clock,
                    instruments=instruments,
                )
                # The same object runs again after an error, so that it can take back what it has reported.
                group.create_task(keep("scale from zero", from_zero.run))
            for name, queue, reconcile, workers in (
                ("variantautoscaling", self.variants.queue, self.variants.reconcile, _WORKERS),
                ("configmap", self._config_maps.queue, self._config_maps.reconcile, 1),
                ("actuation", self._actuator.queue, self._actuator.reconcile, _WORKERS),
                ("other-writers", self._other_writers.queue, self._other_writers.reconcile, 1),
            ):
                controller = Controller(
                    name,
                    queue,
                    reconcile,
                    workers=workers,
                    timeout_seconds=settings.rest_client_timeout,
                    random=self._random,
                    clock=clock,
                    instruments=instruments,
                )
                group.create_task(keep(f"{name} controller", controller.run))
            group.create_task(keep("optimizer", self._optimizer.run))
            group.create_task(keep("fast lane", self._fast_lane.run))
            group.create_task(keep("background fetch", self._background.run))
            group.create_task(keep("in time", self._served.run))

    def shadow(self, key: VariantKey) -> bool:
        """Tell whether the number of a variant is not for its target.

        A variant enters shadow mode at once, and leaves it with the next cycle: the last number of the shadow is the
        answer to replicas that may not exist any more.
        """
        known = self._informers.stores.variant_autoscalings.get(Key(key.namespace, key.name)) is not None
        return known and (self._shadow_accounts[key] is not None or self._asked_for_shadow(key))

    def _asked_for_shadow(self, key: VariantKey) -> bool:
        """Tell whether the annotations ask for shadow mode."""
        va = self._informers.stores.variant_autoscalings.get(Key(key.namespace, key.name))
        if va is None:
            return False
        return mode_of(va, self._informers.scope.namespaces.get(Key("", key.namespace))) is Mode.SHADOW

    def announce(self, key: VariantKey, type_: str, reason: str, message: str) -> None:
        """Record an event on a VariantAutoscaling that is still there."""
        va = self._informers.stores.variant_autoscalings.get(Key(key.namespace, key.name))
        if va is None:
            return
        metadata = va.metadata
        reference = ObjectReference(
            VARIANT_AUTOSCALINGS.api_version,
            VARIANT_AUTOSCALINGS.kind,
            metadata.name,
            metadata.namespace,
            metadata.uid,
            metadata.resource_version,
        )
        self.leadership.recorder.event(reference, "Warning" if type_ == "Warning" else "Normal", reason, message)

    async def _keep(self, cycle: Cycle) -> None:
        """Keep a cycle whose decisions are published, for all that looks back."""
        before = set(self._shadow_accounts.keys)
        self._shadow_accounts.add(cycle)
        self._series.mark(self._shadow_accounts.keys)  # they grow without any change of a decision
        for key in before.difference(self._shadow_accounts.keys):
            self.ledger.tell_again(key)  # from now on the number is for the target
        self._timeline.add(cycle)
        unseen = {decision.key for decision in cycle.outcome.decisions if decision.reason is Reason.MODEL_FAILED}
        self._troubles.delay(cycle.outcome.late, unseen=unseen)
        await self.recent.keep(cycle.recording)
        if self._writer is not None:
            await self._writer.keep(cycle.recording)

    def _unknown_inventory(self) -> UnknownInventory | None:
        policy = self.configuration.policy
        return policy.unknown_inventory if policy.limited else None

    def _budget(self) -> Budget | None:
        return Budget(*read_inventory(self._informers.inventory)) if self.configuration.policy.limited else None

    def _retention_of(self, model: ModelKey) -> float | None:
        """Return after how many seconds without a request a model may go to zero; None when it may not."""
        allowed = self.configuration.policy.scale_to_zero_for(model)
        return allowed.retention_seconds if allowed.enabled else None

    def _refuse(self, namespace: str, cause: str) -> None:
        """Put the ConfigMaps of a namespace out of force, and read them again, so that events report it."""
        self._config_maps.queue.add_all(self.configuration.give_up(namespace, cause))


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
