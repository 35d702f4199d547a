"""One controller process: what exists, what starts when, what stops in which order.

Start: servers (probes answer from the first second), then watch streams and the event recorder on every process, then,
once this process leads, the reconcilers and the optimizer loop. Nothing decides before every cache it reads has synced
and the ConfigMaps in it have been taken.

Stop: loops and reconcilers end first, so that no write can follow; then pending events are sent, the Lease is released,
the watch streams end and the servers close. Losing the Lease takes the same way and ends the process with status 1, for
the next container to start clean.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from wva import log
from wva.api.core import ObjectReference
from wva.api.kinds import EVENTS, LEASES, VARIANT_AUTOSCALINGS
from wva.api.meta import Key
from wva.app.informers import build_informers
from wva.app.servers import Servers
from wva.clock import Clock, SystemClock
from wva.collect.live import LiveConfiguration
from wva.collect.prometheus import PrometheusClient, PrometheusSettings
from wva.collect.snapshot import Collector, CollectorSettings
from wva.controllers.configmap import ConfigMapController
from wva.controllers.variantautoscaling import Dependencies, VariantAutoscalingController
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.controller import Controller, guard
from wva.kube.events import EventRecorder
from wva.kube.leader import Durations, LeaderElector, LeadershipLost
from wva.loops.optimizer import Optimizer, Ports
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger
from wva.publish.metrics import VariantCollector
from wva.publish.recordings import RecordingWriter
from wva.settings import Given, Settings

COMPONENT: Final = "workload-variant-autoscaler"
_WORKERS: Final = 4
_DRAIN_SECONDS: Final = 2.0


class _Stop(Exception):  # noqa: N818 - raised on purpose, to leave the task groups
    """The process was asked to end."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the application runs in; the embedded world passes its own clock."""

    settings: Settings
    given: Given
    client: KubeClient
    instruments: Instruments
    clock: Clock = field(default_factory=SystemClock)


def new_registry() -> CollectorRegistry:
    """Return a registry with the process's own metrics."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


class Application:
    """One controller process."""

    def __init__(self, environment: Environment) -> None:
        """Build everything; nothing runs before ``run``. Raises AddressError or CertificateError."""
        self._env = environment
        self._logger = log.get("app")
        settings, clock, instruments = environment.settings, environment.clock, environment.instruments
        self._identity = f"{socket.gethostname()}_{secrets.token_hex(8)}"
        self._leading = False
        self._elector = self._build_elector() if settings.leader_elect else None
        client = environment.client
        self._client = client if self._elector is None else client.with_write_guard(self._elector.may_write)
        self._servers = Servers(settings)
        self._informers = build_informers(client, settings=settings, instruments=instruments)
        self._recorder = EventRecorder(
            self._client,
            component=COMPONENT,
            instance=self._identity,
            resource=EVENTS,
            clock=clock,
            instruments=instruments,
        )
        if self._elector is not None:
            self._elector.recorder = self._recorder
        self.ledger = Ledger()
        self._configuration = LiveConfiguration(settings, environment.given)
        self._config_maps = ConfigMapController(
            self._informers.config_maps.store,
            configuration=self._configuration,
            record=self._recorder.event,
            clock=clock,
            instruments=instruments,
        )
        self._variants = self._build_variants()
        self._configuration.subscribe(self._variants.enqueue_all)
        self._collector: Collector | None = None
        self._optimizer: Optimizer | None = None

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
        if self._optimizer is None or self._optimizer.busy:
            return False
        return self._recorder.idle and self._variants.queue.idle and self._config_maps.queue.idle

    def cache_versions(self) -> dict[str, str]:
        """Return the resourceVersion that each cache has reached, by resource name."""
        return self._informers.versions()

    def not_ready(self) -> list[str]:
        """Return why the process is not ready, one line per reason. Not leading is none of them."""
        reasons = self._informers.statuses()
        if self._leading and self._collector is not None:
            prometheus = self._collector.prometheus_status()
            reasons += [f"prometheus: {prometheus}"] if prometheus else []
        return reasons

    async def run(self, stop: asyncio.Event) -> int:
        """Run until ``stop`` is set; return the exit status: 0, or 1 after losing the Lease. Raises AddressError."""
        status = 0
        try:
            async with AsyncExitStack() as stack:
                registry = self._env.instruments.registry
                await self._servers.start(stack, registry=registry, not_ready=self.not_ready)
                prometheus = await stack.enter_async_context(self._prometheus())
                self._collector = Collector(
                    self._informers.stores,
                    prometheus=prometheus,
                    instruments=self._env.instruments,
                    settings=CollectorSettings(
                        controller_instance=self._env.settings.controller_instance,
                        freshness=lambda: self._configuration.freshness,
                    ),
                )
                self._optimizer = self._build_optimizer(self._collector)
                async with self._background():
                    await self._lead(stop, self._optimizer)
        except* _Stop:
            self._logger.info("stopped")
        except* LeadershipLost as lost:
            self._logger.error("leadership_lost", reason=_first(lost), next="exit with status 1")  # noqa: TRY400 - expected; a traceback would say nothing
            status = 1
        return status

    @asynccontextmanager
    async def _background(self) -> AsyncIterator[None]:
        """Run around the body what every process runs, leader or not."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(guard(f"informer {informer.resource.name}", informer.run))
                for informer in self._informers.all
            ]
            tasks.append(group.create_task(guard("event recorder", self._recorder.run)))
            certificate = self._servers.certificate
            if certificate is not None:
                tasks.append(group.create_task(guard("certificate", lambda: certificate.run(SystemClock()))))
            try:
                yield
            finally:
                await self._recorder.drain(_DRAIN_SECONDS)
                if self._elector is not None:
                    await self._elector.release()
                for task in tasks:
                    task.cancel()

    async def _lead(self, stop: asyncio.Event, optimizer: Optimizer) -> None:
        """Wait for leadership, then decide and write until told to stop or leadership is lost."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_stop_on(stop))
            if self._elector is not None:
                await self._elector.acquire()
                group.create_task(self._elector.hold())
            try:
                await self._work(optimizer)
            finally:
                self._set_leading(leading=False)

    async def _work(self, optimizer: Optimizer) -> None:
        """Run the reconcilers and the loop. The series appear with the first look at the variants."""
        for informer in self._informers.all:
            await informer.store.synced.wait()
        self._config_maps.load_all()
        self._config_maps.watch()
        self._variants.watch()
        self._variants.enqueue_all()
        self._set_leading(leading=True)
        self._logger.info("started", identity=self._identity, variants=len(self._informers.stores.variant_autoscalings))
        async with asyncio.TaskGroup() as group:
            for name, controller in self._controllers():
                group.create_task(guard(name, controller.run))
            group.create_task(guard("optimizer", optimizer.run))

    def _set_leading(self, *, leading: bool) -> None:
        self._leading = leading
        self._env.instruments.leader.set(1 if leading else 0)

    def _publishes(self) -> bool:
        """Whether the series may be shown: not by a leader that stood still past its deadline and does not know yet."""
        return self._leading and (self._elector is None or self._elector.may_write())

    def _controllers(self) -> list[tuple[str, Controller[Key]]]:
        clock, instruments = self._env.clock, self._env.instruments
        timeout_seconds = self._env.settings.rest_client_timeout
        parts = (
            ("variantautoscaling", self._variants.queue, self._variants.reconcile, _WORKERS),
            ("configmap", self._config_maps.queue, self._config_maps.reconcile, 1),
        )
        return [
            (
                f"{name} controller",
                Controller(
                    name,
                    queue,
                    reconcile,
                    workers=workers,
                    timeout_seconds=timeout_seconds,
                    clock=clock,
                    instruments=instruments,
                ),
            )
            for name, queue, reconcile, workers in parts
        ]

    def _build_elector(self) -> LeaderElector:
        settings = self._env.settings
        durations = Durations(
            settings.leader_election_lease_duration,
            settings.leader_election_renew_deadline,
            settings.leader_election_retry_period,
        )
        return LeaderElector(
            self._env.client,
            resource=LEASES,
            key=Key(settings.pod_namespace, settings.leader_election_id),
            identity=self._identity,
            durations=durations,
            instruments=self._env.instruments,
        )

    def _build_variants(self) -> VariantAutoscalingController:
        settings = self._env.settings
        variants = VariantAutoscalingController(
            Dependencies(
                client=self._client,
                stores=self._informers.stores,
                ledger=self.ledger,
                configuration=self._configuration,
                clock=self._env.clock,
                instruments=self._env.instruments,
                instance=settings.controller_instance,
            )
        )
        self._env.instruments.registry.register(
            VariantCollector(
                self.ledger,
                current=variants.current_replicas,
                leading=self._publishes,
                instance=settings.controller_instance,
            )
        )
        return variants

    def _build_optimizer(self, collector: Collector) -> Optimizer:
        folder = self._env.settings.record_dir
        ports = Ports(
            collect=collector.collect,
            known=self._variants.known,
            announce=self._announce,
            record=RecordingWriter(folder).write if folder else None,
        )
        return Optimizer(
            ports,
            configuration=self._configuration,
            ledger=self.ledger,
            clock=self._env.clock,
            instruments=self._env.instruments,
        )

    def _prometheus(self) -> PrometheusClient:
        settings = prometheus_settings(self._env.settings)
        return PrometheusClient(settings, clock=self._env.clock, instruments=self._env.instruments)

    def _announce(self, key: VariantKey, type_: str, reason: str, message: str) -> None:
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
        self._recorder.event(reference, "Warning" if type_ == "Warning" else "Normal", reason, message)


def prometheus_settings(settings: Settings) -> PrometheusSettings:
    """Return the connection settings of Prometheus."""
    return PrometheusSettings(
        base_url=settings.prometheus_base_url,
        allow_http=settings.prometheus_allow_http,
        ca_cert_path=settings.prometheus_ca_cert_path,
        client_cert_path=settings.prometheus_client_cert_path,
        client_key_path=settings.prometheus_client_key_path,
        server_name=settings.prometheus_server_name,
        insecure_skip_verify=settings.prometheus_tls_insecure_skip_verify,
        bearer_token=settings.prometheus_bearer_token.get_secret_value(),
        token_path=settings.prometheus_token_path,
    )


def _first(group: BaseExceptionGroup[BaseException]) -> str:
    """Return the text of the first exception inside; each task group on the way out has added a layer."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


async def _stop_on(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _Stop
