"""What the leader runs: configuration, the reconcilers, the optimizer loop and the series they publish."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from wva.api.core import Namespace, ObjectReference
from wva.api.kinds import VARIANT_AUTOSCALINGS
from wva.api.meta import Key
from wva.api.scalers import HorizontalPodAutoscaler, ScaledObject
from wva.api.variantautoscaling import VariantAutoscaling
from wva.app.election import Leadership
from wva.app.informers import Informers
from wva.clock import Clock
from wva.collect.answer_cache import BackgroundFetch, CacheSettings
from wva.collect.claims import Claims
from wva.collect.inventory import read_inventory
from wva.collect.resolution import TARGET_INDEX
from wva.collect.snapshot import Collector
from wva.collect.troubles import Troubles
from wva.config import Given, Settings
from wva.config.live import LiveConfiguration
from wva.config.watch import ConfigMapController, MainConfigMap
from wva.controllers.namespaces import NamespaceController
from wva.controllers.variantautoscaling import VariantAutoscalingController
from wva.decide.start import Budget
from wva.instruments import Instruments
from wva.kube.controller import Controller
from wva.kube.supervision import Supervisor
from wva.loops.optimizer import OptimizerLoop
from wva.model.inventory import UnknownInventory
from wva.model.variant import ModelKey, VariantKey
from wva.prometheus.client import PrometheusClient
from wva.publish.ledger import Ledger
from wva.publish.metrics import SeriesText, VariantCollector
from wva.publish.recordings import RecordingWriter
from wva.scale_from_zero.at_rest import AtRest
from wva.scale_from_zero.gateway import GatewayQueues
from wva.scale_from_zero.loop import ScaleFromZero
from wva.scale_from_zero.starts import Activations, Starter, TargetLabels
from wva.targets import ScaleTarget, scaled_key

_WORKERS: Final = 8
"""How many statuses are written at once: while one worker waits for the API server, another prepares the next patch."""

Scaler: TypeAlias = HorizontalPodAutoscaler | ScaledObject


class Decisions:
    """Built with the process, run while this process leads."""

    def __init__(
        self,
        settings: Settings,
        given: Given,
        *,
        informers: Informers,
        leadership: Leadership,
        prometheus: PrometheusClient,
        supervisor: Supervisor,
        cycle: Callable[[], AbstractContextManager[None]],
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Build everything; nothing runs before ``run``. Each cycle of decisions runs within ``cycle``."""
        self._settings = settings
        self._supervisor = supervisor
        self._informers = informers
        self._leadership = leadership
        self._prometheus = prometheus
        self._clock = clock
        self._instruments = instruments
        stores = informers.stores
        self.ledger = Ledger()
        self._activations = Activations()
        self.configuration = LiveConfiguration(settings, given, refusal=informers.scope.refusal)
        self.config_maps = ConfigMapController(
            informers.all_config_maps,
            configuration=self.configuration,
            record=leadership.recorder.event,
            clock=clock,
            instruments=instruments,
            own_namespace=settings.pod_namespace,
        )
        self._main_config_map = MainConfigMap(
            informers.config_maps.store,
            configuration=self.configuration,
            record=leadership.recorder.event,
            instruments=instruments,
        )
        self._claims = Claims(leadership.claimant, informers.scope.excluded)
        self._troubles = Troubles(
            informers.pools,
            informers.inventory,
            unknown=self._unknown_inventory,
            revisit=lambda namespace: self.variants.enqueue_all(namespace),  # noqa: PLW0108 - built below
        )
        self.variants = VariantAutoscalingController(
            client=leadership.client,
            stores=stores,
            ledger=self.ledger,
            configuration=self.configuration,
            claims=self._claims,
            troubles=self._troubles,
            announce=self.announce,
            clock=clock,
            instruments=instruments,
        )
        self.configuration.subscribe(self.variants.enqueue_all)
        # The statuses go first: in a change of the whole fleet their Events would be a third of all requests.
        leadership.recorder.gives_way = lambda: len(self.variants.queue) > 0
        self._namespaces = NamespaceController(
            informers.scope,
            config_maps=informers.all_config_maps,
            config_map_queue=self.config_maps.queue,
            variant_queue=self.variants.queue,
            announce=self.announce,
        )
        self.series = self._build_series()
        configuration = self.configuration  # its policy changes, so each question takes the one in force

        def retention_of(model: ModelKey) -> float | None:
            """Return after how many seconds without a request a model may go to zero; None when it may not."""
            allowed = configuration.policy.scale_to_zero_for(model)
            return allowed.retention_seconds if allowed.enabled else None

        self._collector = Collector(
            stores,
            prometheus=prometheus,
            instruments=instruments,
            claims=self._claims,
            freshness=lambda: configuration.freshness,
            as_started=self._activations.apply,
            engines_of=lambda model: configuration.policy.asks_engines(model),  # noqa: PLW0108 - the policy changes
            counters_of=lambda model: configuration.policy.asks_counters(model),  # noqa: PLW0108 - the policy changes
            retention_of=retention_of,
            inventory=lambda: read_inventory(informers.inventory) if configuration.policy.counts_gpus else None,
            cache=self._cache_settings,
        )
        self._background = BackgroundFetch(self._collector.refresh, settings=self._cache_settings, clock=clock)
        self.configuration.subscribe(lambda _namespace: self._background.settings_changed())
        folder = settings.record_dir
        self._optimizer = OptimizerLoop(
            collect=self._collector.collect,
            known=self.variants.known,
            announce=self.announce,
            record=RecordingWriter(folder).keep if folder else None,
            refuse=self._refuse,
            around=cycle,
            configuration=self.configuration,
            ledger=self.ledger,
            clock=clock,
            instruments=instruments,
        )
        supervisor.watch(self._optimizer.stuck)

    @property
    def idle(self) -> bool:
        """Whether the leader decides and reconciles nothing now: it waits for a timer or a change."""
        return not self._optimizer.busy and self.variants.queue.idle and self.config_maps.queue.idle

    def not_ready(self) -> list[str]:
        """Return why the last cycles had problems, one line per reason: Prometheus, or an error in the cycles."""
        prometheus, cycles = self._collector.prometheus_status(), self._optimizer.not_ready()
        return [*([f"prometheus: {prometheus}"] if prometheus else []), *([cycles] if cycles else [])]

    async def begin(self) -> None:
        """Read the ConfigMaps, follow the synced caches, and put every variant into the queue."""
        self._main_config_map.begin()
        self.config_maps.watch()
        await self.config_maps.load_all()
        self._namespaces.watch()
        self.variants.watch()
        self.variants.enqueue_all()

    async def run(self) -> None:
        """Run the reconcilers and the loops until cancelled. Needs ``begin`` before, and an open ``prometheus``."""
        settings, informers, clock, instruments = self._settings, self._informers, self._clock, self._instruments
        keep = self._supervisor.keep
        async with asyncio.TaskGroup() as group:
            if settings.scale_from_zero_max_concurrency:
                from_zero = ScaleFromZero(
                    at_rest=AtRest(
                        informers.stores, informers.pools, claims=self._claims, activations=self._activations
                    ),
                    queues=GatewayQueues(
                        informers.stores.pods,
                        client=self._leadership.client,
                        token=settings.epp_bearer_token.get_secret_value,
                        parallel=settings.scale_from_zero_max_concurrency,
                    ),
                    starter=Starter(
                        client=self._leadership.client,
                        stores=informers.stores,
                        prometheus=self._prometheus,
                        labels=TargetLabels(settings.pod_namespace, settings.metrics_job),
                        clock=clock,
                    ),
                    activations=self._activations,
                    troubles=self._troubles,
                    ledger=self.ledger,
                    budget=self._budget,
                    announce=self.announce,
                    clock=clock,
                    instruments=instruments,
                )
                # The same loop goes on after an error, so that it can take back its reports.
                group.create_task(keep("scale from zero", from_zero.run))
            for name, queue, reconcile, workers in (
                ("variantautoscaling", self.variants.queue, self.variants.reconcile, _WORKERS),
                ("configmap", self.config_maps.queue, self.config_maps.reconcile, 1),
            ):
                controller = Controller(
                    name,
                    queue,
                    reconcile,
                    workers=workers,
                    timeout_seconds=settings.rest_client_timeout,
                    clock=clock,
                    instruments=instruments,
                )
                group.create_task(keep(f"{name} controller", controller.run))
            group.create_task(keep("optimizer", self._optimizer.run))
            group.create_task(keep("background fetch", self._background.run))

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

    def _cache_settings(self) -> CacheSettings:
        return CacheSettings.of(self.configuration.settings.current)

    def _unknown_inventory(self) -> UnknownInventory | None:
        policy = self.configuration.policy
        return policy.unknown_inventory if policy.limited else None

    def _budget(self) -> Budget | None:
        return Budget(*read_inventory(self._informers.inventory)) if self.configuration.policy.limited else None

    def _refuse(self, namespace: str, cause: str) -> None:
        """Put the ConfigMaps of a namespace out of force, and read them again, so that events report it."""
        for key in self.configuration.give_up(namespace, cause):
            self.config_maps.queue.add(key)

    def _build_series(self) -> SeriesText:
        """Register the series about variants; return their text, which follows the ledger and the caches."""
        stores, leading = self._informers.stores, self._leadership.publishes
        collector = VariantCollector(
            self.ledger,
            current=self.variants.current_replicas,
            bounds=self.variants.bounds,
            statuses=self.variants.statuses,
            conditions=self.variants.conditions,
            leading=leading,
            instance=self._settings.controller_instance,
            aliases=self._settings.inferno_metric_aliases,
        )
        self._instruments.registry.register(collector)
        series = SeriesText(collector, leading=leading)

        def mark(vas: Iterable[VariantAutoscaling]) -> None:
            series.mark(VariantKey(*va.metadata.key) for va in vas)

        def on_target(old: ScaleTarget | None, new: ScaleTarget | None) -> None:
            target = new or old
            if target is not None:
                mark(stores.variant_autoscalings.by_index(TARGET_INDEX, stores.targets.key_of(target)))

        def on_scaler(old: Scaler | None, new: Scaler | None) -> None:
            """Mark the variants of a scaler whose bounds changed; its status alone changes several times a minute."""
            if old is not None and new is not None and _bounds_part(old) == _bounds_part(new):
                return
            for scaler in (old, new):
                key = None if scaler is None else scaled_key(scaler.metadata.namespace, scaler.spec.scale_target_ref)
                if key is not None:
                    mark(stores.variant_autoscalings.by_index(TARGET_INDEX, key))

        def on_namespace(old: Namespace | None, new: Namespace | None) -> None:
            namespace = new or old
            if namespace is not None:
                mark(stores.variant_autoscalings.list(namespace.metadata.name))

        self.ledger.subscribe(lambda key, _old, _new: series.mark([key]))
        stores.variant_autoscalings.subscribe(lambda old, new: mark(va for va in (old, new) if va is not None))
        stores.targets.subscribe(on_target)
        self._informers.scope.namespaces.subscribe(on_namespace)
        if stores.scalers is not None:
            stores.scalers.hpas.subscribe(on_scaler)
            stores.scalers.scaled_objects.subscribe(on_scaler)
        return series


def _bounds_part(scaler: Scaler) -> tuple[object, ...]:
    return scaler.spec, scaler.metadata.annotations, scaler.metadata.owner_references
