"""What the leader runs: configuration, the reconcilers, the optimizer loop and the series they publish."""

from __future__ import annotations

import asyncio
from typing import Final

from wva.api.core import ObjectReference
from wva.api.kinds import VARIANT_AUTOSCALINGS
from wva.api.meta import Key
from wva.app.election import Leadership
from wva.app.environment import Environment
from wva.app.informers import Informers
from wva.app.page import followed_series
from wva.app.troubles import Troubles
from wva.collect.answer_cache import CacheSettings
from wva.collect.background import BackgroundFetch
from wva.collect.claims import Claims
from wva.collect.inventory import read_inventory
from wva.collect.prometheus import PrometheusClient
from wva.collect.snapshot import Collector, CollectorSettings
from wva.config.live import LiveConfiguration
from wva.config.watch import ConfigMapController, MainConfigMap
from wva.controllers.namespaces import NamespaceController
from wva.controllers.variantautoscaling import Dependencies, VariantAutoscalingController
from wva.kube.controller import Controller
from wva.kube.supervision import Supervisor
from wva.loops.optimizer import OptimizerLoop
from wva.model.inventory import Inventory, UnknownInventory
from wva.model.variant import ModelKey, VariantKey
from wva.publish.explanation import ExplanationCollector
from wva.publish.ledger import Ledger
from wva.publish.metrics import VariantCollector
from wva.publish.obstacles import ObstacleCollector
from wva.publish.recordings import RecordingWriter
from wva.publish.series import SeriesText
from wva.scale_from_zero.activations import Activations
from wva.scale_from_zero.wiring import ScaleFromZeroRunner

_WORKERS: Final = 8
"""How many statuses are written at once: while one worker waits for the API server, another prepares the next patch."""


class Decisions:
    """Built with the process, connected to Prometheus once that client is open, run while this process leads."""

    def __init__(
        self, environment: Environment, *, informers: Informers, leadership: Leadership, supervisor: Supervisor
    ) -> None:
        """Build everything that needs no Prometheus; nothing runs before ``run``."""
        self._supervisor = supervisor
        self._env = environment
        self._informers = informers
        self._leadership = leadership
        self.ledger = Ledger()
        self.activations = Activations()
        self.configuration = LiveConfiguration(environment.settings, environment.given, refusal=informers.scope.refusal)
        self.config_maps = ConfigMapController(
            informers.all_config_maps,
            configuration=self.configuration,
            record=leadership.recorder.event,
            clock=environment.clock,
            instruments=environment.instruments,
            own_namespace=environment.settings.pod_namespace,
        )
        self.main_config_map = MainConfigMap(
            informers.config_maps.store,
            configuration=self.configuration,
            record=leadership.recorder.event,
            instruments=environment.instruments,
        )
        self._claims = Claims(leadership.claimant, informers.scope.excluded)
        self._troubles = Troubles(informers, unknown=self._unknown_inventory, revisit=self._revisit)
        self.variants = self._build_variants()
        self._namespaces = NamespaceController(
            informers.scope,
            config_maps=informers.all_config_maps.of,
            look_again=self.config_maps.queue.add,
            revisit=self.variants.queue.add,
            announce=self.announce,
        )
        self.series = self._build_series()
        self.configuration.subscribe(self.variants.enqueue_all)
        self._collector: Collector | None = None
        self._optimizer: OptimizerLoop | None = None
        self._prometheus: PrometheusClient | None = None
        self._background: BackgroundFetch | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is being decided or reconciled: all that happens next waits for time or news."""
        if self._optimizer is None or self._optimizer.busy:
            return False
        return self.variants.queue.idle and self.config_maps.queue.idle

    @property
    def paused(self) -> bool:
        """Whether the queries that are open all wait for the clock before they are sent again."""
        return self._prometheus is not None and self._prometheus.paused

    def not_ready(self) -> list[str]:
        """Return what the last cycles met with, one line per reason: Prometheus, or an error of their own."""
        prometheus = None if self._collector is None else self._collector.prometheus_status()
        cycles = None if self._optimizer is None else self._optimizer.not_ready()
        return [*([f"prometheus: {prometheus}"] if prometheus else []), *([cycles] if cycles else [])]

    def connect(self, prometheus: PrometheusClient) -> None:
        """Build what needs the client of Prometheus."""
        self._prometheus = prometheus
        self._collector = Collector(
            self._informers.stores,
            prometheus=prometheus,
            instruments=self._env.instruments,
            settings=CollectorSettings(
                claims=self._claims,
                freshness=lambda: self.configuration.freshness,
                as_started=self.activations.apply,
                engines_of=self._asks_engines,
                counters_of=self._asks_counters,
                retention_of=self._retention_of,
                inventory=self._inventory,
                cache=lambda: CacheSettings.of(self.configuration.settings.current),
            ),
        )
        self._optimizer = self._build_optimizer(self._collector)
        # The statuses go first: in a change of the whole fleet their Events would be a third of all requests.
        self._leadership.recorder.gives_way = lambda: len(self.variants.queue) > 0
        self._supervisor.watch(self._optimizer.stuck)
        background = self._background = BackgroundFetch(
            self._collector.refresh,
            settings=lambda: CacheSettings.of(self.configuration.settings.current),
            clock=self._env.clock,
        )
        self.configuration.subscribe(lambda _namespace: background.settings_changed())

    async def begin(self) -> None:
        """Take the ConfigMaps and follow the caches, which have synced; every variant is looked at."""
        self.main_config_map.begin()
        self.config_maps.watch()
        await self.config_maps.load_all()
        self._namespaces.watch()
        self.variants.watch()
        self.variants.enqueue_all()

    async def run(self) -> None:
        """Run the reconcilers and the loop until cancelled. Needs ``connect`` and ``begin`` before."""
        if self._optimizer is None or self._background is None or self._prometheus is None:
            raise RuntimeError("not connected to Prometheus")
        from_zero = ScaleFromZeroRunner(
            settings=self._env.settings,
            clock=self._env.clock,
            instruments=self._env.instruments,
            client=self._leadership.client,
            prometheus=self._prometheus,
            stores=self._informers.stores,
            pools=self._informers.pools,
            inventory=self._informers.inventory,
            activations=self.activations,
            claims=self._claims,
            limited=self._limited,
            publish=lambda decision: self.ledger.record([decision]),
            announce=self.announce,
            report=self._troubles.gateways.report,
            hinder=self._troubles.hinder,
        )
        keep = self._supervisor.keep
        async with asyncio.TaskGroup() as group:
            if self._env.settings.scale_from_zero_max_concurrency:
                group.create_task(keep("scale from zero", from_zero.run))
            for name, controller in self._controllers():
                group.create_task(keep(name, controller.run))
            group.create_task(keep("optimizer", self._optimizer.run))
            group.create_task(keep("background fetch", self._background.run))

    def _controllers(self) -> list[tuple[str, Controller[Key]]]:
        clock, instruments = self._env.clock, self._env.instruments
        timeout_seconds = self._env.settings.rest_client_timeout
        parts = (
            ("variantautoscaling", self.variants.queue, self.variants.reconcile, _WORKERS),
            ("configmap", self.config_maps.queue, self.config_maps.reconcile, 1),
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

    def _asks_engines(self, model: ModelKey) -> bool:
        return self.configuration.policy.asks_engines(model)

    def _asks_counters(self, model: ModelKey) -> bool:
        return self.configuration.policy.asks_counters(model)

    def _retention_of(self, model: ModelKey) -> float | None:
        """Return after how many seconds without a request a model may go to zero; None when it may not."""
        allowed = self.configuration.policy.scale_to_zero_for(model)
        return allowed.retention_seconds if allowed.enabled else None

    def _limited(self) -> bool:
        return self.configuration.policy.limited

    def _unknown_inventory(self) -> UnknownInventory | None:
        return self.configuration.policy.unknown_inventory if self._limited() else None

    def _inventory(self) -> tuple[Inventory | None, str] | None:
        return read_inventory(self._informers.inventory) if self.configuration.policy.counts_gpus else None

    def _build_variants(self) -> VariantAutoscalingController:
        return VariantAutoscalingController(
            Dependencies(
                client=self._leadership.client,
                stores=self._informers.stores,
                ledger=self.ledger,
                configuration=self.configuration,
                clock=self._env.clock,
                instruments=self._env.instruments,
                claims=self._claims,
                announce=self.announce,
                surroundings=self._troubles,
            )
        )

    def _refuse(self, namespace: str, cause: str) -> None:
        """Put the ConfigMaps of a namespace out of force, and read them again, so that events report it."""
        for key in self.configuration.give_up(namespace, cause):
            self.config_maps.queue.add(key)

    def _revisit(self, namespace: str | None) -> None:
        self.variants.enqueue_all(namespace)

    def _build_series(self) -> SeriesText:
        """Register the series about variants, and return their text, which is kept up with what changes."""
        registry, instance = self._env.instruments.registry, self._env.settings.controller_instance
        leading = self._leadership.publishes
        variants = VariantCollector(
            self.ledger,
            current=self.variants.current_replicas,
            leading=leading,
            instance=instance,
            aliases=self._env.settings.inferno_metric_aliases,
        )
        explanations = ExplanationCollector(
            self.ledger, bounds=self.variants.bounds, leading=leading, instance=instance
        )
        obstacles = ObstacleCollector(
            self.variants.statuses, conditions=self.variants.conditions, leading=leading, instance=instance
        )
        collectors = (variants, explanations, obstacles)
        for collector in collectors:
            registry.register(collector)
        return followed_series(collectors, ledger=self.ledger, informers=self._informers, leading=leading)

    def _build_optimizer(self, collector: Collector) -> OptimizerLoop:
        folder = self._env.settings.record_dir
        return OptimizerLoop(
            collect=collector.collect,
            known=self.variants.known,
            announce=self.announce,
            record=RecordingWriter(folder).keep if folder else None,
            refuse=self._refuse,
            around=self._env.cycle,
            configuration=self.configuration,
            ledger=self.ledger,
            clock=self._env.clock,
            instruments=self._env.instruments,
        )

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
        self._leadership.recorder.event(reference, "Warning" if type_ == "Warning" else "Normal", reason, message)
