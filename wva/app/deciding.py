"""The parts that decide: the cycles with all that they read, the looks between cycles, and the starts from zero."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager

from wva.app.asking import Asking
from wva.app.election import Leadership
from wva.app.informers import Informers
from wva.app.reconciling import Reconciling
from wva.app.views import Views
from wva.clock import Clock
from wva.collect.answer_cache import BackgroundFetch
from wva.collect.days import EarlierDays
from wva.collect.inventory import read_inventory
from wva.collect.queries import TargetLabels
from wva.collect.snapshot import Collector
from wva.config import Settings
from wva.config.live import LiveConfiguration
from wva.decide.prices import priced
from wva.decide.start import Budget
from wva.fast_lane import FastLane
from wva.hindsight.cycle import Cycle
from wva.instruments import Instruments
from wva.look_back import LookBack
from wva.model.decision import Reason
from wva.model.variant import ModelKey
from wva.optimizer import OptimizerLoop
from wva.publish.announce import Announcer
from wva.publish.ledger import Ledger
from wva.scale_from_zero.gateway import GatewayQueues
from wva.scale_from_zero.loop import AtRest, ScaleFromZero
from wva.scale_from_zero.starts import Activations, Starter


class Deciding:
    """The loops of the leader that decide."""

    def __init__(
        self,
        settings: Settings,
        *,
        leadership: Leadership,
        informers: Informers,
        configuration: LiveConfiguration,
        ledger: Ledger,
        announce: Announcer,
        asking: Asking,
        reconciling: Reconciling,
        views: Views,
        around: Callable[[], AbstractContextManager[None]],
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Build all but the starts from zero, which are built when this process begins to lead.

        Each cycle runs within ``around``. The configuration changes while the process runs, so each call reads the one
        in force.
        """
        self._settings = settings
        self._leadership = leadership
        self._informers = informers
        self._configuration = configuration
        self._ledger = ledger
        self._announce = announce
        self._asking = asking
        self._reconciling = reconciling
        self._views = views
        self._clock = clock
        self._instruments = instruments
        self._activations = Activations()
        self._earlier_days = EarlierDays(
            prometheus=asking.client,
            models=self._foreseen,
            clock=clock,
            random=asking.random,
            note=asking.failures.note,
        )
        self.collector = Collector(
            informers.stores,
            prometheus=asking.client,
            instruments=instruments,
            claims=reconciling.claims,
            freshness=lambda: configuration.freshness,
            as_started=lambda variant, now: reconciling.other_writers.apply(self._activations.apply(variant, now), now),
            engines_of=lambda model: configuration.policy.asks_engines(model),  # noqa: PLW0108 - the one in force
            counters_of=lambda model: configuration.policy.asks_counters(model),  # noqa: PLW0108 - the one in force
            retention_of=self._retention_of,
            served=asking.served.lately,
            usual=self._earlier_days.usual,
            inventory=lambda: read_inventory(informers.inventory) if configuration.policy.counts_gpus else None,
            note=asking.failures.note,
            pools_of=informers.pools.pools_of,
            cache=lambda: configuration.settings.current,
        )
        self._background = BackgroundFetch(
            self.collector.refresh, settings=lambda: configuration.settings.current, clock=clock
        )
        configuration.subscribe(lambda _namespace: self._background.settings_changed())
        self._look_back = LookBack(
            collector=self.collector,
            prometheus=asking.client,
            policy=lambda: configuration.policy,
            interval=lambda: configuration.interval_seconds,
            clock=clock,
        )
        self.optimizer = OptimizerLoop(
            collect=self.collector.collect,
            known=reconciling.variants.known,
            announce=announce,
            refuse=reconciling.refuse,
            keep=self._keep,
            around=around,
            learned=self._look_back.learned,
            configuration=configuration,
            ledger=ledger,
            clock=clock,
            instruments=instruments,
        )
        self._fast_lane = FastLane(
            prometheus=asking.client,
            optimizer=self.optimizer,
            seconds=lambda: configuration.settings.current.fast_lane_interval,
            clock=clock,
            note=asking.failures.note,
        )

    @property
    def idle(self) -> bool:
        """Whether neither a cycle nor a look between two cycles runs."""
        busy = self.optimizer.busy or self._fast_lane.busy or self._asking.served.busy or self._earlier_days.busy
        return not busy

    def loops(self) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
        """Yield the loops of the leader, by name, in the order of their start."""
        if self._settings.scale_from_zero_max_concurrency:
            # The same object runs again after an error, so that it can take back what it has reported.
            yield "scale from zero", self._scale_from_zero().run
        yield "optimizer", self.optimizer.run
        yield "fast lane", self._fast_lane.run
        yield "background fetch", self._background.run
        yield "in time", self._asking.served.run
        yield "earlier days", self._earlier_days.run

    def _scale_from_zero(self) -> ScaleFromZero:
        settings, informers, reconciling = self._settings, self._informers, self._reconciling
        return ScaleFromZero(
            at_rest=AtRest(
                informers.stores,
                informers.pools,
                claims=reconciling.claims,
                activations=self._activations,
                ledger=self._ledger,
                priced=lambda variants: priced(variants, self._configuration.policy),
            ),
            queues=GatewayQueues(
                informers.stores.targets.pods,
                client=self._leadership.client,
                token=settings.epp_bearer_token.get_secret_value,
                ca_path=settings.epp_ca_path,
                parallel=settings.scale_from_zero_max_concurrency,
            ),
            starter=Starter(
                client=self._leadership.client,
                stores=informers.stores,
                prometheus=self._asking.client,
                labels=TargetLabels(settings.pod_namespace, settings.metrics_job),
                clock=self._clock,
                note=self._asking.failures.note,
            ),
            activations=self._activations,
            troubles=reconciling.troubles,
            ledger=self._ledger,
            budget=self._budget,
            announce=self._announce,
            clock=self._clock,
            instruments=self._instruments,
        )

    async def _keep(self, cycle: Cycle) -> None:
        """Note which replicas are late, and keep the cycle for the series and pages about past cycles."""
        outcome = cycle.outcome
        unseen = {decision.key for decision in outcome.decisions if decision.reason is Reason.MODEL_FAILED}
        self._reconciling.troubles.delay(outcome.late, unseen=unseen)
        await self._views.keep(cycle)

    def _foreseen(self) -> set[ModelKey]:
        """Return the models whose demand is foreseen: those whose analyzer counts their requests."""
        policy = self._configuration.policy
        return {decision.model for decision in self._ledger.decisions() if policy.asks_counters(decision.model)}

    def _budget(self) -> Budget | None:
        return Budget(*read_inventory(self._informers.inventory)) if self._configuration.policy.limited else None

    def _retention_of(self, model: ModelKey) -> float | None:
        """Return after how many seconds without a request a model may go to zero; None when it may not."""
        allowed = self._configuration.policy.scale_to_zero_for(model)
        return self.optimizer.retentions.get(model, allowed.retention_seconds) if allowed.enabled else None
