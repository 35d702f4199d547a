"""The fleet: every model's pool, the pages of its pods, and what its users got.

In: the variants, the load of each model, which pods are Ready (from the embedded world or an e2e cluster), faults.
Out: ``exposition*`` pages and ``summary``. Time is virtual: ``advance`` moves it, and the same calls with the same seed
give the same pages, however the time between them is divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from wva.model.records import replace
from wva.sim.fleet.load import Arrivals, LoadSpec
from wva.sim.fleet.metrics import EngineView, gateway_lines, render
from wva.sim.fleet.pool import ModelPool, ReplicaPod
from wva.sim.fleet.replica import PodKey, PoolKey, PoolVariant, ReplicaState
from wva.sim.fleet.service_log import ServiceLevel
from wva.sim.fleet.summary import ModelSummary, summarise
from wva.sim.fleet.users import GatewaySettings
from wva.sim.traffic.lengths import TokenLengths
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.streams import stream

if TYPE_CHECKING:
    from wva.sim.traffic.requests import Traffic

NO_LOAD = LoadSpec(RateProfile.constant(0.0))
"""The load of a model without a load of its own."""


class PodFault(StrEnum):
    """How a pod's metrics page can lie or fail. The pod serves requests all the same."""

    NO_METRICS = "no-metrics"
    """The scrape fails."""
    NAN = "nan"
    """Gauges are NaN."""
    FROZEN = "frozen"
    """Values stop at the moment of the fault; the scraper still stamps them with its own time."""
    STALE = "stale"
    """As frozen, but each sample carries the time of the fault, so that a reader can tell."""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """What holds for the whole fleet.

    Attributes:
        start_seconds: virtual time at the beginning.
        epoch_seconds: Unix time of virtual time 0, for explicit timestamps only.
        gateway: each model's gateway and users; by default they wait as long as it takes.
        drain_seconds: grace period of a terminating replica.
        inference_pool: label value of the gateway's series.
        service_level: objectives the summary judges by.

    """

    start_seconds: float = 0.0
    epoch_seconds: float = 0.0
    gateway: GatewaySettings = field(default=GatewaySettings())
    drain_seconds: float = 30.0
    inference_pool: str = "vllm-pool"
    service_level: ServiceLevel = field(default=ServiceLevel())


@dataclass(frozen=True, slots=True)
class ReadyPod:
    """A pod the cluster lists: ready now, or at ``ready_at_seconds`` of virtual time."""

    name: str
    ready_at_seconds: float | None = None


class Fleet:
    """All models, replicas and loads of a world."""

    def __init__(
        self,
        variants: Iterable[PoolVariant],
        *,
        loads: Mapping[PoolKey, LoadSpec | Traffic],
        seed: int = 0,
        settings: FleetSettings | None = None,
    ) -> None:
        """Start without pods. Models with a load but no variant only have a gateway."""
        self.settings = settings or FleetSettings()
        self.now_seconds = self.settings.start_seconds
        self._seed = seed
        self._variants: dict[tuple[str, str], PoolVariant] = {}
        self._pools: dict[PoolKey, ModelPool] = {}
        self._faults: dict[PodKey, tuple[PodFault, tuple[EngineView, ...]]] = {}
        for model, load in loads.items():
            self._add_pool(model, load)
        for variant in variants:
            self.add_variant(variant)

    # -- what the world says ----------------------------------------------------------------------------------------

    def add_variant(self, variant: PoolVariant) -> None:
        """Make a Deployment known; it has no pods yet. A second call replaces it for its future pods."""
        self._variants[variant.namespace, variant.deployment] = variant
        if variant.model not in self._pools:
            self._add_pool(variant.model, NO_LOAD)

    def set_ready_pods(self, namespace: str, *, deployment: str, pods: Iterable[ReadyPod]) -> None:
        """Say which pods of a Deployment exist from now on; the others terminate.

        Raises:
            KeyError: no variant has this Deployment.

        """
        variant = self._variants[namespace, deployment]
        ready = {pod.name: self.now_seconds if pod.ready_at_seconds is None else pod.ready_at_seconds for pod in pods}
        self._pools[variant.model].set_pods(variant, ready=ready)

    def set_load(
        self,
        model: PoolKey,
        *,
        profile: RateProfile,
        prompt: TokenLengths | None = None,
        output: TokenLengths | None = None,
    ) -> None:
        """Offer another rate to a model from now on, with other lengths where they are given.

        The times of ``profile`` are seconds from now. An unknown model gets a gateway.

        Raises:
            TypeError: the model has the requests of a traffic, which cannot change.
            ValueError: more requests are expected up to the last point of the profile than fit into memory.

        """
        if model not in self._pools:
            self._add_pool(model, NO_LOAD)
        pool = self._pools[model]
        current = pool.arrivals.load
        if not isinstance(current, LoadSpec):
            raise TypeError(f"{model.model_id} in {model.namespace} has the requests of a traffic: they cannot change")
        load = LoadSpec(profile, prompt or current.prompt, output or current.output)
        pool.arrivals.change(load, at_seconds=self.now_seconds)
        pool.expect(tokens_per_sequence=load.resident_tokens)

    def break_pod(self, pod: PodKey, *, mode: PodFault) -> None:
        """Break the metrics page of a pod until ``repair_pod``.

        Raises:
            KeyError: there is no such pod.

        """
        now_milliseconds = round((self.settings.epoch_seconds + self.now_seconds) * 1000)
        stamp = now_milliseconds if mode is PodFault.STALE else None
        at_fault = tuple(
            replace(view, timestamp_milliseconds=stamp) for view in self._views(*self._pool_and_replica(pod))
        )
        self._faults[pod] = (mode, at_fault)

    def repair_pod(self, pod: PodKey) -> None:
        """Let a pod's page show the true values again."""
        self._faults.pop(pod, None)

    def advance(self, until_seconds: float) -> None:
        """Let virtual time pass.

        Raises:
            ValueError: ``until_seconds`` lies in the past.

        """
        if until_seconds < self.now_seconds:
            raise ValueError(f"cannot go back from {self.now_seconds} s to {until_seconds} s")
        for pool in self._pools.values():
            pool.advance(until_seconds)
        self.now_seconds = until_seconds

    # -- what the world sees ----------------------------------------------------------------------------------------

    def exposition(self, pod: PodKey) -> str | None:
        """Return a pod's own page; None if the scrape fails: no such pod, still starting, or broken."""
        pool = next((pool for pool in self._pools.values() if pod in pool.replicas), None)
        if pool is None or pool.state(pool.replicas[pod]) is ReplicaState.STARTING:
            return None
        views = self._shown(pool, pool.replicas[pod])
        return render(views, pod_labels=False) if views else None

    def exposition_all(self) -> str:
        """Return one page of all Ready pods and all gateways, with ``namespace`` and ``pod`` labels."""
        ready = [
            (replica.pod, pool, replica)
            for pool in self._pools.values()
            for replica in pool.replicas.values()
            if pool.state(replica) is ReplicaState.READY
        ]
        views = [
            view
            for _, pool, replica in sorted(ready, key=lambda entry: entry[0])
            for view in self._shown(pool, replica)
        ]
        return render(views, pod_labels=True) + gateway_lines(
            self._queues(), pool=self.settings.inference_pool, namespaces=True
        )

    def exposition_gateway(self, namespace: str | None = None) -> str:
        """Return the page of a namespace's endpoint picker (None: of all models, with the namespace as label)."""
        return gateway_lines(
            [row for row in self._queues() if namespace in (None, row[0].namespace)],
            pool=self.settings.inference_pool,
            namespaces=namespace is None,
        )

    def draining(self, namespace: str, deployment: str) -> int:
        """Return how many pods of a Deployment are being terminated, and still have something to finish."""
        pool = self._pools[self._variants[namespace, deployment].model]
        return sum(
            replica.variant.deployment == deployment and pool.state(replica) is ReplicaState.DRAINING
            for replica in pool.replicas.values()
        )

    def summary(self, *, since_seconds: float = 0.0) -> tuple[ModelSummary, ...]:
        """Return what each model's users got since that time and how its variants are used now, in order of model."""
        return tuple(
            summarise(
                model,
                pool=self._pools[model],
                variants=[variant for _, variant in sorted(self._variants.items()) if variant.model == model],
                level=self.settings.service_level,
                since_seconds=since_seconds,
            )
            for model in sorted(self._pools)
        )

    # -- inside -----------------------------------------------------------------------------------------------------

    def _add_pool(self, model: PoolKey, load: LoadSpec | Traffic) -> None:
        settings = self.settings
        seeds = stream(self._seed, f"{model.namespace}/{model.model_id}")
        self._pools[model] = ModelPool(
            Arrivals(load, seeds=seeds, start_seconds=self.now_seconds),
            settings=settings.gateway,
            drain_seconds=settings.drain_seconds,
            start_seconds=self.now_seconds,
        )

    def _pool_and_replica(self, pod: PodKey) -> tuple[ModelPool, ReplicaPod]:
        for pool in self._pools.values():
            if pod in pool.replicas:
                return pool, pool.replicas[pod]
        raise KeyError(pod)

    def _queues(self) -> list[tuple[PoolKey, int, int]]:
        bytes_per_token = 4  # of English text
        return [
            (model, pool.queued, pool.queued_prompt_tokens * bytes_per_token)
            for model, pool in sorted(self._pools.items())
        ]

    def _views(self, pool: ModelPool, replica: ReplicaPod) -> list[EngineView]:
        return [
            EngineView(
                model=replica.variant.model,
                pod=replica.pod,
                engine=index,
                parameters=replica.variant.parameters,
                sample=sample,
            )
            for index, sample in enumerate(pool.samples(replica))
        ]

    def _shown(self, pool: ModelPool, replica: ReplicaPod) -> list[EngineView]:
        """Return what the pod's page shows, faults included; nothing if the scrape fails."""
        fault = self._faults.get(replica.pod)
        if fault is None:
            return self._views(pool, replica)
        mode, at_fault = fault
        match mode:
            case PodFault.NO_METRICS:
                return []
            case PodFault.NAN:
                return [replace(view, broken_gauges=True) for view in self._views(pool, replica)]
            case PodFault.FROZEN | PodFault.STALE:
                return list(at_fault)
