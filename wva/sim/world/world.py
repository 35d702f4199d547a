"""The world around an unmodified controller, in lockstep.

The controller is the real application: it reaches the API server and Prometheus over HTTP on loopback and serves its
own metrics over HTTPS, which the embedded Prometheus scrapes. Only its clock is virtual. Virtual time moves to the next
thing that is due (a scrape, a pod becoming ready, a timer of the controller, a fault). At each moment the world
acts first: faults, pods, the scrape. When the controller's caches have reached the world's resourceVersions, its
timers fire. When its queues are also empty and its loop waits, the HPA acts. Nothing of this is measured in seconds of
the machine. So a run is a function of its seed, however fast or slow the machine is.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, Protocol

from wva.api.crd import definition
from wva.api.meta import Key
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger
from wva.sim.apiserver import EmbeddedApiServer, ServerOptions, StoreOptions, kind_from_definition
from wva.sim.fleet.fleet import Fleet, FleetSettings, PodFault, ReadyPod
from wva.sim.fleet.replica import PodKey, PoolKey, PoolVariant
from wva.sim.fleet.service_log import ServiceLevel
from wva.sim.fleet.summary import ModelSummary
from wva.sim.prometheus import EmbeddedPrometheus, HttpEndpoint, InProcess, ScrapeError, ScrapeSchedule, ScrapeTarget
from wva.sim.prometheus.tsdb import milliseconds
from wva.sim.stage.faults import NoStarts, PrometheusOutage, UnplayableError, UnreadablePod
from wva.sim.stage.scenario import DrawnPhases, Scenario, VariantSetup, start_up_random
from wva.sim.stage.world import roles_unplayable
from wva.sim.world import objects
from wva.sim.world.clock import EPOCH_SECONDS, VirtualClock
from wva.sim.world.objects import MODEL_ID, NAMESPACE
from wva.sim.world.scaler import Scaler
from wva.sim.world.timeline import WorldTimeline
from wva.sim.world.workloads import DEPLOYMENTS, Workloads

VARIANTS: Final = "variantautoscalings.llmd.ai"
_LOOKBACK_SECONDS: Final = 300.0
_SETTLE_LIMIT_SECONDS: Final = 60.0
_PAUSED_TURNS: Final = 100
"""So many turns of the event loop in a row a cycle has to be paused: what it does between two queries takes fewer."""
_PAUSE_SECONDS: Final = 0.0005
_SCRAPER: Final = "prometheus"
"""The token Prometheus scrapes with; the embedded API server takes any."""


_Played = NoStarts | UnreadablePod | PrometheusOutage
_FaultTime = tuple[float, Callable[[_Played], Awaitable[None]], _Played]
"""A time in virtual seconds, and what happens to a fault then."""


def unplayable(scenario: Scenario) -> str | None:
    """Return a sentence that says why the embedded world cannot play a scenario; None if it can."""
    for fault in scenario.faults:
        if not isinstance(fault, _Played):
            return f"{scenario.name}: the embedded world has no {type(fault).__name__}, so only the stage can play it"
    if reason := roles_unplayable(scenario):
        return reason
    if scenario.others:
        return f"{scenario.name}: the embedded world has one model, so only the stage can play it"
    if scenario.observation.lost_share > 0:
        return f"{scenario.name}: the embedded world loses no scrapes, so only the stage can play it"
    if any(setup.minimum == 0 for setup in scenario.variants):
        return f"{scenario.name}: the embedded world has no endpoint picker to start a model from zero replicas by"
    return None


class SettleError(Exception):
    """The controller did not come to rest in time; the message names its open work."""


class ControllerView(Protocol):
    """The part of the application that the world looks at."""

    ledger: Ledger

    @property
    def idle(self) -> bool:
        """Whether the controller only waits for time or for new data."""
        ...

    @property
    def paused(self) -> bool:
        """Whether all open queries wait for the clock before they are sent again."""
        ...

    @property
    def metrics_port(self) -> int | None:
        """The port of ``/metrics``, None while nothing listens."""
        ...

    def cache_versions(self) -> Mapping[str, str]:
        """Return the resourceVersion that each cache has reached, by resource name."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of the world for the controller."""

    kubeconfig: Path
    prometheus_url: str


class EmbeddedWorld:
    """API server, Prometheus, workloads, HPA and fleet; the controller is attached from outside."""

    def __init__(self, scenario: Scenario, *, seed: int, phases: DrawnPhases | None = None) -> None:
        """Build the world; nothing listens before ``open``.

        Without ``phases`` the controller and the HPA begin at zero, and the labels of a pod say when it is scraped.

        Raises:
            UnplayableError: the scenario has something that this world cannot play.

        """
        if reason := unplayable(scenario):
            raise UnplayableError(reason)
        self.scenario = scenario
        self.seed = seed
        self.traffic = scenario.traffic(seed)
        self.clock = VirtualClock()
        self.timeline = WorldTimeline(scenario)
        self.api = EmbeddedApiServer(
            [kind_from_definition(definition())],
            now=self.clock.now,
            options=ServerOptions(
                store=StoreOptions(seed=seed, namespaces=("default", NAMESPACE, objects.SYSTEM_NAMESPACE))
            ),
        )
        self.prometheus = EmbeddedPrometheus(now=self.clock.now)
        self._workloads = Workloads(
            self.api.store,
            clock=self.clock,
            start_ups={Key(NAMESPACE, setup.name): setup.start_up for setup in scenario.variants},
            random=start_up_random(seed),
        )
        self._scaler = Scaler(self.api.store, metric=self._external_metric, monotonic=self.clock.monotonic)
        self.fleet = Fleet(
            [
                PoolVariant(NAMESPACE, setup.name, MODEL_ID, setup.accelerator, setup.parameters, role=setup.role)
                for setup in scenario.variants
            ],
            loads={PoolKey(NAMESPACE, MODEL_ID): self.traffic},
            seed=seed,
            settings=FleetSettings(
                epoch_seconds=EPOCH_SECONDS,
                gateway=scenario.gateway,
                drain_seconds=scenario.drain_seconds,
                service_level=ServiceLevel(scenario.objectives.ttft_seconds, scenario.objectives.itl_seconds),
            ),
        )
        self._controller: ControllerView | None = None
        period = scenario.observation.scrape_seconds
        self._phases = phases
        self.begins_seconds = 0.0 if phases is None else phases.next_controller(scenario.interval_seconds)
        """When the controller starts, and runs its first cycle."""
        first_look = 0.0 if phases is None else phases.next_controller(scenario.hpa_seconds)
        self._scrapes, self._look = ScrapeSchedule(period, at_zero=phases is None), _Periodic(period)
        self._scaling = _Periodic(scenario.hpa_seconds, first_look)
        faults = [fault for fault in scenario.faults if isinstance(fault, _Played)]
        begins = [(fault.from_seconds, self._begin, fault) for fault in faults]
        ends = [(fault.until_seconds, self._end, fault) for fault in faults]
        self._faults: list[_FaultTime] = sorted(begins + ends, key=lambda fault_time: fault_time[0])
        self._outage: AsyncExitStack | None = None
        self._broken: dict[str, PodKey] = {}

    @property
    def model(self) -> ModelSummary:
        """The summary of the model so far. It sorts the latencies of all requests, so read it at the end of a run."""
        return self.fleet.summary()[0]

    @property
    def model_now(self) -> ModelSummary:
        """Counts of requests and usage of variants at this moment, without any latency."""
        return self.fleet.summary(since_seconds=inf)[0]

    @property
    def offered_per_second(self) -> float:
        """The requests per second of the last minute."""
        return self.fleet.summary(since_seconds=inf)[0].offered_per_second

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Endpoints]:
        """Listen, and create the scenario's objects with its first pods already serving."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wva-world-")))
            await stack.enter_async_context(self.api)
            await stack.enter_async_context(self.prometheus)
            self._create_objects()
            self.prometheus.scraper.discover(self._targets)
            try:
                yield Endpoints(self.api.kubeconfig(folder / "kubeconfig"), self.prometheus.url)
            finally:
                await self._end_outage()

    def attach(self, controller: ControllerView) -> None:
        """Take the controller that lives in this world."""
        self._controller = controller
        controller.ledger.subscribe(self.timeline.decided)

    async def run(self, duration_seconds: float, *, tick: Callable[[], Awaitable[None]]) -> None:
        """Let the world run for ``duration_seconds`` of virtual time; ``tick`` is called once per scrape interval."""
        await self._settle()
        end, scrapes = self.clock.elapsed_seconds + duration_seconds, self._scrapes
        while (at := self._next(end)) < end:
            self._advance(at)
            await self._apply_faults()
            self._sync_workloads()
            if scrapes.next(self.prometheus.scraper.targets()) <= at:
                await self.prometheus.scrape(due=scrapes.take(at))
            await self._caught_up()
            self.clock.fire_due()
            await self._settle()
            if self._scaling.due(at):
                self._scaler.sync()
                self._sync_workloads()
                await self._settle()
            if self._look.due(at):
                self._observe()
                await tick()
        self._advance(end)
        self._observe()

    def _next(self, end: float) -> float:
        due = [end, self._scrapes.next(self.prometheus.scraper.targets()), self._look.next, self._scaling.next]
        discoveries = [at for setup in self.scenario.variants for at in self._discovery_times(setup).values()]
        due += [at for at in discoveries if at > self.clock.elapsed_seconds]
        due += [at for at in (self.clock.next_due_seconds, self._workloads.next_due_seconds) if at is not None]
        due += [self._faults[0][0]] if self._faults else []
        return max(self.clock.elapsed_seconds, min(due))

    def _advance(self, to_seconds: float) -> None:
        self.timeline.pass_to(to_seconds, {setup.name: self._pods(setup) for setup in self.scenario.variants})
        self.fleet.advance(to_seconds)
        self.clock.pass_to(to_seconds)

    def _create_objects(self) -> None:
        store = self.api.store
        store.create("configmaps", objects.saturation_config(self.scenario))
        for accelerator, gpus in self.scenario.gpus.items():
            store.create("nodes", objects.node(accelerator, gpus))
        for setup in self.scenario.variants:
            store.create(DEPLOYMENTS, objects.deployment(setup, on_node=bool(self.scenario.gpus)))
            store.create(VARIANTS, objects.variant_autoscaling(setup))
            store.create("horizontalpodautoscalers.autoscaling", objects.autoscaler(setup, self.scenario))
        self._sync_workloads(serving=True)

    def _sync_workloads(self, *, serving: bool = False) -> None:
        self._workloads.sync(serving=serving)
        for setup in self.scenario.variants:
            pods = [ReadyPod(name) for name in self._workloads.ready_pods(Key(NAMESPACE, setup.name))]
            self.fleet.set_ready_pods(NAMESPACE, deployment=setup.name, pods=pods)

    def _pods(self, setup: VariantSetup) -> int:
        """Return how many pods of a variant cost something: those that exist, and those that still finish requests."""
        return self._workloads.existing(Key(NAMESPACE, setup.name)) + self.fleet.draining(NAMESPACE, setup.name)

    def _discovery_times(self, setup: VariantSetup) -> dict[str, float]:
        """Return when Prometheus finds, or has found, each Ready pod of a variant; it knows the pods of the start."""
        wait = self.scenario.observation.discovery_seconds
        since = self._workloads.ready_since(Key(NAMESPACE, setup.name))
        return {name: at + wait if at else 0.0 for name, at in since.items()}

    def _targets(self) -> list[ScrapeTarget]:
        """Return the targets of Prometheus: every Ready pod that it has found, and the controller once it serves."""
        targets = []
        observation, phases, now = self.scenario.observation, self._phases, self.clock.elapsed_seconds
        pods = [
            pod for setup in self.scenario.variants for pod in self._discovery_times(setup).items() if pod[1] <= now
        ]
        for name, found_at in pods:
            labels = {"job": "vllm", "namespace": NAMESPACE, "pod": name, "instance": f"{name}:8000"}
            fetcher = InProcess(partial(self._page, PodKey(NAMESPACE, name)))
            offset = None if phases is None else phases.scrapes(name, observation.scrape_seconds)
            targets.append(ScrapeTarget(fetcher, labels, offset_seconds=offset, found_seconds=found_at))
        port = None if self._controller is None else self._controller.metrics_port
        if port is not None:
            url = f"https://127.0.0.1:{port}/metrics"
            labels = {**objects.CONTROLLER_TARGET, "instance": "controller:8443"}
            endpoint = HttpEndpoint(url, verify=False, bearer_token=_SCRAPER)
            period = observation.controller_scrape_seconds
            targets.append(ScrapeTarget(endpoint, labels, interval_seconds=period, offset_seconds=0.0))
        return targets

    def _page(self, pod: PodKey) -> str:
        page = self.fleet.exposition(pod)
        if page is None:
            raise ScrapeError("the pod does not answer")
        return page

    def _external_metric(self, name: str, labels: Mapping[str, str]) -> float | None:
        """Return the sum of the controller's current series of a metric, as the external metrics API would."""
        if self._outage is not None:
            return None
        labels = {**labels, **objects.CONTROLLER_TARGET}
        newest_ms = milliseconds(self.clock.now() - self.scenario.observation.adapter_seconds)
        oldest_ms = newest_ms - _LOOKBACK_SECONDS * 1000
        current_values = []
        for series in self.prometheus.tsdb.of_name(name):
            index = bisect_right(series.times, newest_ms) - 1
            if labels.items() <= series.labels.items() and index >= 0 and series.times[index] > oldest_ms:
                value = series.values[index]
                current_values += [] if value is None else [value]  # None marks the end of a series
        return sum(current_values) if current_values else None

    def _observe(self) -> None:
        model = self.model_now
        for setup in self.scenario.variants:
            deployment = self.api.store.get(DEPLOYMENTS, Key(NAMESPACE, setup.name))
            ledger = None if self._controller is None else self._controller.ledger
            decision = None if ledger is None else ledger.get(VariantKey(NAMESPACE, setup.name))
            self.timeline.add(
                setup.name,
                current=int(deployment.get("status", {}).get("replicas", 0)),
                desired=None if decision is None else decision.desired,
                model=model,
            )

    async def _apply_faults(self) -> None:
        while self._faults and self._faults[0][0] <= self.clock.elapsed_seconds:
            _, apply, fault = self._faults.pop(0)
            await apply(fault)

    async def _begin(self, fault: _Played) -> None:
        match fault:
            case PrometheusOutage():
                self._outage = AsyncExitStack()
                await self._outage.enter_async_context(self.prometheus.unreachable())
            case NoStarts():
                self._workloads.hold(Key(NAMESPACE, fault.variant))
            case UnreadablePod():
                pod = PodKey(NAMESPACE, next(iter(self._workloads.ready_pods(Key(NAMESPACE, fault.variant)))))
                self._broken[fault.variant] = pod
                self.fleet.break_pod(pod, mode=PodFault.NAN)

    async def _end(self, fault: _Played) -> None:
        match fault:
            case PrometheusOutage():
                await self._end_outage()
            case NoStarts():
                self._workloads.release(Key(NAMESPACE, fault.variant))
            case UnreadablePod():
                self.fleet.repair_pod(self._broken.pop(fault.variant))

    async def _end_outage(self) -> None:
        outage, self._outage = self._outage, None
        if outage is not None:
            await outage.aclose()

    async def _caught_up(self) -> None:
        """Wait until the controller's caches have reached the last change."""
        limit = time.monotonic() + _SETTLE_LIMIT_SECONDS
        while self._behind():
            self._complain_after(limit)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _settle(self) -> None:
        """Wait until the controller's caches have reached the last change and it waits for virtual time or for news."""
        limit = time.monotonic() + _SETTLE_LIMIT_SECONDS
        paused_turns = 0
        while True:
            await asyncio.sleep(0)
            if self._at_rest():
                return
            # A query that waits on the virtual clock before its next try ends only when time moves on.
            paused_turns = paused_turns + 1 if self._paused() else 0
            if paused_turns > _PAUSED_TURNS:
                return
            self._complain_after(limit)
            if not paused_turns:
                await asyncio.sleep(_PAUSE_SECONDS)

    def _complain_after(self, limit: float) -> None:
        if time.monotonic() > limit:
            raise SettleError(f"at virtual second {self.clock.elapsed_seconds:g}: {self._state()}")

    def _at_rest(self) -> bool:
        controller = self._controller
        return controller is None or (self.clock.waking == 0 and controller.idle and not self._behind())

    def _paused(self) -> bool:
        controller = self._controller
        return controller is not None and self.clock.waking == 0 and controller.paused and not self._behind()

    def _behind(self) -> list[str]:
        """Return the resources whose cache has not reached the last change yet."""
        versions = {} if self._controller is None else self._controller.cache_versions()
        store = self.api.store
        return [name for name, version in versions.items() if int(version or -1) < store.last_version(name)]

    def _state(self) -> str:
        idle = self._controller is None or self._controller.idle
        return f"idle: {idle}, timers waking: {self.clock.waking}, caches behind: {self._behind()}"


class _Periodic:
    """An event that repeats after a period of virtual seconds."""

    def __init__(self, period_seconds: float, first_seconds: float = 0.0) -> None:
        self._period = period_seconds
        self.next = first_seconds

    def due(self, at: float) -> bool:
        """Return whether the event is due, and plan the next one."""
        if at < self.next:
            return False
        self.next += self._period
        return True
