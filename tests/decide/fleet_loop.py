"""A closed loop around ``decide`` with the simulated fleet: engines, gateway, scrapes, pods that start, an HPA.

What the real control plane does in minutes takes a fraction of a second here, because there is no HTTP. The phases of
scrapes, cycles and HPA against the load come from a seed, as do arrivals and pod starts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Final

from tests.builders import NAMESPACE, NOW, variant
from wva.decide.pipeline import decide
from wva.model.memory import Memory
from wva.model.metrics import MISSING, SAMPLE_WINDOW_SECONDS, ReplicaMetrics, Sample, SampleState
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.variant import Variant, VariantKey
from wva.sim.fleet.fleet import Fleet, ReadyPod
from wva.sim.fleet.load import LoadSpec
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.replica import PodKey, PoolKey, PoolVariant

_HPA_TOLERANCE: Final = 0.1
_MODEL: Final = "m"
_SIGNALS: Final = ("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting")


@dataclass(frozen=True)
class LoopVariant:
    """One variant: what a replica costs, what its engine can do, how long a pod starts."""

    name: str
    cost: float
    engine: EngineParameters
    start_seconds: tuple[float, float]
    maximum: int = 10


@dataclass(frozen=True)
class Setting:
    """A world: variants with one replica each at first, a load, and the periods of scrapes, cycles and HPA."""

    plans: tuple[LoopVariant, ...]
    load: LoadSpec
    duration_seconds: float
    cycle_seconds: float
    scrape_seconds: float
    hpa_seconds: float
    shrink_window_seconds: float = 0.0
    step_seconds: float = 0.5


@dataclass
class FleetWorkload:
    """The pods of a variant (name to the time it is Ready), its number, and what its HPA remembers."""

    plan: LoopVariant
    pods: dict[str, float]
    made: int = 1
    published: int | None = None
    read: int | None = None
    wanted: deque[tuple[float, int]] = field(default_factory=deque)

    def ready(self, now: float) -> dict[str, float]:
        """Return the pods that serve."""
        return {name: since for name, since in self.pods.items() if since <= now}

    def scale(self, now: float, window: float, random: Random) -> None:
        """Follow the number as an HPA does: ignore changes within its tolerance, shrink to the highest of a window."""
        current = len(self.pods)
        if self.read is None:
            return
        wanted = current if abs(1 - self.read / current) <= _HPA_TOLERANCE else self.read
        self.wanted.append((now, wanted))
        while self.wanted[0][0] < now - window:
            self.wanted.popleft()
        number = max(wanted, min(current, max(number for _, number in self.wanted)))
        for _ in range(number - current):
            self.pods[f"{self.plan.name}-{self.made}"] = now + random.uniform(*self.plan.start_seconds)
            self.made += 1
        for name in sorted(self.pods, key=lambda name: -self.pods[name])[: max(0, current - number)]:
            del self.pods[name]


class FleetLoop:
    """Runs a setting; ``changes`` has every change of a number as (seconds, variant, before, after)."""

    def __init__(self, setting: Setting, policy: Policy, *, seed: int) -> None:
        """Draw the phases."""
        self.setting, self.policy = setting, policy
        self.random = Random(f"{seed}/loop")
        self.model = PoolKey(NAMESPACE, _MODEL)
        self.fleet = Fleet(
            [PoolVariant(NAMESPACE, plan.name, _MODEL, plan.name, plan.engine) for plan in setting.plans],
            loads={self.model: setting.load},
            seed=seed,
        )
        self.workloads = [FleetWorkload(plan, {f"{plan.name}-0": 0.0}) for plan in setting.plans]
        self.memory = Memory()
        self.samples: dict[str, deque[tuple[float, float, float]]] = {}
        self.changes: list[tuple[float, str, int, int]] = []
        self.cost = 0.0
        self.now = 0.0

    def run(self, *, afterwards_seconds: float = 90.0) -> FleetLoop:
        """Run to the end, and until what came has been served."""
        setting = self.setting
        periods = {
            self._scrape: setting.scrape_seconds,
            self._read: setting.scrape_seconds,
            self._cycle: setting.cycle_seconds,
            self._scale: setting.hpa_seconds,
        }
        due = {act: self.random.uniform(0, period) for act, period in periods.items()}
        while self.now < setting.duration_seconds:
            self._advance()
            for act, period in periods.items():
                if self.now >= due[act]:
                    due[act] += period
                    act()
        self.fleet.advance(self.now + afterwards_seconds)
        return self

    @property
    def attained(self) -> float:
        """The share of all requests that saw their first token within a second."""
        (model,) = self.fleet.summary()
        first = model.served.time_to_first_token
        return 0.0 if first is None else first.attainment * model.served.requests / model.arrived

    @property
    def reversals(self) -> int:
        """How often a number went down after it had gone up, or up after it had gone down."""
        ways: dict[str, list[bool]] = {}
        for _, name, before, after in self.changes:
            ways.setdefault(name, []).append(after > before)
        return sum(way != last for found in ways.values() for last, way in pairwise(found))

    def _advance(self) -> None:
        step = self.setting.step_seconds
        self.now += step
        self.fleet.advance(self.now)
        for workload in self.workloads:
            ready = [ReadyPod(name) for name in workload.ready(self.now)]
            self.fleet.set_ready_pods(NAMESPACE, deployment=workload.plan.name, pods=ready)
            self.cost += workload.plan.cost * len(workload.pods) * step

    def _scrape(self) -> None:
        for workload in self.workloads:
            for name in workload.ready(self.now):
                page = self.fleet.exposition(PodKey(NAMESPACE, name)) or ""
                kv, queue = (_value(page, signal) for signal in _SIGNALS)
                kept = self.samples.setdefault(name, deque())
                kept.append((self.now, kv, queue))
                while kept[0][0] <= self.now - SAMPLE_WINDOW_SECONDS:
                    kept.popleft()

    def _read(self) -> None:
        for workload in self.workloads:
            workload.read = workload.published

    def _scale(self) -> None:
        for workload in self.workloads:
            workload.scale(self.now, self.setting.shrink_window_seconds, self.random)

    def _cycle(self) -> None:
        replicas = [
            self._replica(workload, name, since)
            for workload in self.workloads
            for name, since in workload.ready(self.now).items()
        ]
        snapshot = Snapshot.of([self._variant(workload) for workload in self.workloads], replicas)
        decisions, self.memory = decide(snapshot, self.memory, self.policy, NOW + self.now)
        numbers = {decision.key.name: decision.desired for decision in decisions}
        for workload in self.workloads:
            name, before = workload.plan.name, workload.published
            workload.published = numbers[name]
            if before is not None and before != numbers[name]:
                self.changes.append((self.now, name, before, numbers[name]))

    def _variant(self, workload: FleetWorkload) -> Variant:
        count, ready = len(workload.pods), len(workload.ready(self.now))
        plan = workload.plan
        described = variant(plan.name, replicas=count, minimum=1, maximum=plan.maximum, cost=plan.cost)
        return replace(described, ready_replicas=ready, status_desired=workload.published)

    def _replica(self, workload: FleetWorkload, name: str, since: float) -> ReplicaMetrics:
        kept = self.samples.get(name, ())
        kv, queue = MISSING, MISSING
        if kept:
            at = NOW + kept[-1][0]
            kv = Sample(SampleState.FRESH, max(sample[1] for sample in kept), at)
            queue = Sample(SampleState.FRESH, max(sample[2] for sample in kept), at)
        ready_since = NOW + int(since)  # conditions have whole seconds
        return ReplicaMetrics(name, VariantKey(NAMESPACE, workload.plan.name), kv, queue, ready_since=ready_since)


def _value(page: str, signal: str) -> float:
    """Return the one sample of a gauge on a page."""
    return next(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(f"{signal}{{"))
